import { useState } from "react";
import { useChangeDestination, useTestDestination } from "../../api/noticeHooks";
import type { Destination, NoticeKind } from "../../api/types";
import { useNow } from "../../lib/clock";
import { duration } from "../../lib/format";
import { healthOf, NOTICE_KINDS, scopeOf, testResult } from "./notices";
import { Deliveries } from "./Deliveries";
import { Name } from "../../components/Name";
import { isolated, sentenceOf } from "../../lib/isolated";

interface Props {
  row: Destination;
  onEdit: () => void;
  onRotate: () => void;
  onRemove: () => void;
}

const KIND: Record<Destination["kind"], string> = { webhook: "Webhook", slack: "Chat", email: "E-mail" };

/** One destination, what a test of it brought, and its log where that is open. */
export function DestinationRow({ row, onEdit, onRotate, onRemove }: Props) {
  const now = useNow(10_000);
  const test = useTestDestination();
  const change = useChangeDestination();
  const [open, setOpen] = useState(false);
  const health = healthOf(row, now);
  const tells = row.events.map((kind) => wordsOf(kind, row)).join(", ");
  const fault = test.error ?? change.error;
  return (
    <>
      <tr>
        <td className="wide" style={{ fontWeight: 500 }}><Name>{row.name}</Name><span className="sub" style={{ fontWeight: 400 }}>{KIND[row.kind]}</span></td>
        <td data-l="Address" className="whole" style={{ maxWidth: 220 }} title={row.address}><Name>{row.address}</Name></td>
        <td data-l="Tells when" className="ell whole" style={{ maxWidth: 260 }} title={`${tells}: ${scopeOf(row)}`}>{tells}<span className="sub">{scopeOf(row)}</span></td>
        <td data-l="State" className="whole"><span className={health.chip}>{health.word}</span>{row.enabled && health.why && <span className="sub">{health.why}</span>}</td>
        <td className="ra whole" style={{ whiteSpace: "nowrap" }}>
          <span style={{ display: "inline-flex", gap: 4, flexWrap: "wrap", justifyContent: "flex-end" }}>
            <button type="button" className="btn sm" disabled={test.isPending} aria-label={`Test ${isolated(row.name)}`} onClick={() => test.mutate(row.id)}>{test.isPending ? "Testing" : "Test"}</button>
            <button type="button" className="btn sm" aria-expanded={open} aria-label={`Log of ${isolated(row.name)}`} onClick={() => setOpen(!open)}>Log</button>
            <button type="button" className="btn sm" aria-label={`Change ${isolated(row.name)}`} onClick={onEdit}>Change</button>
            {row.kind === "webhook" && <button type="button" className="btn sm" title="The one before signs too for a day" aria-label={`New secret for ${isolated(row.name)}`} onClick={onRotate}>New secret</button>}
            <button type="button" className="btn sm" disabled={change.isPending} aria-label={`Turn ${isolated(row.name)} ${row.enabled ? "off" : "on"}`} onClick={() => change.mutate({ id: row.id, enabled: !row.enabled })}>{row.enabled ? "Turn off" : "Turn on"}</button>
            <button type="button" className="btn sm bad" aria-label={`Remove ${isolated(row.name)}`} onClick={onRemove}>Remove</button>
          </span>
        </td>
      </tr>
      {(!row.enabled && row.disabled_why !== "") && <Said text={`Turned off: ${row.disabled_why}`} bad />}
      {test.data && !test.isPending && <Said text={`Test: ${testResult(test.data)}`} bad={test.data.status !== "delivered"} />}
      {fault && <Said text={fault.message} bad />}
      {open && <tr><td className="whole" colSpan={5} style={{ height: "auto", whiteSpace: "normal" }}><Deliveries id={row.id} now={now} canSend={row.enabled} /></td></tr>}
    </>
  );
}

function wordsOf(kind: NoticeKind, row: Destination): string {
  return kind === "job.waiting" ? `it waits for ${duration(row.waiting_minutes * 60)}` : NOTICE_KINDS[kind];
}

function Said({ text, bad }: { text: string; bad: boolean }) {
  return (
    <tr>
      <td className="whole" colSpan={5} role={bad ? "alert" : "status"} style={{ whiteSpace: "normal", textAlign: "left", overflowWrap: "anywhere", color: bad ? "var(--bad)" : "var(--ink-2)", fontSize: 12 }}>{sentenceOf(text)}</td>
    </tr>
  );
}
