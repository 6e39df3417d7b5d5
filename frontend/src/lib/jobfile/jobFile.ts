import { LineCounter, parseDocument, stringify } from "yaml";
import { count, gibibytes } from "../format";

/** A job file as the portal takes it; both the form and the YAML tab edit this one object. */
export type JobFile = { [key: string]: unknown };

export function readPath(file: JobFile, path: string): unknown {
  let value: unknown = file;
  for (const key of path.split(".")) {
    if (typeof value !== "object" || value === null) return undefined;
    value = (value as JobFile)[key];
  }
  return value;
}

const isEmpty = (value: unknown) => value === undefined || value === "" || value === null || (typeof value === "object" && Object.keys(value).length === 0);

/** A copy with the value put at the path; an empty value takes the key away, and with it a group left empty. */
export function writePath(file: JobFile, path: string, value: unknown): JobFile {
  const [head = "", ...rest] = path.split(".");
  const next = { ...file };
  if (rest.length > 0) {
    const inner = typeof next[head] === "object" && next[head] !== null ? (next[head] as JobFile) : {};
    value = writePath(inner, rest.join("."), value);
  }
  if (isEmpty(value)) delete next[head];
  else next[head] = value;
  return next;
}

/** What the file says of its GPUs, its shorthands written out: `gpus: 0.5` is half of one, `gpus: 2` exactly two. */
export function gpusOf(file: JobFile): JobFile {
  const { gpus } = file;
  if (typeof gpus === "object" && gpus !== null && !Array.isArray(gpus)) return gpus as JobFile;
  if (typeof gpus !== "number") return {};
  return gpus > 0 && gpus < 1 ? { share: gpus } : { min: gpus, max: gpus };
}

/** The part of one GPU that is asked for, as a whole number of percent where it is a number; null for whole GPUs. */
export function partAsked(gpus: JobFile): unknown {
  const { share } = gpus;
  if (share === undefined || share === null || share === 1) return null;
  return typeof share === "number" ? Math.round(share * 100) : share;
}

/** The same with a part of one GPU, and with whole ones. */
export function halfOf({ min: _min, max: _max, ...gpus }: JobFile): JobFile {
  return { ...gpus, share: 0.5 };
}

export function wholeOf({ share: _share, memory: _memory, ...gpus }: JobFile): JobFile {
  return gpus;
}

/** Memory as it is typed: digits alone are MiB. */
export const memoryOf = (text: string) => (/^\d+$/.test(text) ? Number(text) : text);

/** What a job asks for of each node beside its GPUs: `4 processors and 16 GiB`; empty where it asks for nothing. */
export function besideGpus({ cpus, memory }: JobFile): string {
  const asked = [typeof cpus === "number" ? count(cpus, "processor") : "", typeof memory === "number" ? gibibytes(memory) : ""];
  return asked.filter(Boolean).join(" and ");
}

export const ORDER = [
  "name", "project", "model_type", "command", "code", "environment", "total_steps", "batch_size", "gpus", "cpus", "memory", "checkpoint", "restartable",
  "priority", "nice", "qos", "cluster", "partition", "deadline", "max_cost", "max_duration", "env", "secrets", "data", "labels", "retry", "array", "dependencies", "resume_from", "throughput",
];

export function toYaml(file: JobFile): string {
  const known = ORDER.filter((key) => key in file);
  const others = Object.keys(file).filter((key) => !ORDER.includes(key));
  const sorted = Object.fromEntries([...known, ...others].map((key) => [key, file[key]]));
  return Object.keys(sorted).length === 0 ? "" : stringify(sorted, { version: "1.1", lineWidth: 0 });
}

export interface ParsedYaml {
  file: JobFile | null;
  problems: { line: number; message: string }[];
  lineOf: (field: string) => number | null;
}

/** Reads YAML without giving up the places: an error of the portal finds its line by its field. */
export function parseYaml(text: string): ParsedYaml {
  const lines = new LineCounter();
  const doc = parseDocument(text, { lineCounter: lines, version: "1.1", uniqueKeys: true });
  const problems = doc.errors.map((error) => ({ line: lines.linePos(error.pos[0]).line, message: error.message.split("\n")[0]?.replace(/ at line \d+.*$/, "") ?? "" }));
  let value: unknown = null;
  try {
    value = problems.length === 0 ? doc.toJS() : null;
    JSON.stringify(value);
  } catch {
    value = null;
    problems.push({ line: 1, message: "An alias (*name) contains itself, or too much" });
  }
  const file = typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JobFile) : null;
  if (problems.length === 0 && !file && text.trim()) problems.push({ line: 1, message: "A job file is a list of keys and values, as in name: my-job" });
  const lineOf = (field: string) => {
    const path = field.split(".");
    for (let length = path.length; length > 0; length -= 1) {
      const at = keyOffset(doc.contents, path.slice(0, length));
      if (at !== null) return lines.linePos(at).line;
    }
    return null;
  };
  return { file, problems, lineOf };
}

interface Mapped {
  items: { key: unknown; value: unknown }[];
}

const isMap = (node: unknown): node is Mapped => typeof node === "object" && node !== null && "items" in node && Array.isArray(node.items);

function keyOffset(node: unknown, path: string[]): number | null {
  const [head, ...rest] = path;
  if (!isMap(node)) return null;
  for (const pair of node.items) {
    const key = pair.key as { value?: unknown; range?: [number, number, number] } | null;
    if (String(key?.value) !== head) continue;
    return rest.length === 0 ? (key?.range?.[0] ?? null) : keyOffset(pair.value, rest);
  }
  return null;
}

/** An array as one writes it, `0-15%4`, whichever way the file has it. */
export function showArray(value: unknown): string {
  if (typeof value !== "object" || value === null) return value === undefined ? "" : String(value);
  const { indices, max_running: most } = value as { indices?: unknown; max_running?: unknown };
  return `${String(indices ?? "")}${most == null ? "" : `%${String(most)}`}`;
}

/** "exp=cosine, seed=7" and back. */
export function parsePairs(text: string, separator: RegExp): Record<string, string> {
  const pairs = text.split(separator).map((part) => part.trim()).filter(Boolean);
  return Object.fromEntries(pairs.map((pair) => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  }));
}

export function showPairs(value: unknown, separator: string): string {
  if (typeof value !== "object" || value === null) return "";
  return Object.entries(value).map(([key, entry]) => `${key}=${String(entry)}`).join(separator);
}

/** "afterok:12,13 singleton", or as sbatch has it "afterok:12:13,singleton", to what a job file has, and back. */
export function parseDependencies(text: string): Record<string, unknown>[] | undefined {
  const found: { type: string; job?: number | string }[] = [];
  for (const part of text.split(/[\s,:]+/).filter(Boolean)) {
    const last = found.at(-1);
    if (!/^(\d|.*[-_])/.test(part)) found.push({ type: part }); // without a job the portal says what it lacks
    else {
      const job = /^\d+$/.test(part) ? Number(part) : part;
      if (last && last.job === undefined && last.type !== "singleton") last.job = job;
      else found.push({ type: last && last.type !== "singleton" ? last.type : "afterok", job });
    }
  }
  return found.length > 0 ? found : undefined;
}

export function showDependencies(value: unknown): string {
  if (!Array.isArray(value)) return "";
  const jobs = new Map<string, string[]>();
  for (const { type = "afterok", job } of value as { type?: string; job?: unknown }[]) jobs.set(type, [...(jobs.get(type) ?? []), ...(job == null ? [] : [String(job)])]);
  return [...jobs].map(([type, named]) => (named.length > 0 ? `${type}:${named.join(",")}` : type)).join(" ");
}

/** What a job file names under `data`, an object each; what is none of that is left to the portal's word. */
export function dataOf(value: unknown): { name: string; path?: string; url?: string; secret?: string; read_only?: boolean }[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "object" && one !== null).map((one) => ({ ...one, name: String((one as JobFile).name ?? "") })) : [];
}

/** "images=s3://datasets/images", a line each, and back; what else the file says of a name stays with it. */
export function parseData(text: string, before: unknown): JobFile[] | undefined {
  const known = new Map(dataOf(before).map((one) => [one.name, one]));
  const found = text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    const [name, place] = at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    const { path: _path, url: _url, ...kept } = known.get(name) ?? { name };
    return { ...kept, [place.includes("://") ? "url" : "path"]: place };
  });
  return found.length > 0 ? found : undefined;
}

export function showData(value: unknown): string {
  return dataOf(value).map((one) => `${one.name}=${one.url ?? one.path ?? ""}`).join("\n");
}

/** What a job asks of sbatch, in its words. */
export function slurmOf(file: JobFile): string[] {
  const options = Object.entries((readPath(file, "slurm") ?? {}) as Record<string, unknown>);
  const said = options.filter(([, value]) => value !== null && value !== false && !(Array.isArray(value) && value.length === 0));
  return said.map(([name, value]) => `--${name.replaceAll("_", "-")}${value === true ? "" : `=${String(value)}`}`);
}

/** What a job has of the site's own. */
export function softwareOf(file: JobFile): { modules: string[]; image: string } {
  const modules = readPath(file, "environment.modules");
  const image = readPath(file, "environment.image");
  return { modules: Array.isArray(modules) ? modules.map(String) : [], image: typeof image === "string" ? image : "" };
}
