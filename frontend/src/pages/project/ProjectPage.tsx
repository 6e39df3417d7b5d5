import { Link, useParams } from "react-router";
import { ApiError } from "../../api/client";
import { useLimits } from "../../api/limitHooks";
import { useProject } from "../../api/projectHooks";
import type { ProjectDetail, Session } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { count, integer, money, percent } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { LimitsTable } from "../../components/LimitsTable";
import { AccountsPanel } from "./AccountsPanel";
import { InvitationsPanel } from "./InvitationsPanel";
import { MembersPanel } from "./MembersPanel";
import { SecretsPanel } from "./SecretsPanel";
import { SettingsPanel } from "./SettingsPanel";
import { SpendPanel } from "./SpendPanel";
import { StoragePanel } from "./StoragePanel";
import { Name } from "../../components/Name";
import { isolated } from "../../lib/isolated";

export default function ProjectPage({ session }: { session: Session }) {
  const { key = "" } = useParams();
  return <Found key={key} name={key} session={session} />;
}

function Found({ name, session }: { name: string; session: Session }) {
  const query = useProject(name);
  if (query.error instanceof ApiError && query.error.status === 404 && !query.data) return <Missing name={name} />;
  return (
    <>
      <TopBar title={query.data?.name ?? name} crumb={<><Link to="/projects">Projects</Link><i>/</i><bdi>{query.data?.name ?? name}</bdi></>} />
      <div className="page">
        <Loadable query={query} what="The project" skeleton={<Skeleton height={34} count={4} />}>
          {(project) => <Whole project={project} session={session} />}
        </Loadable>
      </div>
    </>
  );
}

function Missing({ name }: { name: string }) {
  return (
    <>
      <TopBar title="No such project" />
      <div className="page">
        <h1 className="say"><b>There is no project <Name>{name}</Name></b>, or you are not in it. <Link className="link" to="/projects">Your projects</Link></h1>
      </div>
    </>
  );
}

function Whole({ project, session }: { project: ProjectDetail; session: Session }) {
  const manages = project.role === "manager";
  const isAdmin = session.user?.is_admin ?? false;
  const changes = manages && project.archived_at === null;
  return (
    <>
      <Header project={project} isAdmin={isAdmin} />
      <Sentence project={project} currency={session.currency} />
      <MembersPanel project={project} manages={changes} email={session.user?.email ?? ""} />
      {manages && <InvitationsPanel project={project} manages={changes} />}
      {manages && <AccountsPanel project={project} manages={changes} />}
      <LimitsPanel project={project} currency={session.currency} />
      <SpendPanel project={project} email={session.user?.email ?? ""} />
      {project.role !== "viewer" && project.archived_at === null && <SecretsPanel project={project} manages={changes} />}
      <StoragePanel project={project} />
      {manages && <SettingsPanel key={project.archived_at} project={project} isAdmin={isAdmin} />}
    </>
  );
}

function Header({ project, isAdmin }: { project: ProjectDetail; isAdmin: boolean }) {
  const from = project.inherited_from === null ? (isAdmin ? "as an administrator" : "") : `from ${isolated(project.path.find((one) => one.key === project.inherited_from)?.name ?? project.inherited_from)}`;
  return (
    <div style={{ display: "grid", gap: 2 }}>
      <div className="title">
        <span><Name>{project.name}</Name></span><span className="num mono" style={{ fontSize: 13 }}>{project.key}</span>
        {project.archived_at !== null && <span className="chip warn">archived</span>}
      </div>
      <div className="facts">
        <span>Your role <b>{project.role}</b>{from && ` ${from}`}</span>
        {project.path.length > 0 && (
          <nav aria-label="Above this project">In {project.path.map((one, i) => <span key={one.key}>{i > 0 && " / "}<Link className="link" to={`/projects/${one.key}`}><Name>{one.name}</Name></Link></span>)}</nav>
        )}
      </div>
    </div>
  );
}

function Sentence({ project, currency }: { project: ProjectDetail; currency: string }) {
  const all = project.with_below;
  const budget = Number(project.budget_month ?? 0);
  const gpus = project.gpu_limit === null ? count(all.gpus_allocated, "GPU") : `${integer(all.gpus_allocated)} of ${count(project.gpu_limit, "GPU")}`;
  if (project.archived_at !== null) return <h1 className="say"><b><Name>{project.name}</Name> is archived</b>: what was in it can be read, nothing new is taken in. It spent {money(all.spend_month, currency)} this month.</h1>;
  return (
    <h1 className="say">
      <b><Name>{project.name}</Name> has {gpus}</b>; {count(all.jobs_running, "job")} {all.jobs_running === 1 ? "runs" : "run"} and {integer(all.jobs_queued)} {all.jobs_queued === 1 ? "waits" : "wait"}.
      {" "}It spent {money(all.spend_month, currency)} this month{budget > 0 && <>, <b>{percent(Number(all.spend_month) / budget)}</b> of its budget of {money(budget, currency)}</>}.
    </h1>
  );
}

function LimitsPanel({ project, currency }: { project: ProjectDetail; currency: string }) {
  const limits = useLimits(project.key);
  return (
    <Panel title="Limits" meta="that bind your jobs here, those from above too" right={<Link className="btn sm" to={`/limits?project=${encodeURIComponent(project.key)}`}>Limits and guarantees</Link>}>
      <Loadable query={limits} what="The list of limits" skeleton={<Skeleton height={26} count={2} />}>
        {(found) => found.results.length === 0 ? <p className="empty">Nothing limits your jobs in this project.</p> : <LimitsTable rows={found.results} more={found.more && "evenkeel limit show"} currency={currency} />}
      </Loadable>
    </Panel>
  );
}
