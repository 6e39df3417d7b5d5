import { useState } from "react";
import { useSearchParams } from "react-router";
import { useProjects } from "../../api/hooks";
import { useGuarantees, useLimits, useLimitsOfAll, useMyLimits, useRemoveGuarantee } from "../../api/limitHooks";
import type { Guarantee, Limit, Project, Session } from "../../api/types";
import { Icon } from "../../components/icons";
import { After, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { count, duration, integer, typeName } from "../../lib/format";
import { mayGuarantee } from "./managing";
import { TopBar } from "../../shell/TopBar";
import { GuaranteeForm } from "./GuaranteeForm";
import { LimitForm } from "./LimitForm";
import { Actions, LimitsTable } from "../../components/LimitsTable";
import { isolated } from "../../lib/isolated";

/** The headline looks into so many of one's projects. */
const MOST = 20;

/** Every limit and budget that binds somebody in a project, and what projects are guaranteed. The project lives in the address. */
export default function LimitsPage({ session }: { session: Session }) {
  const [params, setParams] = useSearchParams();
  const mine = useLimitsOfAll(session.projects.slice(0, MOST).map((one) => one.key));
  const fullest = mine?.reduce<(typeof mine)[number] | null>((most, one) => (one.row.used_percent > (most?.row.used_percent ?? 79) ? one : most), null);
  const project = params.get("project") ?? fullest?.project ?? session.projects[0]?.key ?? "";
  const limits = useLimits(project);
  const guarantees = useGuarantees();
  const isAdmin = session.user?.is_admin ?? false;
  const manages = isAdmin || session.projects.some((one) => one.role === "manager");
  const projects = useProjects(manages).data ?? NONE;
  const changeable = useMyLimits(manages);
  const guaranteed = new Set(guarantees.data?.results.map((row) => row.project));
  const may = (key: string) => isAdmin || mayGuarantee(key, projects, guaranteed);
  const choices = projects.filter((one) => one.archived_at === null && !guaranteed.has(one.key) && may(one.key));
  const [limit, setLimit] = useState<Limit | "new" | null>(null);
  const [guarantee, setGuarantee] = useState<Guarantee | "new" | null>(null);
  return (
    <>
      <TopBar title="Limits" />
      <div className="page">
        {project === "" ? <h1 className="say"><b>You are in no project yet</b>, so nothing limits you.</h1>
          : mine ? <Sentence rows={mine.map((one) => one.row)} /> : <SentenceWaits />}
        {project !== "" && (
          <Panel title="What binds your jobs" right={<Choice session={session} project={project} onChange={(key) => setParams({ project: key }, { replace: true })} />}>
            <Loadable query={limits} what="The list of limits" skeleton={<Skeleton height={26} count={4} />}>
              {(found) => found.results.length === 0 ? <p className="empty">Nothing limits your jobs in this project.</p> : <LimitsTable rows={found.results} more={found.more && "evenkeel limit show"} currency={session.currency} />}
            </Loadable>
          </Panel>
        )}
        <After until={[limits, changeable, guarantees]}>
          {manages && (
            <Panel title="Limits that you may change" meta={changeable.data && !changeable.data.next && count(changeable.data.results.length, "limit")} right={<New label="New limit" onClick={() => setLimit("new")} />}>
              <Loadable query={changeable} what="The list of limits that you may change" skeleton={<Skeleton height={26} count={2} />}>
                {(found) => found.results.length === 0 ? <p className="empty">There are none.</p> : <LimitsTable rows={found.results} more={found.next !== null && "evenkeel limit ls"} currency={session.currency} onEdit={setLimit} />}
              </Loadable>
            </Panel>
          )}
          <Panel title="Guaranteed GPUs" meta={guarantees.data && count(guarantees.data.results.length, "project")} right={choices.length > 0 && <New label="Guarantee GPUs" onClick={() => setGuarantee("new")} />}>
            <Loadable query={guarantees} what="The list of guarantees" skeleton={<Skeleton height={26} count={3} />}>
              {(found) => found.results.length === 0 ? <p className="empty">None of your projects is guaranteed GPUs.</p> : <Guarantees rows={found.results} may={may} onEdit={setGuarantee} />}
            </Loadable>
          </Panel>
        </After>
        {limit !== null && <LimitForm key={limit === "new" ? "" : limit.id} limit={limit === "new" ? null : limit} projects={projects} isAdmin={isAdmin} currency={session.currency} project={project} onClose={() => setLimit(null)} />}
        {guarantee !== null && <GuaranteeForm key={guarantee === "new" ? "" : guarantee.project} guarantee={guarantee === "new" ? null : guarantee} choices={choices} project={project} onClose={() => setGuarantee(null)} />}
      </div>
    </>
  );
}

const NONE: Project[] = [];

function New({ label, onClick }: { label: string; onClick: () => void }) {
  return <button type="button" className="btn sm" onClick={onClick}><Icon name="plus" size={12} />{label}</button>;
}

function Choice({ session, project, onChange }: { session: Session; project: string; onChange: (key: string) => void }) {
  return (
    <select className="in" style={{ height: 26, fontSize: 12, width: "auto", maxWidth: 180 }} aria-label="Project" value={project} onChange={(event) => onChange(event.target.value)}>
      {session.projects.map((one) => <option key={one.key} value={one.key}>{one.name}</option>)}
      {!session.projects.some((one) => one.key === project) && <option value={project}>{project}</option>}
    </select>
  );
}

function Sentence({ rows }: { rows: Limit[] }) {
  const reached = rows.filter((row) => row.reached);
  const near = rows.filter((row) => !row.reached && row.used_percent >= 80);
  if (reached.length > 0) return <h1 className="say"><b>{count(reached.length, "limit")} {reached.length === 1 ? "is" : "are"} reached</b>: {named(reached)}.</h1>;
  if (near.length > 0) return <h1 className="say"><b>Nothing is used up</b>, but more than 80 % of {named(near)}.</h1>;
  return <h1 className="say"><b>No limit is near</b>: your jobs start as far as there are GPUs.</h1>;
}

const named = (rows: Limit[]) => rows.slice(0, 3).map((row) => `${isolated(row.name)} on ${isolated(row.level)}`).join(", ") + (rows.length > 3 ? ` and ${integer(rows.length - 3)} more` : "");

function Guarantees({ rows, may, onEdit }: { rows: Guarantee[]; may: (project: string) => boolean; onEdit: (row: Guarantee) => void }) {
  const remove = useRemoveGuarantee();
  const some = rows.some((row) => may(row.project));
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Project</th><th scope="col" className="ra">Guaranteed</th><th scope="col">Of these</th><th scope="col" className="ra">Allocated</th><th scope="col" className="ra">Borrowed</th><th scope="col" className="ra">Not used</th><th scope="col" className="ra">Back within</th>{some && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.project}>
              <td className="wide" style={{ fontWeight: 500 }}>{row.project}</td>
              <td className="ra" data-l="Guaranteed">{integer(row.gpus)}</td>
              <td data-l="Of these">{row.by_type.map((part) => `${integer(part.gpus)} ${typeName(part.type)}`).join(", ") || "any type"}</td>
              <td className="ra" data-l="Held">{integer(row.used)}</td>
              <td className="ra" data-l="Borrowed">{integer(row.borrowed)}</td>
              <td className="ra" data-l="Not used">{integer(row.unused)}</td>
              <td className="ra" data-l="Back within">{duration(row.reclaim_within_s)}</td>
              {some && <td className="ra" style={{ whiteSpace: "nowrap" }}>{may(row.project) && <Actions of={`what ${row.project} is guaranteed`} onEdit={() => onEdit(row)} then="Its jobs wait in line for these GPUs like all others." remove={remove} id={row.project} />}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
