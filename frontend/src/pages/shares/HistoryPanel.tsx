import { lazy, Suspense, useState } from "react";
import { useShareHistory } from "../../api/hooks";
import type { ShareCourse } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";

const HistoryChart = lazy(() => import("./HistoryChart"));
const SPANS = [{ days: 1, label: "1 day" }, { days: 14, label: "14 days" }, { days: 90, label: "90 days" }, { days: 400, label: "All" }];

export const FIRST_SPAN_DAYS = 14;

const used = (course: ShareCourse) => course.points.at(-1)?.effective_usage ?? 0;

/** How a project came to where it stands; first the one that used most. */
export function HistoryPanel() {
  const [days, setDays] = useState(FIRST_SPAN_DAYS);
  const [chosen, setChosen] = useState<string | null>(null);
  const query = useShareHistory(days);
  const courses = query.data?.results ?? [];
  const most = courses.length > 0 ? courses.reduce((a, b) => (used(b) > used(a) ? b : a)) : undefined;
  const shown = courses.find((course) => course.project.key === chosen) ?? most;
  return (
    <Panel
      title="Over time" meta={shown?.project.name}
      right={
        <>
          {courses.length > 1 && (
            <select className="in" style={{ height: 28, fontSize: 12, width: "auto", maxWidth: 180 }} aria-label="Project" value={shown?.project.key ?? ""} onChange={(event) => setChosen(event.target.value)}>
              {courses.map((course) => <option key={course.project.key} value={course.project.key}>{course.project.name}</option>)}
            </select>
          )}
          <div className="seg small" role="group" aria-label="How far back">
            {SPANS.map((span) => <button key={span.days} type="button" aria-pressed={span.days === days} onClick={() => setDays(span.days)}>{span.label}</button>)}
          </div>
        </>
      }
    >
      <Loadable query={query} what="The history" skeleton={<Skeleton height={210} />}>
        {() => !shown || shown.points.length < 2 ? <p className="empty">{shown ? "A point is kept every quarter of an hour: the line begins with the second." : "You are in no project yet."}</p> : (
          <Suspense fallback={<div className="pb"><Skeleton height={210} /></div>}><HistoryChart course={shown} /></Suspense>
        )}
      </Loadable>
    </Panel>
  );
}
