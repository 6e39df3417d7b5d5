import { Modal } from "@mantine/core";
import { useState } from "react";
import { useArray, useCancelArray, useLimitArray } from "../../api/hooks";
import type { JobArrayDetail } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { StateChip } from "../../components/StateChip";
import { count, integer, money } from "../../lib/format";
import { STATE_ORDER } from "../../lib/job/jobState";

/** An array as one: how far it is, how many may run at once, and its end. */
export function ArrayPanel({ number, onClose }: { number: string; onClose: () => void }) {
  const query = useArray(number);
  return (
    <Panel title={`Array ${number}`} meta={query.data && `${query.data.name}, indices ${query.data.indices}`} right={<button type="button" className="btn sm" onClick={onClose}>Show all jobs</button>}>
      <Loadable query={query} what="The array" skeleton={<Skeleton height={26} />}>
        {(array) => (
          <div className="pb" style={{ display: "flex", flexWrap: "wrap", gap: 16, alignItems: "center" }}>
            {STATE_ORDER.filter((state) => array.states[state]).map((state) => <span key={state}><b className="num">{integer(array.states[state] ?? 0)}</b> <StateChip state={state} /></span>)}
            <span className="sub">cost <b className="num">{money(array.cost.so_far, array.cost.currency)}</b> so far</span>
            <span style={{ marginLeft: "auto", display: "flex", gap: 8, alignItems: "center", flexWrap: "wrap" }}>
              {!array.ended && <AtOnce array={array} />}
              {!array.ended && <CancelAll array={array} />}
            </span>
          </div>
        )}
      </Loadable>
    </Panel>
  );
}

function AtOnce({ array }: { array: JobArrayDetail }) {
  const limit = useLimitArray(array.number);
  const now = array.max_running === null ? "" : String(array.max_running);
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? now;
  const wrong = text !== "" && !(Number.isInteger(Number(text)) && Number(text) >= 1 && Number(text) <= 1000);
  return (
    <form
      style={{ display: "flex", gap: 6, alignItems: "center" }}
      onSubmit={(event) => {
        event.preventDefault();
        if (!wrong) limit.mutate(text === "" ? null : Number(text), { onSuccess: () => setTyped(null) });
      }}
    >
      <label htmlFor="at-once" className="sub" style={{ margin: 0 }}>At once</label>
      <input id="at-once" className="in num" style={{ width: 76, height: 28 }} inputMode="numeric" placeholder="no limit" value={text} aria-invalid={wrong} title="1 to 1,000; empty: as many as there is room for" onChange={(event) => setTyped(event.target.value.trim())} />
      {text !== now && <button type="submit" className="btn sm" disabled={wrong || limit.isPending}>Set</button>}
      {limit.error && <span className="bad" role="alert">{limit.error.message}</span>}
    </form>
  );
}

function CancelAll({ array }: { array: JobArrayDetail }) {
  const [open, setOpen] = useState(false);
  const cancel = useCancelArray(array.number);
  const left = STATE_ORDER.filter((state) => !["succeeded", "failed", "cancelled"].includes(state)).reduce((sum, state) => sum + (array.states[state] ?? 0), 0);
  return (
    <>
      <button type="button" className="btn sm danger" onClick={() => setOpen(true)}>Cancel all</button>
      <Modal opened={open} onClose={() => setOpen(false)} title={`Cancel array ${array.number}?`} size={420} closeButtonProps={{ "aria-label": "Close" }}>
        <div style={{ display: "grid", gap: 14 }}>
          <p style={{ color: "var(--ink-2)" }}>{count(left, "job")} that have not ended are cancelled and do not start again.</p>
          {cancel.error && <div className="fault" role="alert" style={{ margin: 0 }}>{cancel.error.message}</div>}
          <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
            <button type="button" className="btn" onClick={() => setOpen(false)} data-autofocus>Keep them</button>
            <button type="button" className="btn danger" disabled={cancel.isPending} onClick={() => cancel.mutate(undefined, { onSuccess: () => setOpen(false) })}>
              {cancel.isPending ? "Cancelling" : "Cancel all"}
            </button>
          </div>
        </div>
      </Modal>
    </>
  );
}
