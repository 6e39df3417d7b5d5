import { useState } from "react";
import { useSearchParams } from "react-router";
import { rowsOf } from "../../api/pages";
import { useProjectPages } from "../../api/projectHooks";
import type { Project, Session } from "../../api/types";
import { Icon } from "../../components/icons";
import { More } from "../../components/More";
import { After, Loadable, Panel, SentenceWaits, Skeleton } from "../../components/Panel";
import { SearchField } from "../../components/SearchField";
import { count, integer, money, percent } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { totalsOf } from "./projectTree";
import { NewProject } from "./NewProject";
import { ProjectTable } from "./ProjectTable";

/** The tree of projects that one may see. What is searched for lives in the address. */
export default function ProjectsPage({ session }: { session: Session }) {
  const [params, setParams] = useSearchParams();
  const search = params.get("search") ?? "";
  const [making, setMaking] = useState(false);
  const [archived, setArchived] = useState(false);
  const isAdmin = session.user?.is_admin ?? false;
  const all = useProjectPages({ search: "", archived: false });
  const found = useProjectPages({ search, archived: false });
  const old = useProjectPages({ search, archived: true }, archived);
  const known = all.data ? rowsOf(all.data) : [];
  const places = known.filter((one) => one.role === "manager");
  return (
    <>
      <TopBar title="Projects" />
      <div className="page">
        {all.data ? <Sentence rows={known} more={all.hasNextPage} gpus={session.cluster.gpus} currency={session.currency} isAdmin={isAdmin} /> : <SentenceWaits />}
        <Panel
          title="Projects" meta={found.data && shownOf(rowsOf(found.data).length, found.hasNextPage)}
          right={
            <>
              <SearchField label="Name or key" value={search} onChange={(text) => setParams(text ? { search: text } : {}, { replace: true })} />
              {(isAdmin || places.length > 0) && <button type="button" className="btn sm" onClick={() => setMaking(true)}><Icon name="plus" size={12} />New project</button>}
            </>
          }
        >
          <Loadable query={found} what="The list of projects" skeleton={<Skeleton height={26} count={6} />}>
            {(data) => <Found rows={rowsOf(data)} search={search} currency={session.currency} none={isAdmin ? "There are no projects yet." : "You are in no project yet: a manager of a project can invite you."} />}
          </Loadable>
          <More query={found} label="More projects" />
        </Panel>
        <After until={[all, found]}>
          <Panel title="Archived" meta="read only; what was in them stays" right={<button type="button" className="btn sm" aria-expanded={archived} onClick={() => setArchived(!archived)}>{archived ? "Hide" : "Show"}</button>}>
            {archived && (
              <Loadable query={old} what="The list of archived projects" skeleton={<Skeleton height={26} count={2} />}>
                {(data) => <Found rows={rowsOf(data)} search={search} currency={session.currency} none="None is archived." />}
              </Loadable>
            )}
            {archived && <More query={old} label="More projects" />}
          </Panel>
        </After>
        {making && <NewProject places={places} isAdmin={isAdmin} onClose={() => setMaking(false)} />}
      </div>
    </>
  );
}

const shownOf = (rows: number, more: boolean) => (more ? `the first ${integer(rows)}` : count(rows, "project"));

function Found({ rows, search, currency, none }: { rows: Project[]; search: string; currency: string; none: string }) {
  if (rows.length === 0) return <p className="empty">{search ? `No project has “${search}” in its name or key.` : none}</p>;
  return <ProjectTable rows={rows} currency={currency} />;
}

interface SentenceProps {
  rows: Project[];
  more: boolean;
  gpus: number;
  currency: string;
  isAdmin: boolean;
}

/** What they hold and spend together, against what they may. */
function Sentence({ rows, more, gpus, currency, isAdmin }: SentenceProps) {
  if (rows.length === 0) return <h1 className="say"><b>{isAdmin ? "There is no project yet" : "You are in no project yet"}</b>, so no job can be submitted.</h1>;
  const totals = totalsOf(rows);
  const many = more ? `more than ${integer(rows.length)} projects` : count(rows.length, "project");
  const lead = isAdmin ? `There ${rows.length === 1 ? "is" : "are"} ${many}` : `You are in ${many}`;
  const together = rows.length === 1 ? "it has" : more ? `the first ${integer(rows.length)} have` : "together they have";
  return (
    <h1 className="say">
      <b>{lead}</b>; {together} {integer(totals.gpus)} of {count(gpus, "GPU")} and spent {money(totals.spent, currency)} this month
      {totals.share !== null && <>, <b>{percent(totals.share)}</b> of {rows.length === 1 ? "the budget" : "their budgets"}</>}.
    </h1>
  );
}
