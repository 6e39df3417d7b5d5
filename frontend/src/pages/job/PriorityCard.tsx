import { lazy, Suspense } from "react";
import type { JobPriority } from "../../api/types";
import { Panel, Skeleton } from "../../components/Panel";
import { PriorityBar, PriorityParts } from "../../components/PriorityBar";
import { count, integer, moment } from "../../lib/format";
import { heapOf } from "../../lib/job/priority";
import css from "./job.module.css";

const CourseChart = lazy(() => import("./CourseChart"));

/** Of a waiting job under the policy that goes by it: its place, what it is made of, and where it goes by itself. */
export function PriorityCard({ found }: { found: JobPriority | undefined }) {
  if (!found || !found.in_force || found.rank === null || found.priority === null) return null;
  const last = found.course.at(-1);
  return (
    <Panel title="Priority" right={<span className="sub">place {integer(found.rank)} of {count(found.waiting, "job")}</span>}>
      <div className={`pb ${css.prose}`}>
        <p><b style={{ fontWeight: 600 }}>{integer(found.priority)}</b> points.{last && last.priority > found.priority && <> If it keeps waiting, {integer(last.priority)} by {moment(new Date(last.at), new Date())}.</>}</p>
        <PriorityBar made={found} most={Math.max(heapOf(found), 1)} />
        <PriorityParts made={found} />
        <Suspense fallback={<Skeleton height={150} />}><CourseChart course={found.course} site={found.site} nice={found.nice} /></Suspense>
      </div>
    </Panel>
  );
}
