import { useState } from "react";
import { useBuildLog } from "../../api/hooks";
import type { JobDetail } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { slurmOf, softwareOf } from "../../lib/jobfile/jobFile";
import css from "./job.module.css";
import { LogText } from "./LogText";

const WORDS = { building: "being built", ready: "ready", failed: "could not be built" };

/** The packages that the newest run brought, how their build went, what the job has of the site's own, and what it asks of Slurm. */
export function EnvironmentCard({ job }: { job: JobDetail }) {
  const built = job.runs.find((run) => run.id === job.run.id)?.material?.environment ?? undefined;
  const [open, setOpen] = useState(built?.state === "failed");
  const { modules, image } = softwareOf(job.spec);
  const slurm = slurmOf(job.spec);
  if (!built && modules.length === 0 && !image && slurm.length === 0) return null;
  const toggle = built && <button type="button" className="btn sm" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide the build log" : "Show the build log"}</button>;
  return (
    <Panel title="Environment" meta={built && WORDS[built.state]} right={toggle}>
      {(modules.length > 0 || image || slurm.length > 0) && (
        <ul className={`pb ${css.links}`}>
          {modules.length > 0 && <Entry kind={modules.length > 1 ? "modules" : "module"} what={modules.join(" ")} />}
          {image && <Entry kind="image" what={image} />}
          {slurm.length > 0 && <Entry kind="sbatch" what={slurm.join(" ")} />}
        </ul>
      )}
      {built && (open ? <Build project={job.project.key} digest={built.digest} /> : <p className="empty mono" style={{ fontSize: 12 }}>{built.digest.slice(0, 12)}</p>)}
    </Panel>
  );
}

function Entry({ kind, what }: { kind: string; what: string }) {
  return <li><span>{kind}</span><span className="sub ell mono" title={what}>{what}</span></li>;
}

function Build({ project, digest }: { project: string; digest: string }) {
  const query = useBuildLog(project, digest, true);
  return (
    <Loadable query={query} what="The build log" skeleton={<Skeleton height={14} count={6} />}>
      {(log) => log.text ? <pre className="log" tabIndex={0} aria-label="Build log" style={{ maxHeight: 260 }}><LogText text={log.text} search="" /></pre> : <p className="empty">Nothing was written yet.</p>}
    </Loadable>
  );
}
