import { useState } from "react";
import { usePromote, useProposal, type Source } from "../../api/rolloutHooks";
import type { RolloutDetail, RolloutProposal } from "../../api/types";
import { FormDialog } from "../../components/FormDialog";
import { Text } from "../../components/TextField";
import { problemsOf } from "../../lib/problem";
import { isolated } from "../../lib/isolated";
import { FIELDS, guardOf, indicator, INDICATORS, textsOf, type BoundTexts } from "./rolloutWords";

interface Props {
  label: string;
  source: Source;
  onDone: (made: RolloutDetail) => void;
  onClose: () => void;
}

const LABELS: Record<keyof BoundTexts, string> = {
  wait_p95_s: "p95 wait, at most (minutes)", slowdown_variance: "Variance of slowdown, at most", utilisation: "Utilisation while jobs wait, at least (%)",
};
const LEAST_S = 60;

/** Before a policy is put in force: for how long it is watched, and what brings the one before it back. */
export function PromoteDialog({ label, source, onDone, onClose }: Props) {
  const [hours, setHours] = useState("24");
  const [jobs, setJobs] = useState("10");
  const [edited, setEdited] = useState<Partial<BoundTexts>>({});
  const guardS = Math.round(Number(hours) * 3_600);
  const query = useProposal(source, Number.isFinite(guardS) && guardS >= LEAST_S && guardS <= 14 * 86_400 ? guardS : 86_400);
  const promote = usePromote();
  const proposal = query.data?.proposal;
  const texts = { ...(proposal ? textsOf(proposal.limits) : { wait_p95_s: "", slowdown_variance: "", utilisation: "" }), ...edited };
  const said = problemsOf(promote.error && { message: promote.error.message, errors: ("errors" in promote.error ? (promote.error.errors as { field: string; message: string }[]) : []).map((one) => ({ ...one, field: FIELDS[one.field] ?? one.field })) }, ["guard_s", "least_jobs", ...Object.keys(texts)]);
  const submit = () => promote.mutate({ source, guard: guardOf(hours, jobs, texts), tag: query.data?.tag ?? "" }, { onSuccess: onDone });
  return (
    <FormDialog title={`Promote ${isolated(label)}`} action="Put in force under guard" fault={said.rest ?? query.error?.message ?? null} busy={promote.isPending || !query.data || query.isPlaceholderData} onSubmit={submit} onClose={onClose}>
      <p className="sub" style={{ flexBasis: "100%", margin: 0 }}>
        It decides from the next round on. If one of the bounds is broken in that time{proposal ? <>, <b className="mono">{proposal.policy}</b> comes back by itself with its parameters</> : null}. An empty bound is not watched.
      </p>
      <Text label="Watch it for (hours)" decimal required value={hours} onChange={setHours} error={said.at.guard_s} />
      <Text label="Judge from so many jobs on" number required value={jobs} onChange={setJobs} error={said.at.least_jobs} />
      <div style={{ flexBasis: "100%", display: "grid", gap: 10 }}>
        {INDICATORS.map(({ key }) => (
          <div key={key} style={{ display: "grid", gap: 2 }}>
            <Text label={LABELS[key]} decimal placeholder="not watched" value={texts[key]} onChange={(value) => setEdited((old) => ({ ...old, [key]: value }))} error={said.at[key]} />
            <span className="sub">{proposal ? basis(proposal, key) : "…"}</span>
          </div>
        ))}
      </div>
    </FormDialog>
  );
}

/** Where the value that is offered comes from. */
function basis({ prediction, before }: RolloutProposal, key: keyof BoundTexts): string {
  const predicted = prediction?.[key] ?? null;
  const was = `in as long a time before now: ${indicator(key, before[key])}`;
  if (predicted === null && before[key] === null) return "Neither predicted nor measured before: without a value of your own it is not watched.";
  if (predicted === null) return `Not predicted; ${was}.`;
  return `Predicted: ${indicator(key, predicted)}; ${was}.`;
}
