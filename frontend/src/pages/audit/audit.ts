import { isDay } from "../../lib/charts/usagePeriod";

/** What the log can be narrowed to: all acts on something, as the API takes them. */
export const ACTIONS: [string, string][] = [
  ["", "All actions"], ["access.denied", "denied access"], ["session.", "signing in and out"], ["user.", "people"], ["invitation.", "invitations"],
  ["project.", "projects and members"], ["token.", "tokens"], ["service_account.", "service accounts"], ["secret.", "secrets"], ["job.", "others' jobs"], ["jobs.", "many jobs at once"], ["array.", "arrays"], ["template.", "templates"], ["artifact.", "artifacts"], ["bundle.", "uploaded code"],
  ["environment.", "environments"], ["destination.", "notifications"], ["node.", "nodes"],
  ["quota.", "limits"], ["guarantee.", "guarantees"], ["rate.", "prices"], ["discount.", "discounts"], ["storage.", "storage"], ["policy.", "policy"], ["simulation.", "simulations"], ["rollout.", "policies on their way into force"],
  ["partition.", "partitions"], ["window.", "windows"], ["qos.", "QoS levels"], ["idle_rule.", "rule for idle GPUs"], ["audit.", "exports of this log"],
];

/** The moments of two days, both included, in the browser's time zone; empty where a day is not given. */
export function momentsOf(from: string | null, to: string | null): { from_at: string; to_at: string } {
  return { from_at: isDay(from) ? midnight(from, 0) : "", to_at: isDay(to) ? midnight(to, 1) : "" };
}

function midnight(day: string, later: number): string {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  return new Date(year, month - 1, date + later).toISOString();
}

/** What an entry says beside who did what to what: `role: member, email: ada@example.org`. */
export function detailText(detail: Record<string, unknown>): string {
  return Object.entries(detail).filter(([, value]) => value !== null && value !== "").map(([name, value]) => `${name.replaceAll("_", " ")}: ${said(value)}`).join(", ");
}

function said(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(said).join(" ");
  if (typeof value === "object" && value !== null) return `(${detailText(value as Record<string, unknown>)})`;
  return String(value);
}
