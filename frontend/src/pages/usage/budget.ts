import type { Limit } from "../../api/types";

/** Before so much of a period has passed nothing is said of its end. */
const LEAST_PASSED = 0.1;

export type Course =
  | { kind: "reached" }
  | { kind: "early" }
  /** At this pace it is used up before the period ends. */
  | { kind: "short"; at: Date }
  /** At this pace so much of it is used when the period ends. */
  | { kind: "enough"; share: number };

/** Where a straight line through the use so far leads; null for what has no period. */
export function courseOf(budget: Pick<Limit, "limit" | "used" | "reached" | "period_starts_at" | "period_ends_at">, now: Date): Course | null {
  if (budget.period_starts_at === null || budget.period_ends_at === null) return null;
  const [used, limit] = [Number(budget.used), Number(budget.limit)];
  if (budget.reached || used >= limit) return { kind: "reached" };
  const [start, end] = [Date.parse(budget.period_starts_at), Date.parse(budget.period_ends_at)];
  const passed = (now.getTime() - start) / (end - start);
  if (!(passed >= LEAST_PASSED)) return { kind: "early" };
  const share = used / limit / passed;
  if (share <= 1) return { kind: "enough", share };
  return { kind: "short", at: new Date(start + (end - start) / share) };
}

/** The fullest first, those that are reached before all others. */
export function byUrgency(budgets: Limit[]): Limit[] {
  return [...budgets].sort((a, b) => Number(b.reached) - Number(a.reached) || b.used_percent - a.used_percent || a.id - b.id);
}
