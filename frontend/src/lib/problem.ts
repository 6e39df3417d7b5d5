/** A refusal, as ApiError has it. */
interface Refusal {
  message: string;
  errors?: { field: string; message: string }[];
}

export interface Problems {
  /** What was said of each field of the form. */
  at: Record<string, string>;
  /** What stands below the form; null where the fields say it all. */
  rest: string | null;
}

/** What a refusal says, sorted to the fields that a form has. */
export function problemsOf(error: Refusal | null, fields: string[]): Problems {
  if (!error) return { at: {}, rest: null };
  const at: Record<string, string> = {};
  let elsewhere = (error.errors ?? []).length === 0;
  for (const { field, message } of error.errors ?? []) {
    if (fields.includes(field)) at[field] ??= message;
    else elsewhere = true;
  }
  return { at, rest: elsewhere ? error.message : null };
}
