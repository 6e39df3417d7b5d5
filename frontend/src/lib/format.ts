/** Pure formatting: three significant digits, thin space before a unit, a true minus sign. */
export const THIN = "\u2009";
const MINUS = "\u2212";
const EN = "\u2013";

export interface FormatSettings {
  locale: string;
  hour12: boolean;
}

let settings: FormatSettings = { locale: "en-GB", hour12: false };

export function configureFormat(next: Partial<FormatSettings>): void {
  settings = { ...settings, ...next };
}

const signed = (text: string) => text.replace("-", MINUS);

/** Three significant digits, thousands grouped: 0.0140, 8.40, 91.3, 482, 12,345. */
export function number(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  const decimals = Math.max(0, Math.min(6, digits - 1 - size));
  const rounded = Number(value.toFixed(decimals));
  if (rounded === 0) return "0";
  const again = Math.floor(Math.log10(Math.abs(rounded)));
  const shown = Math.max(0, Math.min(6, digits - 1 - again));
  return fixed(rounded, shown);
}

/** A fixed number of decimals, thousands grouped by commas. */
export function fixed(value: number, decimals: number): string {
  if (!Number.isFinite(value)) return "–";
  const [whole = "", part] = value.toFixed(decimals).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return signed(part === undefined ? grouped : `${grouped}.${part}`);
}

export function integer(value: number): string {
  return fixed(value, 0);
}

/** Without the zeros at the end: for settings, where 1 is 1 and not 1.00. */
export function trimmed(value: number): string {
  return number(value).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

/** Variances are small and compared with their bound: three decimals. */
export function variance(value: number): string {
  return fixed(value, 3);
}

export function withUnit(value: string, unit: string): string {
  return `${value}${THIN}${unit}`;
}

/** A share in 0..1 as whole percent, or with a decimal where asked. */
export function percent(share: number, decimals = 0): string {
  return withUnit(fixed(share * 100, decimals), "%");
}

const SYMBOLS: Record<string, string> = { USD: "$", EUR: "€", GBP: "£", JPY: "¥" };

export function money(amount: string | number, currency: string, decimals?: number): string {
  const value = Number(amount);
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const places = decimals ?? (size >= 1000 ? 0 : size > 0 && size < 0.01 ? 4 : 2);
  const symbol = SYMBOLS[currency] ?? `${currency}${THIN}`;
  return (value < 0 ? MINUS : "") + symbol + fixed(size, places);
}

/** 18 s, 9 min, 1 h 25 min, 3 d 4 h. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return withUnit(String(s), "s");
  const minutes = Math.round(s / 60);
  if (minutes < 60) return withUnit(String(minutes), "min");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return join(hours, "h", minutes % 60, "min");
  const whole = Math.round(minutes / 60);
  return join(Math.floor(whole / 24), "d", whole % 24, "h");
}

function join(big: number, bigUnit: string, small: number, smallUnit: string): string {
  const head = withUnit(String(big), bigUnit);
  return small === 0 ? head : `${head} ${withUnit(String(small), smallUnit)}`;
}

/** Like duration, but keeps the seconds below an hour: 2 min 6 s. */
export function preciseDuration(seconds: number): string {
  if (seconds > 0 && seconds < 10) return withUnit(number(seconds, 2), "s");
  const s = Math.max(0, Math.round(seconds));
  if (s < 60 || s >= 3600) return duration(s);
  return join(Math.floor(s / 60), "min", s % 60, "s");
}

const clocks = new Map<string, Intl.DateTimeFormat>();

function clockFormat(seconds: boolean): Intl.DateTimeFormat {
  const key = `${settings.locale}/${settings.hour12}/${seconds}`;
  const known = clocks.get(key);
  if (known) return known;
  const made = new Intl.DateTimeFormat(settings.locale, {
    hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" as const } : {}), hour12: settings.hour12,
  });
  clocks.set(key, made);
  return made;
}

export function clock(at: Date, seconds = false): string {
  return Number.isNaN(at.getTime()) ? "–" : clockFormat(seconds).format(at);
}

const sameDay = (a: Date, b: Date) => a.toDateString() === b.toDateString();

/** The clock time today, with the day in front otherwise: 14:41, Tue 14:41, 3 Nov 14:41. */
export function moment(at: Date, now: Date): string {
  if (sameDay(at, now)) return clock(at);
  const days = Math.abs(at.getTime() - now.getTime()) / 86_400_000;
  const day = days < 6 ? at.toLocaleDateString("en-GB", { weekday: "short" }) : at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return at.getFullYear() === now.getFullYear() || days < 6 ? `${day} ${clock(at)}` : `${day} ${at.getFullYear()}, ${clock(at)}`;
}

export function momentRange(low: Date, high: Date, now: Date): string {
  return `${moment(low, now)}${EN}${sameDay(low, high) ? clock(high) : moment(high, now)}`;
}

export function relative(at: Date, now: Date): string {
  const seconds = (at.getTime() - now.getTime()) / 1000;
  if (Math.abs(seconds) < 5) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(-seconds)} ago`;
}

const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export function dateTime(at: Date): string {
  return Number.isNaN(at.getTime()) ? "–" : `${dayFormat.format(at)}, ${clock(at, true)}`;
}

/** 1–4; without an upper end "2 or more". */
export function range(low: number, high: number | null): string {
  if (high === null) return `${integer(low)} or more`;
  return low === high ? integer(low) : `${integer(low)}${EN}${integer(high)}`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return withUnit(unit === 0 ? String(Math.round(size)) : number(size), units[unit] ?? "B");
}

/** Indices as runs: [0,1,2,5] is "0–2, 5". */
export function indexRanges(indices: number[]): string {
  const sorted = [...indices].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while ((sorted[end + 1] ?? NaN) === (sorted[end] ?? 0) + 1) end += 1;
    parts.push(end === i ? String(sorted[i]) : `${sorted[i]}${EN}${sorted[end]}`);
    i = end + 1;
  }
  return parts.join(", ");
}

const WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

export function count(n: number, noun: string, plural = `${noun}s`): string {
  return `${integer(n)} ${n === 1 ? noun : plural}`;
}

/** Small counts in words: "six jobs wait", "one job waits". */
export function inWords(n: number): string {
  return WORDS[n] ?? integer(n);
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Pretty type names: titan_xp is "Titan XP", h200 is "H200". */
export function typeName(type: string): string {
  return type
    .split(/[_\s-]+/)
    .map((part) => (/\d/.test(part) || part.length <= 2 ? part.toUpperCase() : capital(part)))
    .join(" ");
}

/** Of a job that has a part of a GPU: 50 % of what it would be called otherwise. */
export function partOf(sharePercent: number | undefined, whole: string): string {
  return sharePercent === undefined || sharePercent >= 100 ? whole : `${percent(sharePercent / 100)} of ${whole}`;
}

/** 2 × A100; 50 % of 1 × A100. */
export function gangWords(gang: { type: string; count: number; share_percent?: number }): string {
  return partOf(gang.share_percent, `${gang.count}${THIN}×${THIN}${typeName(gang.type)}`);
}

/** Memory of a GPU, in the unit of job files. */
export function gibibytes(mebibytes: number): string {
  return withUnit(trimmed(mebibytes / 1024), "GiB");
}

/** What a throughput rests on: measured, 3 h old, 47 samples; from the catalogue; estimated, ±30 %. A sample is one report of a run. */
export function basisOf(source: string, ageS: number | null, samples: number, relativeError: number | null = null): string {
  const error = relativeError === null ? "" : `±${percent(relativeError)}`;
  const age = ageS === null ? "" : `${duration(ageS)} old`;
  const named = source === "measured" || source === "estimated" ? source : source === "catalogue" ? "from the catalogue" : `from ${source}`;
  return [named, error, age, samples > 0 ? count(samples, "sample") : ""].filter(Boolean).join(", ");
}

/** The browser's time zone and how far from UTC it is then: "Europe/Berlin (UTC+1)". */
export function timeZone(at: Date): string {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const ahead = -at.getTimezoneOffset();
  const [hours, minutes] = [Math.floor(Math.abs(ahead) / 60), Math.abs(ahead) % 60];
  const offset = ahead === 0 ? "UTC" : `UTC${ahead > 0 ? "+" : "\u2212"}${hours}${minutes ? `:${String(minutes).padStart(2, "0")}` : ""}`;
  return name === offset ? name : `${name} (${offset})`;
}
