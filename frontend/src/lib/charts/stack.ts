/** Each row on top of those before it; where one says nothing it adds nothing. */
export function stack(rows: (number | null)[][]): number[][] {
  let below: number[] = [];
  return rows.map((row) => {
    below = Array.from({ length: Math.max(row.length, below.length) }, (_, i) => (below[i] ?? 0) + Math.max(0, row[i] ?? 0));
    return below;
  });
}

/** Indices of the columns that are named: at most `most`, evenly apart. */
export function columnTicks(columns: number, most: number): number[] {
  const step = Math.max(1, Math.ceil(columns / Math.max(1, most)));
  return Array.from({ length: Math.ceil(columns / step) }, (_, i) => i * step);
}

export function dayTick(atS: number): string {
  return new Date(atS * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
