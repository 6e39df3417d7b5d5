import type { JobColumn } from "../../api/types";

export interface ColumnHead {
  label: string;
  /** Figures. */
  right: boolean;
  /** In pixels: rows that come into sight change no widths. */
  width: number;
}

/** Columns of the table of jobs in their order, beside the job itself. */
export const JOB_COLUMNS: Record<JobColumn, ColumnHead> = {
  state: { label: "State", right: false, width: 176 },
  project: { label: "Project", right: false, width: 96 },
  owner: { label: "Owner", right: false, width: 104 },
  cluster: { label: "Cluster", right: false, width: 90 },
  program: { label: "Program", right: false, width: 104 },
  partition: { label: "Partition", right: false, width: 90 },
  level: { label: "Level", right: false, width: 80 },
  priority: { label: "Priority", right: true, width: 70 },
  labels: { label: "Labels", right: false, width: 180 },
  progress: { label: "Progress", right: true, width: 70 },
  gpus: { label: "GPUs", right: false, width: 136 },
  throughput: { label: "Throughput", right: true, width: 108 },
  slowdown: { label: "Slowdown", right: true, width: 80 },
  waited: { label: "Waited", right: true, width: 86 },
  submitted: { label: "Submitted", right: true, width: 92 },
  started: { label: "Started", right: true, width: 92 },
  ended: { label: "Ended", right: true, width: 92 },
  cost: { label: "Cost", right: true, width: 76 },
};

/** Of the column with number and name, at least. */
export const JOB_WIDTH = 240;

export const COLUMN_ORDER = Object.keys(JOB_COLUMNS) as JobColumn[];
export const USUAL_COLUMNS: JobColumn[] = ["state", "project", "owner", "progress", "gpus", "submitted", "ended", "cost"];

/** Where there are several clusters, which one a job is on stands beside its project unless somebody chose otherwise. */
export function withCluster(columns: JobColumn[], clusters: number): JobColumn[] {
  if (clusters < 2 || columns !== USUAL_COLUMNS) return columns;
  return COLUMN_ORDER.filter((column) => column === "cluster" || columns.includes(column));
}

/** Those that there are, each once, in the table's order; null where it names none. */
export function columnsOf(named: unknown): JobColumn[] | null {
  const wanted = new Set(Array.isArray(named) ? named : typeof named === "string" ? named.split(",") : []);
  const found = COLUMN_ORDER.filter((column) => wanted.has(column));
  return found.length > 0 ? found : null;
}
