import { useState } from "react";
import { Link } from "react-router";
import { useModelTypes } from "../../api/hooks";
import type { ModelType } from "../../api/types";
import { Loadable, Panel, Skeleton } from "../../components/Panel";
import { Choice, Text } from "../../components/TextField";
import { count as counted, typeName } from "../../lib/format";
import { TopBar } from "../../shell/TopBar";
import { byCount, byType, countsOf, matching, tally, typesOf } from "./throughputMatrix";
import { Matrix } from "./Matrix";

type View = "type" | "count";

/** What is known of every program's speed on every accelerator type, and what that rests on. */
export default function ThroughputPage() {
  const query = useModelTypes();
  return (
    <>
      <TopBar title="Throughput" crumb={<><Link to="/cluster">Cluster</Link><i>/</i>Throughput</>} />
      <div className="page">
        {query.data ? <Known models={query.data} /> : <h1 className="say">How fast each program trains on each accelerator type.</h1>}
        {!query.data && (
          <Panel title="Steps per second">
            <Loadable query={query} what="The list of programs" skeleton={<Skeleton height={34} count={5} />}>{() => null}</Loadable>
          </Panel>
        )}
      </div>
    </>
  );
}

function Known({ models }: { models: ModelType[] }) {
  const [view, setView] = useState<View>("type");
  const [wantedCount, setCount] = useState(1);
  const [wantedType, setType] = useState("");
  const [search, setSearch] = useState("");
  const types = typesOf(models);
  const type = types.includes(wantedType) ? wantedType : (types[0] ?? "");
  const counts = countsOf(models, view === "count" ? type : undefined);
  const count = counts.includes(wantedCount) ? wantedCount : 1;
  const found = matching(models, search);
  const rows = view === "type" ? byType(found, types, count) : byCount(found, type, counts);
  const heads = view === "type" ? types.map(typeName) : counts.map((one) => counted(one, "GPU"));
  const what = view === "type" ? `on ${counted(count, "GPU")} of each type` : `on ${typeName(type)}`;
  return (
    <>
      <h1 className="say"><b>{counted(found.length, "program")} {what}</b>{rows.length > 0 && types.length > 0 ? `: ${tally(rows)}.` : "."}</h1>
      <Panel title="Steps per second" meta="▲ best type on as many GPUs, × of it; a cell opens its curve">
        <div style={{ display: "flex", gap: 12, flexWrap: "wrap", alignItems: "flex-end", padding: "0 14px 12px" }}>
          <div className="seg" role="group" aria-label="Columns">
            {(["type", "count"] as const).map((one) => <button key={one} type="button" aria-pressed={view === one} onClick={() => setView(one)}>{one === "type" ? "By type" : "By GPU count"}</button>)}
          </div>
          {view === "type"
            ? <Choice label="GPUs" value={String(count)} onChange={(value) => setCount(Number(value))} options={counts.map((one) => [String(one), String(one)])} />
            : <Choice label="Accelerator type" value={type} onChange={setType} options={types.map((one) => [one, typeName(one)])} />}
          <Text label="Programs by name" value={search} onChange={setSearch} placeholder="resnet" />
        </div>
        {types.length === 0 ? <p className="empty">No throughput is known yet: none is in the catalogue and nothing was measured.</p>
          : found.length === 0 ? <p className="empty">No program is named like that. <button type="button" className="btn sm" onClick={() => setSearch("")}>Show all</button></p>
            : <Matrix key={`${view} ${type}`} heads={heads} rows={rows} />}
      </Panel>
    </>
  );
}
