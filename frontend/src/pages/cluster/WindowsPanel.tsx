import { useState } from "react";
import { useRemoveWindow, useWindows } from "../../api/clusterHooks";
import type { ClusterNode, NodeWindow } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Icon } from "../../components/icons";
import { useNow } from "../../lib/clock";
import { dateTime, duration, moment, relative, typeName } from "../../lib/format";
import { WindowForm } from "./WindowForm";
import { Name } from "../../components/Name";

const CHIPS: Record<NodeWindow["state"], string> = { coming: "chip", in_force: "chip warn", over: "chip", removed: "chip" };

export function WindowsPanel({ isAdmin, nodes }: { isAdmin: boolean; nodes: ClusterNode[] }) {
  const [past, setPast] = useState(false);
  const [open, setOpen] = useState(false);
  const query = useWindows(past);
  const right = (
    <>
      <div className="seg" role="group" aria-label="Which windows">
        {[false, true].map((value) => <button key={String(value)} type="button" aria-pressed={past === value} onClick={() => setPast(value)}>{value ? "Past" : "Coming"}</button>)}
      </div>
      {isAdmin && <button type="button" className="btn sm" onClick={() => setOpen(true)}><Icon name="plus" size={12} />New window</button>}
    </>
  );
  return (
    <Panel title="Windows" meta="no job is started that would run into one" right={right}>
      <Loadable query={query} what="The list of windows" skeleton={<Skeleton height={26} count={2} />}>
        {(list) => list.length === 0 ? <p className="empty">{past ? "There were none." : "No maintenance and no reservation is to come."}</p> : (
          <div className="tw" tabIndex={0}>
            <table className="t cards">
              <thead>
                <tr>
                  <th scope="col">Window</th><th scope="col">State</th><th scope="col">Nodes</th><th scope="col" className="ra">Begins</th><th scope="col" className="ra">Lasts</th>
                  <th scope="col">For</th>{isAdmin && <th scope="col"><span className="vh">Action</span></th>}
                </tr>
              </thead>
              <tbody>{[...list].sort((a, b) => (past ? b : a).start_at.localeCompare((past ? a : b).start_at)).map((one) => <Row key={one.id} window={one} isAdmin={isAdmin} />)}</tbody>
            </table>
          </div>
        )}
      </Loadable>
      {open && <WindowForm nodes={nodes} onClose={() => setOpen(false)} />}
    </Panel>
  );
}

function whereOf(window: NodeWindow): string {
  if (window.all_nodes) return "all";
  return [...window.nodes, ...window.accelerator_types.map((type) => `all ${typeName(type)}`)].join(", ");
}

function Row({ window, isAdmin }: { window: NodeWindow; isAdmin: boolean }) {
  const remove = useRemoveWindow();
  const now = useNow(10_000);
  const start = new Date(window.start_at);
  const end = new Date(window.end_at);
  const forWhom = [...window.projects, ...window.users].join(", ");
  return (
    <tr>
      <td className="wide" style={{ fontWeight: 500 }}>{window.kind}{window.reason && <span className="sub" style={{ fontWeight: 400 }}> <Name>{window.reason}</Name></span>}</td>
      <td data-l="State"><span className={CHIPS[window.state]}>{window.state.replace("_", " ")}</span></td>
      <td data-l="Nodes" className="ell" style={{ maxWidth: 260 }} title={whereOf(window)}>{whereOf(window)}</td>
      <td className="ra" data-l="Begins" title={dateTime(start)}>{moment(start, now)}<span className="sub">{relative(start, now)}</span></td>
      <td className="ra" data-l="Lasts" title={`until ${dateTime(end)}`}>{duration((end.getTime() - start.getTime()) / 1000)}</td>
      <td data-l="For">{window.kind === "maintenance" ? <span className="sub">no one</span> : forWhom || <span className="sub">others</span>}</td>
      {isAdmin && (
        <td className="ra">
          {(window.state === "coming" || window.state === "in_force") && <button type="button" className="btn sm bad" disabled={remove.isPending} onClick={() => remove.mutate(window.id)}>{window.state === "coming" ? "Take back" : "End now"}</button>}
          {remove.error && <div className="h bad" role="alert">{remove.error.message}</div>}
        </td>
      )}
    </tr>
  );
}
