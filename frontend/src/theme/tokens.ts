export type Scheme = "light" | "dark";
export type Tokens = Record<string, string>;

const JOBS_LIGHT = "#de7b0c #af5366 #7c3f67 #15a3b9 #0363bc #8c6f02 #789f62 #086934 #6f7292 #5b4791 #a53409 #3579bd";
const JOBS_DARK = "#f2a750 #e27885 #a46b90 #2fc4d8 #4884df #bd981e #a0c59a #388154 #9b9bb8 #7560af #b95316 #6ba6f7";

const light: Tokens = {
  canvas: "#f6f7f8", surface: "#ffffff", sunken: "#eff1f3", hover: "#f4f6f7", line: "#e4e7ea", "line-2": "#cdd2d8",
  ink: "#12161c", "ink-2": "#48515d", "ink-3": "#626c78", ghost: "#9aa3ad",
  accent: "#0a6675", "accent-soft": "#e2f0f2", btn: "#161b22", "btn-ink": "#ffffff",
  good: "#17713a", "good-soft": "#e5f4ea", warn: "#8a5300", "warn-soft": "#fdf1dc", bad: "#b3261e", "bad-soft": "#fdeae8",
  "s-queued": "#59626e", "s-starting": "#8a5300", "s-running": "#1459a8", "s-rescaling": "#6c3fb4",
  "s-succeeded": "#17713a", "s-failed": "#b3261e", "s-cancelled": "#646a73",
  grid: "#eceef1", axis: "#626c78", "cell-free": "#f3f5f6",
  hatch: "rgba(255,255,255,.34)", "hatch-dk": "rgba(10,14,20,.26)", dots: "rgba(255,255,255,.5)", "dots-dk": "rgba(10,14,20,.32)",
  shadow: "0 8px 28px rgba(18,22,28,.12),0 1px 3px rgba(18,22,28,.08)",
};

const dark: Tokens = {
  canvas: "#0d0f12", surface: "#14171b", sunken: "#1b1f24", hover: "#191d22", line: "#242931", "line-2": "#38404a",
  ink: "#e9ecef", "ink-2": "#b0b8c2", "ink-3": "#8d96a2", ghost: "#5b6470",
  accent: "#62c7d3", "accent-soft": "#122a2e", btn: "#e9ecef", "btn-ink": "#101317",
  good: "#63cf8d", "good-soft": "#12291b", warn: "#eeb04f", "warn-soft": "#2d2312", bad: "#ff8a80", "bad-soft": "#331a19",
  "s-queued": "#a6aeb9", "s-starting": "#eeb04f", "s-running": "#74b3ff", "s-rescaling": "#c3a0ff",
  "s-succeeded": "#63cf8d", "s-failed": "#ff8a80", "s-cancelled": "#9aa1ab",
  grid: "#20252b", axis: "#8d96a2", "cell-free": "#191c21",
  hatch: "rgba(255,255,255,.30)", "hatch-dk": "rgba(8,10,14,.34)", dots: "rgba(255,255,255,.4)", "dots-dk": "rgba(8,10,14,.42)",
  shadow: "0 10px 32px rgba(0,0,0,.55)",
};

export const TOKENS: Record<Scheme, Tokens> = { light, dark };
export const JOB_COLOURS: Record<Scheme, string[]> = { light: JOBS_LIGHT.split(" "), dark: JOBS_DARK.split(" ") };
export const ON_LIGHT = "#ffffff";
export const ON_DARK = "#0b0d10";

function channel(hex: string, at: number): number {
  const value = parseInt(hex.slice(at, at + 2), 16) / 255;
  return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
}

export function luminance(hex: string): number {
  return 0.2126 * channel(hex, 1) + 0.7152 * channel(hex, 3) + 0.0722 * channel(hex, 5);
}

export function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

/** White where it reaches 4.5 on the colour, else near-black. */
export function inkOn(colour: string): string {
  return contrast(colour, ON_LIGHT) >= 4.5 ? ON_LIGHT : ON_DARK;
}

/** Custom properties of one scheme: tokens, job colours and the ink and hatch that read on each of them. */
export function variables(scheme: Scheme): Record<string, string> {
  const out: Record<string, string> = {};
  for (const [name, value] of Object.entries(TOKENS[scheme])) out[`--${name}`] = value;
  JOB_COLOURS[scheme].forEach((colour, index) => {
    const ink = inkOn(colour);
    const bright = ink === ON_LIGHT;
    out[`--j${index}`] = colour;
    out[`--j${index}-ink`] = ink;
    out[`--j${index}-hatch`] = bright ? "var(--hatch)" : "var(--hatch-dk)";
    out[`--j${index}-dots`] = bright ? "var(--dots)" : "var(--dots-dk)";
  });
  return out;
}
