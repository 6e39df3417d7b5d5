import { lazy, Suspense, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { useProjects, useUsage } from "../../api/hooks";
import { url } from "../../api/client";
import { useBudgets } from "../../api/limitHooks";
import type { Session, Usage, UsageGroup } from "../../api/types";
import { Icon } from "../../components/icons";
import { After, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { UsageTable } from "../../components/UsageTable";
import { money, number, percent, withUnit } from "../../lib/format";
import { columnLabel, isDay, isPeriod, PERIODS, spanOf, stepOf, type PeriodKey, type Span } from "../../lib/charts/usagePeriod";
import { TopBar } from "../../shell/TopBar";
import { BudgetsPanel } from "./BudgetsPanel";

const UsageChart = lazy(() => import("../../components/UsageChart"));

const GROUPS: { key: UsageGroup; label: string }[] = [
  { key: "project", label: "Project" }, { key: "user", label: "User" }, { key: "job", label: "Job" },
  { key: "type", label: "Type" }, { key: "day", label: "Day" }, { key: "month", label: "Month" },
];

/** What is asked for lives in the address, so that a report can be linked and Back works. */
function useAsked() {
  const [params, setParams] = useSearchParams();
  const today = new Date().toISOString().slice(0, 10);
  const [from, to] = [params.get("from"), params.get("to")];
  const own: Partial<Span> = { ...(isDay(from) ? { from } : {}), ...(isDay(to) ? { to } : {}) };
  const named = params.get("period");
  const period: PeriodKey = own.from || own.to ? "own" : isPeriod(named) ? named : "30d";
  const span = spanOf(period, today, own);
  const set = (changes: Record<string, string>) => {
    setParams((old) => {
      for (const [key, value] of Object.entries(changes)) {
        if (value) old.set(key, value);
        else old.delete(key);
      }
      return old;
    }, { replace: true });
  };
  return {
    set, period, span, endsToday: span.to === today,
    by: GROUPS.find((group) => group.key === params.get("by"))?.key ?? "project",
    project: params.get("project") ?? "", mine: params.get("user") === "me",
  };
}
type Asked = ReturnType<typeof useAsked>;

export default function UsagePage({ session }: { session: Session }) {
  const asked = useAsked();
  // Which day it is the portal knows better: it may be in another time zone.
  const filter = { from_day: asked.period === "month" ? "" : asked.span.from, to_day: asked.endsToday ? "" : asked.span.to, project: asked.project, user: asked.mine ? "me" : "" };
  const step = stepOf(asked.span);
  const columns = useUsage({ ...filter, group_by: step });
  const rows = useUsage({ ...filter, group_by: asked.by });
  const budgets = useBudgets(asked.project);
  const [read, setRead] = useState<string | null>(null);
  return (
    <>
      <TopBar title="Usage and cost" />
      <div className="page">
        {columns.data ? <Sentence found={columns.data} asked={asked} /> : <SentenceWaits />}
        <Choice asked={asked} />
        <Panel title="GPU-hours" meta={`per ${step}`} right={<span className="sub">{read ?? ""}</span>}>
          <Loadable query={columns} what="The chart" skeleton={<Skeleton height={200} />}>
            {(found) => found.results.length === 0 ? <Nothing asked={asked} /> : (
              <Suspense fallback={<div className="pb"><Skeleton height={200} /></div>}>
                <UsageChart found={found} step={step} onRead={setRead} />
              </Suspense>
            )}
          </Loadable>
        </Panel>
        <After until={[columns, rows, budgets]}>
          <BudgetsPanel project={asked.project} currency={session.currency} />
          <Panel
            title={`By ${asked.by}`} meta={rows.data && shownOf(rows.data, asked.by)}
            right={<a className="btn sm" href={url("usage/export", { ...filter, group_by: asked.by })} download><Icon name="download" />CSV</a>}
          >
            <Loadable query={rows} what="The table" skeleton={<Skeleton height={26} count={5} />}>
              {(found) => found.results.length === 0 ? <p className="empty">Nothing was used in this time.</p> : <UsageTable found={found} by={asked.by} email={session.user?.email ?? ""} />}
            </Loadable>
          </Panel>
        </After>
      </div>
    </>
  );
}

function shownOf(found: Usage, by: UsageGroup): string {
  const order = by === "day" || by === "month" ? "newest first" : "the most costly first";
  return found.next === null ? order : `${order}, the first ${found.results.length}; all are in the CSV`;
}

/** How much, and how that is going. */
function Sentence({ found, asked }: { found: Usage; asked: Asked }) {
  const hours = found.results.reduce((sum, row) => sum + row.gpu_hours, 0);
  const cost = found.results.reduce((sum, row) => sum + Number(row.cost), 0);
  const measured = found.results.reduce((sum, row) => sum + row.measured_gpu_hours, 0);
  const used = found.results.reduce((sum, row) => sum + (row.used_gpu_hours ?? 0), 0);
  const when = asked.period === "own" ? `from ${columnLabel(found.from_day)} to ${columnLabel(found.to_day)}` : (PERIODS.find((period) => period.key === asked.period)?.label ?? "").toLowerCase();
  const who = asked.mine ? "You" : "Your projects";
  if (hours === 0) return <h1 className="say"><b>{who} used no GPU</b> in the time chosen ({when}).</h1>;
  const most = found.results.reduce((a, b) => (b.gpu_hours > a.gpu_hours ? b : a));
  return (
    <h1 className="say">
      <b>{who} occupied {withUnit(number(hours), "GPU-hours")}</b> ({when}) for {money(cost, found.currency)}
      {found.results.length > 1 && <>, the most on {columnLabel(most.key)}: {withUnit(number(most.gpu_hours), "h")}, {percent(most.gpu_hours / hours)}</>}.
      {measured > 0 && <> {measured < hours * 0.995 ? `Of ${withUnit(number(measured), "h")} it is known how busy the GPUs were: ` : "The GPUs worked "}<b>{percent(used / measured)}</b>{measured < hours * 0.995 ? "." : " of that time."}{found.results.some((row) => row.emulated) && <span className="chip o" style={{ marginLeft: 6 }}>emulated</span>}</>}
    </h1>
  );
}

function Nothing({ asked }: { asked: Asked }) {
  return <p className="empty">Nothing was used from {columnLabel(asked.span.from)} to {columnLabel(asked.span.to)}. <Link to="/usage?period=year">Show this year</Link></p>;
}

function Choice({ asked }: { asked: Asked }) {
  const projects = useProjects().data ?? [];
  const small = { height: 28, fontSize: 12, width: "auto" };
  return (
    <div style={{ display: "flex", flexWrap: "wrap", gap: 8, alignItems: "center" }}>
      <div className="tw" style={{ maxWidth: "100%" }} tabIndex={0} role="region" aria-label="Grouping">
        <div className="seg" role="group" aria-label="By">
          {GROUPS.map((group) => <button key={group.key} type="button" aria-pressed={group.key === asked.by} onClick={() => asked.set({ by: group.key })}>{group.label}</button>)}
        </div>
      </div>
      <select className="in" style={small} aria-label="Period" value={asked.period} onChange={(event) => asked.set(event.target.value === "own" ? { period: "", from: asked.span.from, to: asked.span.to } : { period: event.target.value, from: "", to: "" })}>
        {PERIODS.map((period) => <option key={period.key} value={period.key}>{period.label}</option>)}
      </select>
      {asked.period === "own" && (
        <>
          <input className="in" style={small} type="date" aria-label="First day" max={asked.span.to} value={asked.span.from} onChange={(event) => asked.set({ from: event.target.value })} />
          <input className="in" style={small} type="date" aria-label="Last day" min={asked.span.from} value={asked.span.to} onChange={(event) => asked.set({ to: event.target.value })} />
        </>
      )}
      <select className="in" style={{ ...small, width: 150 }} aria-label="Project" value={asked.project} onChange={(event) => asked.set({ project: event.target.value })}>
        <option value="">All my projects</option>
        {projects.map((project) => <option key={project.key} value={project.key}>{project.name}</option>)}
      </select>
      <div className="seg" role="group" aria-label="Whose">
        <button type="button" aria-pressed={!asked.mine} onClick={() => asked.set({ user: "" })}>All users'</button>
        <button type="button" aria-pressed={asked.mine} onClick={() => asked.set({ user: "me" })}>Mine</button>
      </div>
    </div>
  );
}
