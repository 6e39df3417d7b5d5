/** Parts of the whole width, 0 to 1. */
export interface CostMeter {
  soFar: number;
  estimated: number;
  limit: number | null;
}

/** What is spent against the limit, or against what the job is expected to cost; without either there is nothing to measure it by. */
export function costMeter(soFar: number, estimated: number | null, limit: number | null): CostMeter | null {
  if (limit === null && estimated === null) return null;
  const end = Math.max(estimated ?? 0, soFar);
  const whole = Math.max(limit ?? 0, end, 1e-9) * (limit === null ? 1.08 : 1);
  return { soFar: soFar / whole, estimated: end / whole, limit: limit === null ? null : limit / whole };
}
