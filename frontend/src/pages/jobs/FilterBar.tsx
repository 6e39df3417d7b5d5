import { useState } from "react";
import { usePartitions } from "../../api/clusterHooks";
import { useModelTypes, useProjects, useSession } from "../../api/hooks";
import { Icon } from "../../components/icons";
import { SearchField } from "../../components/SearchField";
import { NEWEST_FIRST, type JobFilters } from "./jobFilters";
import css from "./jobs.module.css";
import { isolated } from "../../lib/isolated";

interface Props {
  filters: JobFilters;
  onChange: (changes: Partial<JobFilters>) => void;
}

/** What the list is narrowed to. The rarer conditions are one press away, and stay open while one of them is set. */
export function FilterBar({ filters, onChange }: Props) {
  const rare = [filters.model_type, filters.on_hold, filters.from, filters.to].some(Boolean) || filters.label.length > 0 || filters.ordering !== NEWEST_FIRST;
  const [open, setOpen] = useState(rare);
  return (
    <div className={css.filters} role="group" aria-label="Filters">
      <Search filters={filters} onChange={onChange} />
      <Projects filters={filters} onChange={onChange} />
      <Clusters filters={filters} onChange={onChange} />
      <Partitions filters={filters} onChange={onChange} />
      <div className="seg" role="group" aria-label="Whose">
        <button type="button" aria-pressed={filters.owner === ""} onClick={() => onChange({ owner: "" })}>All owners</button>
        <button type="button" aria-pressed={filters.owner === "me"} onClick={() => onChange({ owner: "me" })}>Mine</button>
      </div>
      {filters.owner && filters.owner !== "me" && <Condition label={`Owner ${isolated(filters.owner)}`} onRemove={() => onChange({ owner: "" })} />}
      {filters.label.map((label) => <Condition key={label} label={`Label ${isolated(label)}`} onRemove={() => onChange({ label: filters.label.filter((one) => one !== label) })} />)}
      {!rare && <button type="button" className="btn sm" aria-expanded={open} onClick={() => setOpen(!open)}>More filters</button>}
      {(open || rare) && <Rare filters={filters} onChange={onChange} />}
    </div>
  );
}

/** A condition that is set, with its end. */
function Condition({ label, onRemove }: { label: string; onRemove: () => void }) {
  return <button type="button" className="btn sm" style={{ maxWidth: "100%" }} title="Remove this condition" onClick={onRemove}><span className="ell" title={label}>{label}</span><Icon name="cross" size={12} /></button>;
}

function Search({ filters, onChange }: Props) {
  return <SearchField label="Name or number" value={filters.search} onChange={(search) => onChange({ search })} />;
}

function Projects({ filters, onChange }: Props) {
  const projects = useProjects().data ?? [];
  if (projects.length < 2) return null;
  return (
    <select className="in" aria-label="Project" value={filters.project} onChange={(event) => onChange({ project: event.target.value })}>
      <option value="">All projects</option>
      {projects.map((project) => <option key={project.key} value={project.key}>{project.name}</option>)}
    </select>
  );
}

function Clusters({ filters, onChange }: Props) {
  const clusters = useSession().data?.clusters ?? [];
  if (clusters.length < 2 && !filters.cluster) return null;
  return (
    <select className="in" aria-label="Cluster" value={filters.cluster} onChange={(event) => onChange({ cluster: event.target.value })}>
      <option value="">All clusters</option>
      {clusters.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
    </select>
  );
}

function Partitions({ filters, onChange }: Props) {
  const partitions = usePartitions().data ?? [];
  if (partitions.length === 0 && !filters.partition) return null;
  return (
    <select className="in" aria-label="Partition" value={filters.partition} onChange={(event) => onChange({ partition: event.target.value })}>
      <option value="">All partitions</option>
      {partitions.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
    </select>
  );
}

function Rare({ filters, onChange }: Props) {
  const models = useModelTypes().data ?? [];
  const [label, setLabel] = useState("");
  return (
    <>
      <select className="in" aria-label="Program" value={filters.model_type} onChange={(event) => onChange({ model_type: event.target.value })}>
        <option value="">All programs</option>
        {models.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
      </select>
      <select className="in" aria-label="On hold" value={filters.on_hold} onChange={(event) => onChange({ on_hold: event.target.value })}>
        <option value="">On hold or not</option>
        <option value="true">On hold</option>
        <option value="false">Not on hold</option>
      </select>
      <form onSubmit={(event) => { event.preventDefault(); if (label.trim()) onChange({ label: [...new Set([...filters.label, label.trim()])] }); setLabel(""); }}>
        <input className={`in ${css.label}`} placeholder="Label key=value, Enter" aria-label="Label, key or key=value" value={label} onChange={(event) => setLabel(event.target.value)} />
      </form>
      <label className={css.check}>from <input className="in" type="date" aria-label="Submitted from" max={filters.to || undefined} value={filters.from} onChange={(event) => onChange({ from: event.target.value })} /></label>
      <label className={css.check}>to <input className="in" type="date" aria-label="Submitted to" min={filters.from || undefined} value={filters.to} onChange={(event) => onChange({ to: event.target.value })} /></label>
      <select className="in" aria-label="Order" value={filters.ordering} onChange={(event) => onChange({ ordering: event.target.value })}>
        <option value={NEWEST_FIRST}>Newest first</option>
        <option value="number">Oldest first</option>
      </select>
    </>
  );
}
