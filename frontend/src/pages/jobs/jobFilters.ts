import type { JobColumn, SavedView } from "../../api/types";
import { columnsOf } from "../../lib/job/jobColumns";
import { JOB_STATES, STATE_ORDER, type JobState } from "../../lib/job/jobState";
import { withNewNames } from "../../lib/renamed";

/** What the list of jobs is narrowed to, as the address has it. Days are the browser's own. */
export interface JobFilters {
  /** A group, or states with commas between. */
  state: string;
  search: string;
  project: string;
  owner: string;
  cluster: string;
  partition: string;
  model_type: string;
  on_hold: string;
  label: string[];
  array: string;
  from: string;
  to: string;
  ordering: string;
}

const WORDS = ["state", "search", "project", "owner", "cluster", "partition", "model_type", "on_hold", "array", "from", "to", "ordering"] as const;
export const NEWEST_FIRST = "-number";

export const GROUPS: { key: string; label: string; states: JobState[] }[] = [
  { key: "", label: "All", states: [] },
  { key: "live", label: "Live", states: STATE_ORDER.filter((state) => !JOB_STATES[state].ended) },
  ...(["queued", "running", "succeeded", "failed", "cancelled"] as const).map((state) => ({ key: state, label: JOB_STATES[state].word, states: [state] as JobState[] })),
];

export function readFilters(given: URLSearchParams): JobFilters {
  const params = withNewNames(given);
  const words = Object.fromEntries(WORDS.map((key) => [key, params.get(key) ?? ""])) as Omit<JobFilters, "label">;
  return { ...words, label: params.getAll("label").filter(Boolean), ordering: words.ordering || NEWEST_FIRST };
}

/** The address of a list; columns only where they are not the reader's usual ones. */
export function paramsOf(filters: JobFilters, columns: JobColumn[] | null = null): URLSearchParams {
  const params = new URLSearchParams();
  for (const key of WORDS) if (filters[key] && !(key === "ordering" && filters.ordering === NEWEST_FIRST)) params.set(key, filters[key]);
  for (const label of filters.label) params.append("label", label);
  if (columns) params.set("columns", columns.join(","));
  return params;
}

export function statesOf(state: string): JobState[] {
  const group = GROUPS.find((entry) => entry.key === state);
  return group ? group.states : STATE_ORDER.filter((one) => state.split(",").includes(one));
}

const DAY = /^\d{4}-\d{2}-\d{2}$/;

/** The start of a day, or of the one after it. */
function dayStart(day: string, later = 0): string {
  if (!DAY.test(day)) return "";
  const at = new Date(`${day}T00:00`);
  at.setDate(at.getDate() + later);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
}

function dayOf(at: unknown, earlier = 0): string {
  const found = new Date(String(at));
  if (Number.isNaN(found.getTime())) return "";
  found.setDate(found.getDate() - earlier);
  return [found.getFullYear(), found.getMonth() + 1, found.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

export interface ListQuery {
  state: JobState[];
  label: string[];
  [key: string]: string | string[];
}

/** What GET jobs is asked; what is empty is left out by the client. */
export function queryOf(filters: JobFilters): ListQuery {
  const { search, project, owner, cluster, partition, model_type, on_hold, array } = filters;
  return {
    state: statesOf(filters.state), label: filters.label, search: search.trim(), project, owner, cluster, partition, model_type, array,
    on_hold: on_hold === "true" || on_hold === "false" ? on_hold : "",
    submitted_from_at: dayStart(filters.from), submitted_to_at: dayStart(filters.to, 1), ordering: filters.ordering,
  };
}

/** Whether it is about single jobs: then arrays are not folded. */
export function isNarrowed(filters: JobFilters): boolean {
  const { state, search, owner, cluster, partition, model_type, on_hold, label, array, from, to } = filters;
  return [state, search, owner, cluster, partition, model_type, on_hold, array, from, to].some(Boolean) || label.length > 0;
}

/** What a saved view keeps: the list's parameters that are set. */
export function viewBody(name: string, filters: JobFilters, columns: JobColumn[] | null) {
  const { ordering, on_hold, array, ...rest } = queryOf(filters);
  const set = Object.fromEntries(Object.entries(rest).filter(([, value]) => value.length > 0));
  const more = { ...(on_hold ? { on_hold: on_hold === "true" } : {}), ...(array ? { array: Number(array) } : {}) };
  return { name, filters: { ...set, ...more }, ordering: String(ordering), columns: columns ?? [] };
}

const text = (value: unknown) => (value === undefined || value === null ? "" : String(value));
const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

/** The address of a saved view. */
export function paramsOfView(view: Pick<SavedView, "filters" | "ordering" | "columns">): URLSearchParams {
  const given = view.filters as Record<string, unknown>;
  const states = texts(given.state);
  const group = GROUPS.find((entry) => entry.states.length === states.length && states.length > 0 && entry.states.every((state) => states.includes(state)));
  const filters: JobFilters = {
    state: group ? group.key : states.join(","), label: texts(given.label), search: text(given.search), project: text(given.project), owner: text(given.owner),
    cluster: text(given.cluster), partition: text(given.partition), model_type: text(given.model_type), on_hold: text(given.on_hold), array: text(given.array),
    from: given.submitted_from_at ? dayOf(given.submitted_from_at) : "", to: given.submitted_to_at ? dayOf(given.submitted_to_at, 1) : "", ordering: view.ordering,
  };
  return paramsOf(filters, columnsOf(view.columns));
}

/** Whether an address shows just this view; one without columns of its own is shown in any. */
export function showsView(params: URLSearchParams, view: Pick<SavedView, "filters" | "ordering" | "columns">): boolean {
  const wanted = paramsOfView(view);
  const columns = columnsOf(view.columns) ? columnsOf(params.get("columns")) : null;
  const shown = paramsOf(readFilters(params), columns);
  wanted.sort();
  shown.sort();
  return wanted.toString() === shown.toString();
}
