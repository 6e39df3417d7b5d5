import { useState } from "react";
import { useCheckNode, useUseAnyway } from "../../api/clusterHooks";
import type { ClusterNode, NodeCheck } from "../../api/types";
import { NodeLink } from "../../components/NodeLink";
import { Panel } from "../../components/Panel";
import { useNow } from "../../lib/clock";
import { count, dateTime } from "../../lib/format";
import { checkSentence, inOrder, nodesToCheck, WITHHELD_WORDS } from "./nodeChecks";

const AT_ONCE = 20;

/** Nodes whose check keeps them from work, is under way, or was waived; nothing where there are none. */
export function ChecksPanel({ nodes, isAdmin }: { nodes: ClusterNode[]; isAdmin: boolean }) {
  const [shown, setShown] = useState(AT_ONCE);
  const found = nodesToCheck(nodes);
  if (found.length === 0) return null;
  return (
    <Panel title="Checks" meta={count(found.length, "node")}>
      <ul className="list">
        {found.slice(0, shown).map((node) => (
          <li key={node.name} style={{ borderTop: "1px solid var(--line)" }}>
            <div style={{ padding: "8px 14px 0", fontWeight: 500 }}><NodeLink name={node.name} /></div>
            <Check node={node} isAdmin={isAdmin} />
          </li>
        ))}
      </ul>
      {found.length > shown && <button type="button" className="more" style={{ padding: 8 }} onClick={() => setShown(shown + AT_ONCE)}>More nodes</button>}
    </Panel>
  );
}

/** The last check of one node, item by item. */
export function CheckPanel({ node, isAdmin }: { node: ClusterNode; isAdmin: boolean }) {
  const at = node.check.last?.ended_at;
  return <Panel title="Check" meta={at ? dateTime(new Date(at)) : undefined}><Check node={node} isAdmin={isAdmin} /></Panel>;
}

function Check({ node, isAdmin }: { node: ClusterNode; isAdmin: boolean }) {
  const now = useNow(10_000);
  const check = useCheckNode();
  const anyway = useUseAnyway();
  const { state, open, last } = node.check;
  const error = check.error ?? anyway.error;
  return (
    <div style={{ padding: "8px 14px" }}>
      <div style={{ display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
        {state && <WithheldMark state={state} />}
        <span className="sub" style={{ margin: 0, flex: 1, minWidth: 160 }}>{checkSentence(node.check, now)}</span>
        {isAdmin && (
          <span style={{ display: "flex", gap: 8 }}>
            {state && <button type="button" className="btn sm" title="Give it work whatever its check says" disabled={anyway.isPending} onClick={() => anyway.mutate(node.name)}>Use anyway</button>}
            <button type="button" className="btn sm" title="Jobs there keep running" disabled={check.isPending || open !== null || node.lost} onClick={() => check.mutate(node.name)}>Check now</button>
          </span>
        )}
      </div>
      {error && <div className="fault" role="alert" style={{ margin: "6px 0 0" }}>{error.message}</div>}
      {last && last.items.length > 0 && <Items items={last.items} />}
    </div>
  );
}

function Items({ items }: { items: NodeCheck["items"] }) {
  const marks = { passed: "good", failed: "bad", unknown: "o" };
  const words = { passed: "passed", failed: "failed", unknown: "not known" };
  return (
    <ul className="list" style={{ marginTop: 6 }} aria-label="What the last check found">
      {inOrder(items).map((item) => (
        <li key={item.subject} style={{ display: "flex", gap: "2px 8px", alignItems: "baseline", flexWrap: "wrap", padding: "3px 0", fontSize: 12, lineHeight: "18px" }}>
          <span className={`chip ${marks[item.result]}`}>{words[item.result]}</span>
          <b style={{ fontWeight: 500 }}>{item.subject}</b>
          <span style={{ overflowWrap: "anywhere" }}>{item.seen}</span>
          {item.fix && <span className="sub" style={{ margin: 0, flexBasis: "100%", overflowWrap: "anywhere" }}>To do: {item.fix}</span>}
        </li>
      ))}
    </ul>
  );
}

export function WithheldMark({ state }: { state: "checking" | "failed" }) {
  return <span className={`chip ${state === "failed" ? "bad" : "warn"}`} title="Nothing new starts there until its check has passed">{WITHHELD_WORDS[state]}</span>;
}
