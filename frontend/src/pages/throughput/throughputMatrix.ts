import type { CurvePoint, ModelType } from "../../api/types";
import { basisOf, count as counted, number, typeName } from "../../lib/format";
import type { KnownCurve } from "../../lib/jobfile/preview";

type Source = CurvePoint["source"];
type Curve = ModelType["curves"][string];

/** One speed: of a program on so many GPUs of a type. */
export interface Cell {
  model: string;
  type: string;
  count: number;
  /** 0: so many GPUs cannot run it. */
  stepsPerS: number;
  source: Source;
  /** No number of its own: the curve is drawn between others. */
  between: boolean;
  ageS: number | null;
  samples: number;
  relativeError: number | null;
  /** Of the best type's on as many GPUs. */
  relative: number | null;
  best: boolean;
}

export interface Row {
  model: ModelType;
  cells: (Cell | null)[];
}

/** A chart is drawn to so many GPUs. */
const LONGEST = 128;
/** Columns of counts: more say nothing that people would read. */
const MOST_COUNTS = 8;

const at = (curve: Curve | undefined, count: number): number | null => (curve && count <= curve.steps_per_s.length ? (curve.steps_per_s[count - 1] ?? null) : null);

/** The best speed on so many GPUs among all types; null where none is known. */
function bestOf(model: ModelType, count: number): number | null {
  const known = Object.values(model.curves).map((curve) => at(curve, count)).filter((value) => value !== null);
  return known.length > 0 ? Math.max(...known) : null;
}

/** Null: not known. */
export function cellOf(model: ModelType, type: string, count: number): Cell | null {
  const curve = model.curves[type];
  const stepsPerS = at(curve, count);
  if (!curve || stepsPerS === null) return null;
  const point = curve.points.find((one) => one.count === count);
  const best = bestOf(model, count);
  return {
    model: model.name, type, count, stepsPerS,
    source: point?.source ?? curve.source,
    between: !point,
    ageS: point?.age_s ?? null,
    samples: point?.samples ?? 0,
    relativeError: point?.relative_error ?? null,
    relative: best ? stepsPerS / best : null,
    best: stepsPerS > 0 && stepsPerS === best,
  };
}

/** Types that some program is known on, by name. */
export const typesOf = (models: ModelType[]): string[] => [...new Set(models.flatMap((model) => Object.keys(model.curves)))].sort();

/** 1, 2, 4, ... as far as any curve is known, and its end. */
export function countsOf(models: ModelType[], type?: string): number[] {
  const curves = models.flatMap((model) => (type === undefined ? Object.values(model.curves) : [model.curves[type]].filter((curve) => curve !== undefined)));
  const longest = Math.max(1, ...curves.map((curve) => curve.steps_per_s.length));
  const counts: number[] = [];
  for (let count = 1; count < longest && counts.length < MOST_COUNTS - 1; count *= 2) counts.push(count);
  return [...counts, longest];
}

export function matching(models: ModelType[], search: string): ModelType[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return models.filter((model) => words.every((word) => `${model.name} ${model.title}`.toLowerCase().includes(word)));
}

/** A column per type, at one count. */
export const byType = (models: ModelType[], types: string[], count: number): Row[] =>
  models.map((model) => ({ model, cells: types.map((type) => cellOf(model, type, count)) }));

/** A column per count, on one type. */
export const byCount = (models: ModelType[], type: string, counts: number[]): Row[] =>
  models.map((model) => ({ model, cells: counts.map((count) => cellOf(model, type, count)) }));

export const SOURCE_WORDS: Record<Source, string> = { measured: "measured", user: "given", catalogue: "catalogue", estimated: "estimated", trial: "on trial" };

const kindOf = (cell: Cell | null): string => (cell === null ? "not known" : cell.between ? "between" : SOURCE_WORDS[cell.source]);

/** "12 measured, 20 catalogue, 3 not known", in the order of how good they are. */
export function tally(rows: Row[]): string {
  const sums = new Map<string, number>();
  for (const row of rows) for (const cell of row.cells) sums.set(kindOf(cell), (sums.get(kindOf(cell)) ?? 0) + 1);
  const order = [...Object.values(SOURCE_WORDS), "between", "not known"];
  return order.filter((kind) => sums.has(kind)).map((kind) => `${sums.get(kind)} ${kind}`).join(", ");
}

/** All of a cell in words, for the pointer and for who does not see it. */
export function sayCell(cell: Cell): string {
  const where = `${counted(cell.count, "GPU")} of ${typeName(cell.type)}`;
  if (cell.stepsPerS === 0) return `${cell.model} does not run on ${where}`;
  const basis = cell.between ? `drawn between other counts, curve ${basisOf(cell.source, null, 0)}` : basisOf(cell.source, cell.ageS, cell.samples, cell.relativeError);
  const share = cell.relative === null ? "" : cell.best ? "; the best type on as many" : `; ${number(cell.relative)} of the best type on as many`;
  return `${cell.model} on ${where}: ${number(cell.stepsPerS)} steps/s, ${basis}${share}`;
}

/** The chosen type's curve first, the others beside it. */
export function chartOf(model: ModelType, type: string): KnownCurve[] {
  return Object.entries(model.curves)
    .sort(([a], [b]) => Number(b === type) - Number(a === type) || a.localeCompare(b))
    .map(([kind, curve]) => ({ type: kind, steps: curve.steps_per_s.slice(0, LONGEST), source: curve.source, measured: curve.source === "measured", points: curve.points }));
}
