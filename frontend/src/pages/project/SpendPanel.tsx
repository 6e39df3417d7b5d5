import { lazy, Suspense, useState } from "react";
import { Link } from "react-router";
import { useUsage } from "../../api/hooks";
import type { ProjectDetail } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { UsageTable } from "../../components/UsageTable";
import { money, number, withUnit } from "../../lib/format";

const UsageChart = lazy(() => import("../../components/UsageChart"));

/** What was used this month, by day or by user, with all projects below. */
export function SpendPanel({ project, email }: { project: ProjectDetail; email: string }) {
  const [by, setBy] = useState<"day" | "user">("day");
  const [read, setRead] = useState<string | null>(null);
  // Which month it is the portal knows better: it may be in another time zone.
  const query = useUsage({ group_by: by, from_day: "", to_day: "", project: project.key, user: "" });
  const found = query.data;
  const cost = found?.results.reduce((sum, row) => sum + Number(row.cost), 0) ?? 0;
  const hours = found?.results.reduce((sum, row) => sum + row.gpu_hours, 0) ?? 0;
  const chooseBy = (next: typeof by) => {
    setBy(next);
    setRead(null);
  };
  return (
    <Panel
      title="This month" meta={read ?? (found && `${money(cost, found.currency)} for ${withUnit(number(hours), "GPU-hours")}, with all below`)}
      right={
        <>
          <div className="seg small" role="group" aria-label="By">
            <button type="button" aria-pressed={by === "day"} onClick={() => chooseBy("day")}>By day</button>
            <button type="button" aria-pressed={by === "user"} onClick={() => chooseBy("user")}>By user</button>
          </div>
          <Link className="btn sm" to={`/usage?project=${encodeURIComponent(project.key)}&period=month`}>Usage and cost</Link>
        </>
      }
    >
      <Loadable query={query} what="The use of the month" skeleton={<Skeleton height={200} />}>
        {(data) => data.results.length === 0 ? <p className="empty">Nothing was used this month.</p> : by === "user" ? <UsageTable found={data} by="user" email={email} /> : (
          <Suspense fallback={<div className="pb"><Skeleton height={200} /></div>}>
            <UsageChart found={data} step="day" onRead={setRead} />
          </Suspense>
        )}
      </Loadable>
    </Panel>
  );
}
