/** Letters that run from right to left, and marks that turn the direction: older names may have them. */
const TURNING = "\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufeff\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1efff}\\u200f\\u202a-\\u202e\\u2066-\\u2069";
const TURNS = new RegExp(`[${TURNING}]`, "u");
/** From the first such letter to the last one before a letter of another script or a mark that ends a part of a sentence. */
const PHRASE = new RegExp(`[${TURNING}](?:[^\\p{L};:,.()\\n]*[${TURNING}])*`, "gu");

/** A name within text that no element can mark up (titles, labels, charts): its direction stays its own. */
export const isolated = (name: string): string => (TURNS.test(name) ? `\u2068${name}\u2069` : name);

/** A sentence in which names of any direction may stand, without saying where: each keeps its direction to itself. */
export const sentenceOf = (text: string): string => (TURNS.test(text) ? text.replace(PHRASE, (phrase) => `\u2068${phrase}\u2069`) : text);
