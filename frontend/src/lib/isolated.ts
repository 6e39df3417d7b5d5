/** Letters that run from right to left, and marks that turn the direction: older names may have them. */
const TURNS = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}\u200f\u202a-\u202e\u2066-\u2069]/u;

/** A name within text that no element can mark up (titles, labels, charts): its direction stays its own. */
export const isolated = (name: string): string => (TURNS.test(name) ? `\u2068${name}\u2069` : name);
