import { JOB_COLOURS, type Scheme } from "../theme/tokens";

/** A job's colour is its number mod 12, everywhere. */
export const jobIndex = (number: number) => ((number % 12) + 12) % 12;
export const jobColour = (number: number) => `var(--j${jobIndex(number)})`;
export const jobInk = (number: number) => `var(--j${jobIndex(number)}-ink)`;
export const jobHatch = (number: number) => `var(--j${jobIndex(number)}-hatch)`;
export const jobDots = (number: number) => `var(--j${jobIndex(number)}-dots)`;
export const jobHex = (number: number, scheme: Scheme) => JOB_COLOURS[scheme][jobIndex(number)] ?? "#888888";
