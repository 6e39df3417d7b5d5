import type { Rate } from "../../api/types";
import { typeName } from "../../lib/format";

interface Timed {
  valid_from_at: string;
  valid_to_at: string | null;
}

/** Those in force at the moment, and those that begin later, the next one first. */
export function inForce<T extends Timed>(rows: T[], now: Date): { present: T[]; later: T[] } {
  const at = now.getTime();
  const present = rows.filter((row) => Date.parse(row.valid_from_at) <= at && (row.valid_to_at === null || Date.parse(row.valid_to_at) > at));
  const later = rows.filter((row) => Date.parse(row.valid_from_at) > at);
  return { present, later: later.sort((a, b) => Date.parse(a.valid_from_at) - Date.parse(b.valid_from_at)) };
}

type Priced = Pick<Rate, "resource" | "accelerator_type"> & Partial<Pick<Rate, "cluster">>;

/** What an hour is paid for, and where that holds on one cluster only. */
export function pricedName(rate: Priced): string {
  return rate.cluster ? `${resourceName(rate)} on ${rate.cluster}` : resourceName(rate);
}

function resourceName(rate: Priced): string {
  if (rate.resource === "gpu") return typeName(rate.accelerator_type ?? "");
  return rate.resource === "cpu" ? "CPU" : "GiB of memory";
}

const ORDER: Rate["resource"][] = ["gpu", "cpu", "memory"];

/** GPUs by name, then CPUs and memory. */
export function byWhat<T extends Priced>(rows: T[]): T[] {
  return [...rows].sort((a, b) => ORDER.indexOf(a.resource) - ORDER.indexOf(b.resource) || pricedName(a).localeCompare(pricedName(b)));
}

/** A field's local time as the portal takes it; empty: from now on. */
export function startOf(field: string): string | null {
  const at = Date.parse(field);
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}
