import type { JsonSchema } from "../api/types";
import { capital } from "./format";

export type Kind = "boolean" | "choice" | "integer" | "number" | "text" | "json";

/** One field of a form made from a JSON schema. */
export interface SchemaField {
  name: string;
  label: string;
  hint: string;
  kind: Kind;
  nullable: boolean;
  choices: (string | number)[];
  fallback: unknown;
}

/** A nullable type, `anyOf` with null, reads as the type itself. */
function core(schema: JsonSchema): { schema: JsonSchema; nullable: boolean } {
  const others = schema.anyOf?.filter((entry) => entry.type !== "null") ?? [];
  const nullable = schema.anyOf?.some((entry) => entry.type === "null") ?? false;
  const [only] = others;
  return others.length === 1 && only ? { schema: { ...schema, ...only, anyOf: undefined } as JsonSchema, nullable } : { schema, nullable };
}

function kindOf(schema: JsonSchema): Kind {
  if (schema.enum) return "choice";
  if (schema.type === "boolean" || schema.type === "integer" || schema.type === "number") return schema.type;
  return schema.type === "string" ? "text" : "json";
}

function bounds(schema: JsonSchema): string {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  if (low !== undefined && high !== undefined) return `${low} to ${high}.`;
  if (low !== undefined) return schema.minimum === undefined ? `Above ${low}.` : `At least ${low}.`;
  return high === undefined ? "" : `At most ${high}.`;
}

export function fieldsOf(schema: JsonSchema): SchemaField[] {
  return Object.entries(schema.properties ?? {}).map(([name, property]) => {
    const { schema: inner, nullable } = core(property);
    const kind = kindOf(inner);
    const parts = [property.description ?? inner.description ?? "", kind === "number" || kind === "integer" ? bounds(inner) : "", nullable ? "Empty: none." : ""];
    const plain = name.replaceAll("_", " ");
    const label = property.title && property.title.toLowerCase() !== plain ? property.title : capital(plain);
    return { name, label, hint: parts.filter(Boolean).join(" "), kind, nullable, choices: inner.enum ?? [], fallback: property.default };
  });
}

export function show(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** What was typed as the value that the schema asks for; what does not fit is sent as it stands and refused by name. */
export function parse(field: SchemaField, text: string): unknown {
  if (text.trim() === "") return field.nullable ? null : field.fallback;
  if (field.kind === "text") return text;
  if (field.kind === "choice") return field.choices.find((choice) => String(choice) === text) ?? text;
  if (field.kind === "json") {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      return text;
    }
  }
  const value = Number(text);
  return Number.isNaN(value) ? text : value;
}
