import { useState, type ReactNode } from "react";
import { ApiError } from "../api/client";
import { useForeseen, useWhatIf } from "../api/whatIfHooks";
import type { ForeseenOption, WhatIf, WhatIfOption } from "../api/types";
import { useNow } from "../lib/clock";
import { duration, gangWords, moment, momentRange, money } from "../lib/format";
import { Panel, Skeleton } from "./Panel";
import { Text } from "./TextField";
import { sentenceOf } from "../lib/isolated";

interface Props {
  /** A job's number, or the file of one that is not submitted. */
  of: number | Record<string, unknown>;
  disabled?: boolean;
}

/** What a job would take and cost, and when it would start and end, with other GPUs. */
export function WhatIfPanel({ of, disabled = false }: Props) {
  const [gpus, setGpus] = useState("1, 2, 4, 8");
  const ask = useWhatIf();
  const foreseen = useForeseen(ask.data?.what_if ?? null);
  const wrong = ask.error instanceof ApiError ? ask.error.errors.find((error) => error.field.startsWith("gpus"))?.message : undefined;
  const counts = gpus.split(",").map((part) => part.trim()).filter((part) => part !== "");
  return (
    <Panel title="What if…" meta="it had other GPUs, or another type">
      {/* Enter in the field asks; on the page to submit a job this stands beside its form, not in it. */}
      <form noValidate style={{ display: "flex", gap: 12, alignItems: "flex-end", flexWrap: "wrap", padding: 14 }} onSubmit={(event) => { event.preventDefault(); ask.mutate({ of, gpus: counts }); }}>
        <Text label="Numbers of GPUs" value={gpus} onChange={setGpus} error={wrong} />
        <button type="submit" className="btn" disabled={disabled || ask.isPending || counts.length === 0}>{ask.isPending ? "Asking" : "Compare"}</button>
      </form>
      {ask.error && !wrong && <div className="fault" role="alert">{ask.error.message}</div>}
      {ask.data && <Table said={ask.data} foreseen={foreseen.data?.options ?? null} pending={foreseen.isFetching} failed={foreseen.error} />}
    </Panel>
  );
}

interface TableProps { said: WhatIf; foreseen: ForeseenOption[] | null; pending: boolean; failed: Error | null }

function Table({ said, foreseen, pending, failed }: TableProps) {
  const of = (option: WhatIfOption) => foreseen?.find((one) => one.type === option.type && one.gpus === option.gpus);
  return (
    <>
      {said.running && <p className="pb sub">Of what is left of it. It would leave its GPUs with a checkpoint and queue for these.</p>}
      {failed && <div className="fault" role="alert">{failed.message}</div>}
      <div className="tw" tabIndex={0} aria-busy={pending}>
        <table className="t cards">
          <thead><tr><th scope="col">GPUs</th><th scope="col" className="ra">Starts</th><th scope="col" className="ra">Ends</th><th scope="col" className="ra">Costs</th></tr></thead>
          <tbody>{said.options.map((option) => <Row key={`${option.type}/${option.gpus}`} option={option} found={of(option)} pending={pending} currency={said.currency} />)}</tbody>
        </table>
      </div>
    </>
  );
}

function Row({ option, found, pending, currency }: { option: WhatIfOption; found: ForeseenOption | undefined; pending: boolean; currency: string }) {
  const words = gangWords({ type: option.type, count: option.gpus });
  const why = option.barred[0] ?? (option.duration_s === null ? "Its speed there is not known." : null);
  if (why !== null) {
    return <tr><td className="wide">{words}</td><td colSpan={3} className="sub" style={{ whiteSpace: "normal" }}>{why}</td></tr>;
  }
  return (
    <tr title={option.basis ?? undefined}>
      <td className="wide">{words}<Under>{duration(option.duration_s ?? 0)} long</Under>{option.waits_for.length > 0 && <Under>{option.waits_for[0]}</Under>}</td>
      <td className="ra whole" data-l="Starts">{found ? <Start found={found} /> : pending ? <Skeleton height={16} width={70} /> : "–"}</td>
      <td className="ra whole" data-l="Ends">{found?.end ? <When at={found.end.at} low={found.end.low_at} high={found.end.high_at} /> : pending && !found ? <Skeleton height={16} width={70} /> : "–"}</td>
      <td className="ra" data-l="Costs"><span title={`${money(option.low ?? 0, currency)} to ${money(option.high ?? 0, currency)}`}>{money(option.amount ?? 0, currency)}</span></td>
    </tr>
  );
}

/** On a line of its own: the panel is narrow. */
const Under = ({ children }: { children: ReactNode }) => <span className="sub" style={{ display: "block", margin: 0, whiteSpace: "normal" }}>{children}</span>;

function Start({ found }: { found: ForeseenOption }) {
  const { p10_at: low, p50_at: at, p90_at: high, reason } = found.start;
  if (!low || !at || !high) return <span className="sub" style={{ whiteSpace: "normal" }}>{reason ? sentenceOf(reason.text) : "not foreseen"}</span>;
  return <When at={at} low={low} high={high} />;
}

function When({ at, low, high }: { at: string; low: string; high: string }) {
  const now = useNow();
  return <>{moment(new Date(at), now)}<Under>{momentRange(new Date(low), new Date(high), now)}</Under></>;
}
