import { lazy, Suspense, useState } from "react";
import { useSearchParams } from "react-router";
import { useEndedSlowdowns, useFairness, useFairnessHistory } from "../../api/fairnessHooks";
import { useProjects } from "../../api/hooks";
import { After, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { Sentence } from "../../components/Sentence";
import { TopBar } from "../../shell/TopBar";
import { fairnessParts, SPANS, spanNamed } from "./fairness";
import { ENDED_GROUPS, EndedTable } from "./EndedTable";
import { StandingTable } from "./StandingTable";
import { Strips } from "./Strips";
import { WorstTable } from "./WorstTable";

const VarianceChart = lazy(() => import("./VarianceChart"));
const COLUMNS = 120;

/** What is asked for lives in the address, so that it can be linked and Back works. */
function useAsked() {
  const [params, setParams] = useSearchParams();
  const set = (key: string, value: string) =>
    setParams((old) => {
      if (value) old.set(key, value);
      else old.delete(key);
      return old;
    }, { replace: true });
  return {
    set, span: spanNamed(params.get("period")), project: params.get("project") ?? "",
    by: params.get("by") === "user" ? ("user" as const) : ("project" as const),
    waiting: params.get("jobs") === "waiting",
    ended: ENDED_GROUPS.find((group) => group.key === params.get("ended"))?.key ?? ("project" as const),
  };
}
type Asked = ReturnType<typeof useAsked>;

export default function FairnessPage() {
  const asked = useAsked();
  const now = useFairness(asked.project);
  const history = useFairnessHistory(asked.by, asked.span.seconds, asked.project, COLUMNS);
  const cluster = useFairnessHistory("cluster", asked.span.seconds, "", 300);
  const ended = useEndedSlowdowns(asked.ended, asked.span.seconds, asked.project);
  const [atMs, setAtMs] = useState<number | null>(null);
  const jobs = asked.waiting ? now.data?.longest_waiting : now.data?.worst_off;
  const standings = asked.by === "user" ? now.data?.users : now.data?.projects;
  const more = asked.by === "user" ? now.data?.more_users : now.data?.more_projects;
  return (
    <>
      <TopBar title="Fairness" />
      <div className="page">
        {now.data ? <Sentence parts={fairnessParts(now.data)} /> : <SentenceWaits />}
        <Choice asked={asked} />
        <Panel title="Relative throughput over time" meta={`by ${asked.by}, the slowest first`}>
          <Loadable query={history} what="The history" skeleton={<Skeleton height={64} count={3} />}>
            {(found) => <Strips found={found} by={asked.by} span={asked.span} atMs={atMs} onRead={setAtMs} />}
          </Loadable>
        </Panel>
        <After until={[now, history, cluster]}>
          <Panel title="Variance of relative throughput" meta="of all jobs that have GPUs">
            <Loadable query={cluster} what="The variance" skeleton={<Skeleton height={160} />}>
              {(found) => <Suspense fallback={<div className="pb"><Skeleton height={160} /></div>}><VarianceChart found={found} onRead={setAtMs} /></Suspense>}
            </Loadable>
          </Panel>
          <Panel
            title={asked.waiting ? "Longest waiting" : "Worst off"} meta={asked.waiting ? "jobs of your projects that wait for GPUs" : "jobs of your projects that have GPUs"}
            right={<Toggle label="Which jobs" chosen={asked.waiting ? "waiting" : ""} options={[{ key: "", label: "With GPUs" }, { key: "waiting", label: "Waiting" }]} onChoose={(key) => asked.set("jobs", key)} />}
          >
            <Loadable query={{ ...now, data: jobs }} what="The list of jobs" skeleton={<Skeleton height={26} count={5} />}>
              {(rows) => <WorstTable rows={rows} waiting={asked.waiting} />}
            </Loadable>
          </Panel>
          <Panel title={asked.by === "user" ? "Users" : "Projects"} meta={`now, and the ${asked.span.label.toLowerCase()}`}>
            <Loadable query={{ ...now, data: standings }} what="The table" skeleton={<Skeleton height={26} count={5} />}>
              {(rows) => <StandingTable now={rows} before={history.data?.results ?? []} by={asked.by} span={asked.span} more={more === true || history.data?.next != null} />}
            </Loadable>
          </Panel>
          <Panel
            title="Slowdown of finished jobs" meta={asked.span.label.toLowerCase()}
            right={<Toggle label="Grouping of finished jobs" chosen={asked.ended} options={ENDED_GROUPS} onChoose={(key) => asked.set("ended", key)} />}
          >
            <Loadable query={ended} what="The table of finished jobs" skeleton={<Skeleton height={26} count={3} />}>
              {(found) => <EndedTable found={found} by={asked.ended} />}
            </Loadable>
          </Panel>
        </After>
      </div>
    </>
  );
}

function Choice({ asked }: { asked: Asked }) {
  const projects = useProjects().data ?? [];
  return (
    <div style={{ display: "flex", flexWrap: "wrap", gap: 8, alignItems: "center" }}>
      <Toggle label="Period" chosen={asked.span.key} options={SPANS.map(({ key, label }) => ({ key, label }))} onChoose={(key) => asked.set("period", key)} />
      <Toggle label="By" chosen={asked.by} options={[{ key: "project", label: "Project" }, { key: "user", label: "User" }]} onChoose={(key) => asked.set("by", key)} />
      <select className="in" style={{ height: 28, fontSize: 12, width: 150 }} aria-label="Project" value={asked.project} onChange={(event) => asked.set("project", event.target.value)}>
        <option value="">All my projects</option>
        {projects.map((project) => <option key={project.key} value={project.key}>{project.name}</option>)}
      </select>
    </div>
  );
}

interface ToggleProps {
  label: string;
  chosen: string;
  options: { key: string; label: string }[];
  onChoose: (key: string) => void;
}

function Toggle({ label, chosen, options, onChoose }: ToggleProps) {
  return (
    <div className="seg small" role="group" aria-label={label}>
      {options.map((option) => <button key={option.key} type="button" aria-pressed={option.key === chosen} onClick={() => onChoose(option.key)}>{option.label}</button>)}
    </div>
  );
}
