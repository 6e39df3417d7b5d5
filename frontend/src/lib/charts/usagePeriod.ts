/** Which days a usage report is about, as the address of the page says it. */
export const PERIODS = [
  { key: "7d", label: "Last 7 days" },
  { key: "30d", label: "Last 30 days" },
  { key: "90d", label: "Last 90 days" },
  { key: "month", label: "This month" },
  { key: "last-month", label: "Last month" },
  { key: "year", label: "This year" },
  { key: "own", label: "From, to" },
] as const;
export type PeriodKey = (typeof PERIODS)[number]["key"];

export interface Span {
  /** Days as 2026-11-21, both included. */
  from: string;
  to: string;
}

const DAY_MS = 86_400_000;
const DAY = /^\d{4}-\d\d-\d\d$/;
/** With more days than this a chart has months. */
const MOST_DAYS = 93;

const written = (at: number) => new Date(at).toISOString().slice(0, 10);
const read = (day: string) => Date.parse(`${day}T00:00:00Z`);
export const isDay = (text: string | null): text is string => text !== null && DAY.test(text) && Number.isFinite(read(text));

export function isPeriod(text: string | null): text is PeriodKey {
  return PERIODS.some((period) => period.key === text);
}

/** The days of a period that ends today; `own` takes what is given, in the right order. */
export function spanOf(period: PeriodKey, today: string, own: Partial<Span> = {}): Span {
  const at = read(today);
  const [year, month] = [new Date(at).getUTCFullYear(), new Date(at).getUTCMonth()];
  switch (period) {
    case "7d": return { from: written(at - 6 * DAY_MS), to: today };
    case "30d": return { from: written(at - 29 * DAY_MS), to: today };
    case "90d": return { from: written(at - 89 * DAY_MS), to: today };
    case "month": return { from: written(Date.UTC(year, month, 1)), to: today };
    case "last-month": return { from: written(Date.UTC(year, month - 1, 1)), to: written(Date.UTC(year, month, 0)) };
    case "year": return { from: written(Date.UTC(year, 0, 1)), to: today };
    case "own": {
      const to = own.to ?? today;
      const from = own.from ?? written(read(to) - 29 * DAY_MS);
      return from <= to ? { from, to } : { from: to, to: from };
    }
  }
}

export type Step = "day" | "month";
export function stepOf(span: Span): Step {
  return (read(span.to) - read(span.from)) / DAY_MS < MOST_DAYS ? "day" : "month";
}

/** Every day or month of the span in order, as the report has its keys: those in which nothing was used too. */
export function columnsOf(span: Span, step: Step): string[] {
  const columns: string[] = [];
  for (let at = read(span.from); at <= read(span.to); at += DAY_MS) {
    const key = written(at).slice(0, step === "day" ? 10 : 7);
    if (columns.at(-1) !== key) columns.push(key);
  }
  return columns;
}

/** 21 Nov, or Nov 2026. */
export function columnLabel(key: string): string {
  const day = key.length > 7;
  const at = new Date(read(day ? key : `${key}-01`));
  return at.toLocaleDateString("en-GB", { ...(day ? { day: "numeric" as const } : { year: "numeric" as const }), month: "short", timeZone: "UTC" });
}
