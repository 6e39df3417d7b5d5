import { useSyncExternalStore, type CSSProperties } from "react";
import { jobColour, jobDots, jobHatch, jobInk } from "./colour";

/** Which job the pointer rests on: it stays lit on the whole page, the others fade. One style rule does it. */
let current: number | null = null;
const listeners = new Set<() => void>();
const sheet = new CSSStyleSheet();
document.adoptedStyleSheets.push(sheet);

function set(number: number | null): void {
  if (number === current) return;
  current = number;
  const root = document.documentElement;
  if (number === null) root.removeAttribute("data-lit");
  else root.setAttribute("data-lit", String(number));
  sheet.replaceSync(number === null ? "" : `[data-lit] [data-job="${number}"]{opacity:1}`);
  for (const listener of listeners) listener();
}

export function useLit(): number | null {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}

/** Spread on whatever stands for a job. */
export function jobMark(number: number) {
  return {
    "data-job": number,
    onPointerEnter: () => set(number),
    onPointerLeave: () => set(null),
    onFocus: () => set(number),
    onBlur: () => set(null),
  };
}

export const lightJob = set;

/** The colour of a job and what reads on it, for `.job-paint` and its kin. */
export function jobPaint(number: number): CSSProperties {
  return {
    "--job": jobColour(number), "--job-ink": jobInk(number), "--job-hatch": jobHatch(number), "--job-dots": jobDots(number),
  } as CSSProperties;
}
