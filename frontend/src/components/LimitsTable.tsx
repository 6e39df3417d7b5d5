import { useState } from "react";
import { useRemoveLimit } from "../api/limitHooks";
import type { Limit } from "../api/types";
import { AskDialog } from "./AskDialog";
import { UsedBar } from "./UsedBar";
import { useNow } from "../lib/clock";
import { integer, moment, money, trimmed, withUnit } from "../lib/format";
import { Name } from "./Name";
import { isolated, sentenceOf } from "../lib/isolated";

/** What happens where it is reached. */
function consequence(row: Limit): string {
  if (!row.hard) return "jobs wait";
  return row.period === null ? "refuses jobs" : "suspends jobs";
}

/** An amount of what it limits. */
export function shown(row: Limit, amount: string, currency: string): string {
  if (row.kind === "money") return money(amount, currency);
  return row.period === null ? integer(Number(amount)) : withUnit(trimmed(Number(amount)), "h");
}

interface LimitsProps {
  rows: Limit[];
  /** The command that lists the rest. */
  more: string | false;
  currency: string;
  onEdit?: (row: Limit) => void;
}

export function LimitsTable({ rows, more, currency, onEdit }: LimitsProps) {
  const now = useNow();
  const remove = useRemoveLimit();
  return (
    <div className="tw" tabIndex={0}>
      <table className="t cards">
        <thead><tr><th scope="col">Limit</th><th scope="col">Level</th><th scope="col" className="ra">Used</th><th scope="col" className="ra">Of</th><th scope="col" style={{ width: 150 }}>Part used</th><th scope="col">When reached</th><th scope="col">Told</th><th scope="col" className="ra">Period ends</th>{onEdit && <th scope="col"><span className="vh">Action</span></th>}</tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td className="wide" style={{ fontWeight: 500 }}><Name>{row.name}</Name></td>
              <td data-l="Level" className="whole"><Name>{sentenceOf(row.level)}</Name></td>
              <td className="ra" data-l="Used">{shown(row, row.used, currency)}</td>
              <td className="ra" data-l="Of">{shown(row, row.limit, currency)}</td>
              <td data-l="Part used"><UsedBar percent={row.used_percent} bad={row.reached} /></td>
              <td data-l="When reached">{consequence(row)}</td>
              <td data-l="Told">{told(row, now)}</td>
              <td className="ra" data-l="Period ends">{row.period_ends_at === null ? "–" : moment(new Date(row.period_ends_at), now)}</td>
              {onEdit && <td className="ra" style={{ whiteSpace: "nowrap" }}><Actions of={`${isolated(row.name)} on ${isolated(row.level)}`} onEdit={() => onEdit(row)} then={then(row)} remove={remove} id={row.id} /></td>}
            </tr>
          ))}
        </tbody>
      </table>
      {more && <p className="empty">There are more; the command {more} lists them.</p>}
    </div>
  );
}

function told(row: Limit, now: Date): string {
  if (row.reached_at !== null) return `100 % at ${moment(new Date(row.reached_at), now)}`;
  return row.warned_at === null ? "–" : `80 % at ${moment(new Date(row.warned_at), now)}`;
}

/** What follows when it is gone. */
function then(row: Limit): string {
  if (row.period !== null) return row.hard ? "Jobs that it suspended or refuses may run again, and spend without it." : "Jobs that wait for it may start, and spend without it.";
  return row.hard ? "Jobs that it refuses are taken again." : "Jobs that wait for it may start in the next round.";
}

interface ActionsProps<Id> {
  of: string;
  /** What follows from removing it. */
  then: string;
  id: Id;
  remove: { mutate: (id: Id, on: { onSuccess: () => void }) => void; error: Error | null; isPending: boolean; reset: () => void };
  onEdit: () => void;
}

export function Actions<Id>({ of, then, id, remove, onEdit }: ActionsProps<Id>) {
  const [asking, setAsking] = useState(false);
  const close = () => { setAsking(false); remove.reset(); };
  return (
    <>
      <button type="button" className="btn sm" aria-label={`Change ${of}`} onClick={onEdit}>Change</button>{" "}
      <button type="button" className="btn sm bad" aria-label={`Remove ${of}`} onClick={() => setAsking(true)}>Remove</button>
      {asking && (
        <AskDialog title={`Remove ${of}?`} keep="Keep it" action="Remove it" error={remove.error} busy={remove.isPending} onDo={() => remove.mutate(id, { onSuccess: close })} onClose={close}>
          {then}
        </AskDialog>
      )}
    </>
  );
}
