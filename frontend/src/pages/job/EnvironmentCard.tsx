import { useState } from "react";
import { useBuildLog } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { LogText } from "./LogText";

const WORDS = { building: "being built", ready: "ready", failed: "could not be built" };

/** The packages that the newest run brought, and how their build went. */
export function EnvironmentCard({ job }: { job: JobDetail }) {
  const environment = job.runs.find((run) => run.id === job.run.id)?.material?.environment;
  const [open, setOpen] = useState(environment?.state === "failed");
  if (!environment) return null;
  return (
    <Panel title="Environment" meta={WORDS[environment.state]} right={<button type="button" className="btn sm" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide the build log" : "Show the build log"}</button>}>
      {open ? <Build project={job.project.key} digest={environment.digest} /> : <p className="empty mono" style={{ fontSize: 12 }}>{environment.digest.slice(0, 12)}</p>}
    </Panel>
  );
}

function Build({ project, digest }: { project: string; digest: string }) {
  const query = useBuildLog(project, digest, true);
  return (
    <Loadable query={query} what="The build log" skeleton={<Skeleton height={14} count={6} />}>
      {(log) => log.text ? <pre className="log" tabIndex={0} aria-label="Build log" style={{ maxHeight: 260 }}><LogText text={log.text} search="" /></pre> : <p className="empty">Nothing was written yet.</p>}
    </Loadable>
  );
}
