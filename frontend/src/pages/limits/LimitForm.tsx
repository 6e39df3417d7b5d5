import { Modal } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useAcceleratorTypes } from "../../api/hooks";
import { useAddLimit, useChangeLimit } from "../../api/limitHooks";
import type { Limit, Project } from "../../api/types";
import { Choice, Text } from "../../components/TextField";
import { typeName } from "../../lib/format";
import { isolated } from "../../lib/isolated";
import { mayLimit } from "./managing";

interface Props {
  limit: Limit | null;
  projects: Project[];
  isAdmin: boolean;
  currency: string;
  project: string;
  onClose: () => void;
}

const periodic = (kind: Limit["kind"]) => kind === "gpu_hours" || kind === "money";

/** A new limit, or another amount of one that is there: what it counts, and whom, stays. */
export function LimitForm({ limit, projects, isAdmin, currency, project, onClose }: Props) {
  const add = useAddLimit();
  const change = useChangeLimit();
  const types = useAcceleratorTypes();
  const managed = projects.filter((one) => one.role === "manager" && one.archived_at === null);
  const [kind, setKind] = useState<Limit["kind"]>(limit?.kind ?? "gpus");
  const [type, setType] = useState(limit?.accelerator_type ?? "");
  const [period, setPeriod] = useState<NonNullable<Limit["period"]>>(limit?.period ?? "month");
  const [chosen, setWhere] = useState<string | null>(limit ? (limit.project ?? "") : null);
  const where = chosen ?? (managed.some((one) => one.key === project) ? project : (managed[0]?.key ?? "")); // projects may be on their way
  const [user, setUser] = useState(limit?.user ?? "");
  const [amount, setAmount] = useState(limit?.limit ?? "");
  const [hard, setHard] = useState(limit?.hard ?? false);
  const fixed = limit !== null;
  const error = add.error ?? change.error;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (limit) {
      change.mutate({ id: limit.id, limit: amount, hard }, { onSuccess: onClose });
      return;
    }
    const of = { accelerator_type: kind === "gpus" && type !== "" ? type : null, period: periodic(kind) ? period : null };
    add.mutate({ project: where || null, user: user.trim() || null, kind, ...of, limit: amount, hard }, { onSuccess: onClose });
  };
  const places: [string, string][] = managed.map((one) => [one.key, one.name]);
  if (isAdmin) places.push(["", "no project: a person's jobs everywhere"]);
  if (!places.some(([key]) => key === where)) places.push([where, where || "no project"]);
  const kinds: [string, string][] = [["", "all types together"], ...(types.data ?? []).map((one): [string, string] => [one.name, typeName(one.name)])];
  if (!kinds.some(([name]) => name === type)) kinds.push([type, typeName(type)]);
  const oneOnly = !fixed && (where === "" || (!isAdmin && !mayLimit(where, projects)));
  return (
    <Modal opened onClose={onClose} title={limit ? `Change ${isolated(limit.name)} on ${isolated(limit.level)}` : "New limit"} size={560} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-end" }}>
        <Choice
          label="Limits" value={kind} disabled={fixed} onChange={(value) => setKind(value as Limit["kind"])}
          options={[["gpus", "GPUs at once"], ["running_jobs", "running jobs"], ["queued_jobs", "waiting jobs"], ["gpu_hours", "GPU-hours"], ["money", `money, in ${currency}`]]}
        />
        {kind === "gpus" && <Choice label="Accelerator type" value={type} disabled={fixed} onChange={setType} options={kinds} />}
        {periodic(kind) && <Choice label="Per" value={period} disabled={fixed} onChange={(value) => setPeriod(value as typeof period)} options={[["day", "day"], ["week", "week"], ["month", "month"]]} />}
        <Text label="At most" value={amount} onChange={setAmount} number={!periodic(kind)} decimal={periodic(kind)} required />
        <Choice label="Of project" value={where} disabled={fixed} onChange={setWhere} options={places} />
        <Text label="Of one person" value={user} disabled={fixed} onChange={setUser} placeholder={oneOnly ? "ada@example.org" : "all users there together"} required={oneOnly} />
        <label style={{ display: "flex", gap: 6, alignItems: "center", flexBasis: "100%" }}>
          <input type="checkbox" checked={hard} onChange={() => setHard(!hard)} />Hard: {periodic(kind) ? "jobs are refused, and running jobs are suspended" : "jobs are refused"} when it is reached
        </label>
        <p className="sub" style={{ flexBasis: "100%" }}>{hard ? "" : "Jobs wait, and say for which limit. "}{where === "" ? "" : "Projects below count too. "}The tightest of all limits binds.</p>
        {error && <div className="fault" role="alert" style={{ margin: 0, flexBasis: "100%" }}>{error.message}</div>}
        <div style={{ display: "flex", gap: 8, justifyContent: "flex-end", flexBasis: "100%" }}>
          <button type="button" className="btn" onClick={onClose}>Close</button>
          <button type="submit" className="btn pri" disabled={add.isPending || change.isPending}>Save</button>
        </div>
      </form>
    </Modal>
  );
}
