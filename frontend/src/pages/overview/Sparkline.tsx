interface Props {
  values: (number | null)[];
  width?: number;
  height?: number;
  bound?: number | null;
  step?: boolean;
  zero?: boolean;
  colour?: string;
  fill?: boolean;
}

/** A line without axes; begins at zero unless told otherwise. Decorative: the figure stands beside it. */
export function Sparkline({ values, width = 108, height = 34, bound, step, zero = true, colour = "var(--ink-2)", fill = true }: Props) {
  const known = values.filter((value): value is number => value !== null && Number.isFinite(value));
  const box = { width, height, "aria-hidden": true, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" } as const;
  if (known.length < 2) return <svg {...box}><path d={`M0 ${height - 1}H${width}`} stroke="var(--line)" /></svg>;
  const top = Math.max(...known, bound ?? -Infinity) || 1;
  const bottom = zero ? 0 : Math.min(...known);
  const span = top - bottom || 1;
  const x = (i: number) => (i / (values.length - 1)) * (width - 5) + 1;
  const y = (value: number) => height - 2 - ((value - bottom) / span) * (height - 6);
  let line = "";
  let lastY = 0;
  values.forEach((value, i) => {
    if (value === null || !Number.isFinite(value)) return;
    const py = y(value);
    if (line === "") line = `M${x(i).toFixed(1)} ${py.toFixed(1)}`;
    else line += step ? `H${x(i).toFixed(1)}V${py.toFixed(1)}` : `L${x(i).toFixed(1)} ${py.toFixed(1)}`;
    lastY = py;
  });
  const first = values.findIndex((value) => value !== null);
  const last = values.length - 1;
  return (
    <svg {...box}>
      {fill && <path d={`${line}V${height - 1}H${x(first)}Z`} fill="var(--sunken)" />}
      {bound != null && <path d={`M0 ${y(bound)}H${width}`} stroke="var(--bad)" strokeWidth="1.2" strokeDasharray="3 3" />}
      <path d={line} fill="none" stroke={colour} strokeWidth="1.4" strokeLinejoin="round" />
      <circle cx={x(last)} cy={lastY} r="2.2" fill={colour} />
    </svg>
  );
}
