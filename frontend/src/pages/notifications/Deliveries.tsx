import { LOG_LINES, useDeliveries, useSendAgain } from "../../api/noticeHooks";
import type { NoticeDelivery } from "../../api/types";
import { Loadable, Skeleton } from "../../components/Panel";
import { count, dateTime, moment, relative } from "../../lib/format";
import { statusOf } from "./notices";

interface Props {
  id: number;
  now: Date;
  canSend: boolean;
}

/** What was sent to a destination, newest first. */
export function Deliveries({ id, now, canSend }: Props) {
  const query = useDeliveries(id);
  const again = useSendAgain();
  return (
    <div style={{ padding: "4px 0 10px" }}>
      {again.error && <div className="fault" role="alert" style={{ margin: "0 0 8px" }}>{again.error.message}</div>}
      <Loadable query={query} what="The log of deliveries" skeleton={<Skeleton height={22} count={3} />}>
        {(page) => page.results.length === 0 ? <p className="sub">Nothing was sent yet.</p> : (
          <ul className="list" style={{ maxHeight: 320, overflowY: "auto" }} tabIndex={0} aria-label="Log of deliveries">
            {page.results.map((line) => <Line key={line.id} line={line} now={now} onAgain={canSend ? () => again.mutate(line.id) : null} busy={again.isPending} />)}
            {page.next && <li className="sub" style={{ padding: "6px 0" }}>The newest {LOG_LINES} are shown.</li>}
          </ul>
        )}
      </Loadable>
    </div>
  );
}

function Line({ line, now, onAgain, busy }: { line: NoticeDelivery; now: Date; onAgain: (() => void) | null; busy: boolean }) {
  const status = statusOf(line);
  const at = new Date(line.created_at);
  const next = line.status === "waiting" && line.next_attempt_at ? `next ${relative(new Date(line.next_attempt_at), now)}` : "";
  const facts = [line.attempts > 0 && count(line.attempts, "attempt"), line.answer_code !== null && `answer ${line.answer_code}`, next].filter(Boolean);
  return (
    <li style={{ display: "flex", flexWrap: "wrap", gap: "2px 10px", alignItems: "baseline", padding: "6px 0", borderTop: "1px solid var(--line)", fontSize: 12, lineHeight: "18px" }}>
      <time className="sub num" dateTime={line.created_at} title={dateTime(at)}>{moment(at, now)}</time>
      <span className={status.chip}>{status.word}</span>
      <span style={{ flex: "1 1 260px", minWidth: 0, overflowWrap: "anywhere", textAlign: "left" }}>
        {line.text}
        {line.error && <span style={{ display: "block", color: "var(--bad)" }}>{line.error}{line.answer && ` It said: ${line.answer}`}</span>}
      </span>
      <span className="sub">{facts.join(", ")}</span>
      {line.status === "given_up" && onAgain && line.event !== "test" && <button type="button" className="btn sm" disabled={busy} aria-label={`Send again: ${line.text}`} onClick={onAgain}>Send again</button>}
    </li>
  );
}
