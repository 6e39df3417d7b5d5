import { useState, type FormEvent } from "react";
import { Link, useNavigate } from "react-router";
import { ApiError } from "../../api/client";
import { useNodes } from "../../api/clusterHooks";
import { usePolicies } from "../../api/hooks";
import { useSimulate, useUploadTrace } from "../../api/labHooks";
import type { PolicyInfo, SimulationTrace, SimulationWish } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice, Text } from "../../components/TextField";
import { count, duration, integer } from "../../lib/format";
import { fieldsOf, parse, show } from "../../lib/schemaForm";
import { TopBar } from "../../shell/TopBar";
import { sweepValues } from "./lab";
import css from "./lab.module.css";

interface Wished { key: number; name: string; values: Record<string, string>; swept: string; sweep: string }
interface Nodes { key: number; type: string; count: string; gpus: string; price: string; watts: string }
type Workload = "synthetic" | "trace" | "history";

const MOST_POLICIES = 8;
const DAY_MS = 86_400_000;
const PRESETS = [{ label: "Last day", days: 1 }, { label: "Last week", days: 7 }, { label: "Last 30 days", days: 30 }];
const local = (at: Date) => new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

let made = 0;
const policyNamed = (name: string): Wished => ({ key: ++made, name, values: {}, swept: "", sweep: "" });

export default function NewSimulationPage({ admin }: { admin: boolean }) {
  const policies = usePolicies();
  return (
    <>
      <TopBar title="New simulation" crumb={<><Link to="/lab">Policy lab</Link><i>/</i>New simulation</>} />
      <div className="page" style={{ maxWidth: 920 }}>
        <h1 className="say"><b>Choose jobs, hardware and up to eight policies</b>: each is run on the same jobs by the scheduler that decides here too.</h1>
        <Loadable query={policies} what="The list of policies" skeleton={<Skeleton height={60} count={3} />}>
          {(kinds) => <Form admin={admin} kinds={kinds} />}
        </Loadable>
      </div>
    </>
  );
}

function Form({ admin, kinds }: { admin: boolean; kinds: PolicyInfo[] }) {
  const go = useNavigate();
  const simulate = useSimulate();
  const [name, setName] = useState("");
  const [kind, setKind] = useState<Workload>(admin ? "history" : "synthetic");
  const [span, setSpan] = useState({ from: local(new Date(Date.now() - 7 * DAY_MS)), to: local(new Date()) });
  const [mix, setMix] = useState({ jobs: "200", rate: "20", gangs: true });
  const [trace, setTrace] = useState<SimulationTrace | null>(null);
  const [nodes, setNodes] = useState<Nodes[] | null>(null);
  const [wished, setWished] = useState<Wished[]>(() => ["fifo_gang", "max_min_fairness"].map(policyNamed));
  const [more, setMore] = useState({ repetitions: "1", seed: "0", noise: "0" });
  const faults = simulate.error instanceof ApiError ? simulate.error.errors : [];
  const at = (...names: string[]) => faults.find((fault) => names.some((one) => fault.field === one || fault.field.startsWith(`${one}.`)))?.message;
  const asked = wished.reduce((sum, one) => sum + Math.max(1, one.swept ? sweepValues(one.sweep).length : 1), 0);
  const trials = asked * Math.max(1, Number(more.repetitions) || 1);
  const change = (key: number, next: Partial<Wished>) => setWished(wished.map((one) => (one.key === key ? { ...one, ...next } : one)));

  const workload = (): SimulationWish["workload"] => {
    if (kind === "history") return { kind, from_at: new Date(span.from).toISOString(), to_at: new Date(span.to).toISOString() };
    if (kind === "trace") return { kind, trace_id: trace?.id ?? "" };
    return { kind, jobs: Number(mix.jobs), jobs_per_hour: mix.rate.trim() ? Number(mix.rate) : null, multi_gpu: mix.gangs, models: null };
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    simulate.mutate({
      name, workload: workload(), repetitions: Number(more.repetitions), seed: Number(more.seed), noise: Number(more.noise),
      hardware: nodes === null ? { kind: "as_is" } : { kind: "edited", nodes: nodes.map((node) => ({ type: node.type.trim(), count: Number(node.count), gpus: Number(node.gpus), price_per_gpu_hour: node.price.trim() || null, watts: node.watts.trim() ? Number(node.watts) : null })) },
      policies: wished.map((one) => wishOf(one, kinds)),
    }, { onSuccess: (simulation) => void go(`/lab/${simulation.id}`) });
  };
  const ready = (kind !== "trace" || trace !== null) && (kind !== "history" || (span.from !== "" && span.to !== "")) && asked <= MOST_POLICIES;
  return (
    <form onSubmit={submit} noValidate style={{ display: "grid", gap: 16 }}>
      <Panel title="Jobs">
        <div className={css.line}>
          <div className="seg" role="group" aria-label="Workload">
            {([["history", "This cluster's history"], ["synthetic", "Synthetic mix"], ["trace", "A trace"]] as const).filter(([one]) => admin || one !== "history").map(([one, label]) => (
              <button key={one} type="button" aria-pressed={kind === one} onClick={() => setKind(one)}>{label}</button>
            ))}
          </div>
        </div>
        {kind === "history" && (
          <div className={css.line}>
            {PRESETS.map(({ label, days }) => <button key={label} type="button" className="btn sm" onClick={() => setSpan({ from: local(new Date(Date.now() - days * DAY_MS)), to: local(new Date()) })}>{label}</button>)}
            <Text label="From" type="datetime-local" value={span.from} onChange={(from) => setSpan({ ...span, from })} error={at("workload.from_at", "workload.history.from_at")} />
            <Text label="To" type="datetime-local" value={span.to} onChange={(to) => setSpan({ ...span, to })} error={at("workload.to_at", "workload.history.to_at")} />
          </div>
        )}
        {kind === "synthetic" && (
          <div className={css.line}>
            <Text label="Number of jobs" number value={mix.jobs} onChange={(jobs) => setMix({ ...mix, jobs })} error={at("workload.jobs", "workload.synthetic.jobs")} />
            <Text label="Jobs an hour" decimal placeholder="all at once" value={mix.rate} onChange={(rate) => setMix({ ...mix, rate })} error={at("workload.jobs_per_hour", "workload.synthetic.jobs_per_hour")} />
            <label style={{ display: "flex", gap: 6, alignItems: "center", height: 32 }}><input type="checkbox" checked={mix.gangs} onChange={(event) => setMix({ ...mix, gangs: event.target.checked })} />Some jobs take several GPUs</label>
          </div>
        )}
        {kind === "trace" && <Upload trace={trace} onTrace={setTrace} />}
        {at("workload") && <div className="fault" role="alert">{at("workload")}</div>}
      </Panel>
      <Hardware nodes={nodes} onNodes={setNodes} fault={at("hardware")} />
      <Panel title="Policies" meta={`${count(asked, "policy", "policies")}, ${count(trials, "trial")}; eight policies at most`}>
        {wished.map((one, i) => <PolicyWish key={one.key} wish={one} kinds={kinds} fault={at(`policies.${i}`)} only={wished.length === 1} onChange={(next) => change(one.key, next)} onRemove={() => setWished(wished.filter((other) => other.key !== one.key))} />)}
        <div className={css.line}>
          <button type="button" className="btn" disabled={asked >= MOST_POLICIES} onClick={() => setWished([...wished, policyNamed(kinds.find((entry) => !wished.some((one) => one.name === entry.name))?.name ?? "fifo_gang")])}><Icon14 />Add a policy</button>
        </div>
        {(at("policies") !== undefined && !wished.some((_, i) => at(`policies.${i}`))) && <div className="fault" role="alert">{at("policies")}</div>}
      </Panel>
      <Panel title="Repetitions">
        <div className={css.line}>
          <Text label="Name of the simulation" value={name} onChange={setName} placeholder="optional" error={at("name")} />
          <Text label="Seeds" number value={more.repetitions} onChange={(repetitions) => setMore({ ...more, repetitions })} error={at("repetitions")} />
          <Text label="First seed" number value={more.seed} onChange={(seed) => setMore({ ...more, seed })} error={at("seed")} />
          <Text label="Noise of true speeds" decimal value={more.noise} onChange={(noise) => setMore({ ...more, noise })} error={at("noise")} />
        </div>
      </Panel>
      {simulate.error && <div className="fault" role="alert" style={{ margin: 0 }}>{simulate.error.message}</div>}
      <div style={{ display: "flex", gap: 8, justifyContent: "flex-end" }}>
        <Link to="/lab" className="btn">Back</Link>
        <button type="submit" className="btn pri" disabled={!ready || simulate.isPending}>{simulate.isPending ? "Asking" : `Simulate ${count(trials, "trial")}`}</button>
      </div>
    </form>
  );
}

const Icon14 = () => <span aria-hidden>+</span>;

function wishOf(wish: Wished, kinds: PolicyInfo[]): SimulationWish["policies"][number] {
  const fields = fieldsOf(kinds.find((entry) => entry.name === wish.name)?.schema ?? {});
  const given = fields.filter((field) => field.name !== wish.swept && (wish.values[field.name] ?? "") !== "");
  return {
    name: wish.name,
    parameters: Object.fromEntries(given.map((field) => [field.name, parse(field, wish.values[field.name] ?? "")])),
    sweep: wish.swept ? { [wish.swept]: sweepValues(wish.sweep) } : {},
  };
}

interface WishProps { wish: Wished; kinds: PolicyInfo[]; fault: string | undefined; only: boolean; onChange: (next: Partial<Wished>) => void; onRemove: () => void }

function PolicyWish({ wish, kinds, fault, only, onChange, onRemove }: WishProps) {
  const fields = fieldsOf(kinds.find((entry) => entry.name === wish.name)?.schema ?? {});
  const [open, setOpen] = useState(false);
  return (
    <div className={css.policy}>
      <div className={css.line}>
        <Choice label="Policy" value={wish.name} options={kinds.map((entry) => [entry.name, entry.title])} onChange={(name) => onChange({ name, values: {}, swept: "", sweep: "" })} />
        {fields.length > 0 && <Choice label="Try several values of" value={wish.swept} options={[["", "no parameter"], ...fields.map((field): [string, string] => [field.name, field.label])]} onChange={(swept) => onChange({ swept })} />}
        {wish.swept && <Text label="Values" placeholder="0.01, 0.1, 0.5" value={wish.sweep} onChange={(sweep) => onChange({ sweep })} />}
        {fields.length > 0 && <button type="button" className="btn" aria-expanded={open} onClick={() => setOpen(!open)}>Parameters</button>}
        <button type="button" className="btn" disabled={only} onClick={onRemove} aria-label={`Remove ${wish.name}`}>Remove</button>
      </div>
      {open && (
        <div className={css.fields}>
          {fields.filter((field) => field.name !== wish.swept).map((field) => (field.kind === "choice" || field.kind === "boolean"
            ? <Choice key={field.name} label={field.label} value={wish.values[field.name] ?? ""} options={[["", `${show(field.fallback) || "none"} (as usual)`], ...(field.kind === "boolean" ? ["true", "false"] : field.choices.map(String)).map((value): [string, string] => [value, value])]} onChange={(value) => onChange({ values: { ...wish.values, [field.name]: value } })} />
            : <Text key={field.name} label={field.label} placeholder={show(field.fallback)} value={wish.values[field.name] ?? ""} onChange={(value) => onChange({ values: { ...wish.values, [field.name]: value } })} />
          ))}
        </div>
      )}
      {fault && <div className="fault" role="alert">{fault}</div>}
    </div>
  );
}

function Upload({ trace, onTrace }: { trace: SimulationTrace | null; onTrace: (trace: SimulationTrace | null) => void }) {
  const upload = useUploadTrace();
  return (
    <div className={css.line}>
      <div className="f grow">
        <label htmlFor="trace">Trace: our own, Gavel, Philly, OpenB, Sia, SWF or sacct; 32 MiB and 20,000 jobs at most</label>
        <input id="trace" type="file" onChange={(event) => { const file = event.target.files?.[0]; onTrace(null); if (file) upload.mutate(file, { onSuccess: onTrace }); }} />
        {upload.isPending && <span className="h" role="status">Reading it.</span>}
        {upload.error && <span className="h bad" role="alert">{upload.error.message}</span>}
        {trace && <span className="h" role="status">{trace.format}: {count(trace.jobs, "job")} over {duration(trace.span_s)}, {integer(Math.round(trace.gpu_hours))} GPU hours.{trace.why_left_out && ` ${trace.left_out > 0 ? `${count(trace.left_out, "row")} left out: ` : "Read with this note: "}${trace.why_left_out}`}</span>}
      </div>
    </div>
  );
}

function Hardware({ nodes, onNodes, fault }: { nodes: Nodes[] | null; onNodes: (nodes: Nodes[] | null) => void; fault: string | undefined }) {
  const known = useNodes().data ?? [];
  const asTheyAre = (): Nodes[] => {
    const groups = new Map<string, Nodes>();
    for (const node of known) {
      const type = node.type;
      const gpus = String(node.gpus);
      const key = `${type}/${gpus}`;
      const group = groups.get(key);
      if (group) group.count = String(Number(group.count) + 1);
      else groups.set(key, { key: ++made, type, count: "1", gpus, price: "", watts: "" });
    }
    return groups.size > 0 ? [...groups.values()] : [{ key: ++made, type: "v100", count: "4", gpus: "4", price: "", watts: "" }];
  };
  const change = (key: number, next: Partial<Nodes>) => onNodes((nodes ?? []).map((one) => (one.key === key ? { ...one, ...next } : one)));
  return (
    <Panel title="Hardware">
      <div className={css.line}>
        <div className="seg" role="group" aria-label="Hardware">
          <button type="button" aria-pressed={nodes === null} onClick={() => onNodes(null)}>As it is</button>
          <button type="button" aria-pressed={nodes !== null} onClick={() => onNodes(nodes ?? asTheyAre())}>Other nodes</button>
        </div>
      </div>
      {nodes?.map((node, i) => (
        <div key={node.key} className={css.line} role="group" aria-label={`Nodes ${i + 1}`}>
          <Text label="Accelerator type" value={node.type} onChange={(type) => change(node.key, { type })} />
          <Text label="Nodes" number value={node.count} onChange={(value) => change(node.key, { count: value })} />
          <Text label="GPUs of each" number value={node.gpus} onChange={(gpus) => change(node.key, { gpus })} />
          <Text label="Price of a GPU hour" decimal placeholder="none" value={node.price} onChange={(price) => change(node.key, { price })} />
          <Text label="Watts of a GPU" decimal placeholder="not known" value={node.watts} onChange={(watts) => change(node.key, { watts })} />
          <button type="button" className="btn" disabled={nodes.length === 1} onClick={() => onNodes(nodes.filter((one) => one.key !== node.key))} aria-label={`Remove nodes ${i + 1}`}>Remove</button>
        </div>
      ))}
      {nodes && <div className={css.line}><button type="button" className="btn" onClick={() => onNodes([...nodes, { key: ++made, type: nodes[0]?.type ?? "v100", count: "1", gpus: "8", price: "", watts: "" }])}><Icon14 />Add nodes</button></div>}
      {fault && <div className="fault" role="alert">{fault}</div>}
    </Panel>
  );
}
