import { TOKENS, type Scheme } from "../theme/tokens";

const PARTS = [100, 66, 42, 26, 16];
const part = (i: number) => PARTS[i % PARTS.length] ?? 100;

/** Greys for data that is no job's, strongest first: for styles. */
export const tone = (i: number) => `color-mix(in srgb, var(--ink-2) ${part(i)}%, var(--surface))`;

/** The same for a canvas. */
export function toneHex(i: number, scheme: Scheme): string {
  const [ink, surface] = [TOKENS[scheme]["ink-2"] ?? "#48515d", TOKENS[scheme].surface ?? "#ffffff"];
  const share = part(i) / 100;
  const mixed = [1, 3, 5].map((at) => Math.round(parseInt(ink.slice(at, at + 2), 16) * share + parseInt(surface.slice(at, at + 2), 16) * (1 - share)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}
