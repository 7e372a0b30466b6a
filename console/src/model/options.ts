// The options of a plugin as the fields of a form.

import { Refusal } from "../api/connect.ts";
import type { PluginOption } from "../api/types.ts";
import type { Field } from "./form.ts";

/** An option; `name` is its whole key, and `initial` its value as people write it. */
export interface OptionField extends Field {
  title: string;
  type: string;
  /** The bounds of its value, in words; empty if it has none. */
  bounds: string;
  hasDefault: boolean;
  /** Whether the value is the tenant's own. */
  isSet: boolean;
  /** Whether the plugin waits for a value. */
  isMissing: boolean;
}

/** The values that a person has changed, by key; null restores the default. */
export type Edits = Record<string, string | null>;

interface Declaration {
  required?: boolean;
  deprecated?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  options?: { value: string; label?: string }[];
}

const CONTROLS: Record<string, Field["control"]> = {
  string: "line",
  integer: "line",
  number: "line",
  boolean: "boolean",
  enum: "choice",
  json: "json",
  secret: "secret",
};

export function optionFields(options: PluginOption[]): OptionField[] {
  return options.map(({ key, type = "", displayName, description = "", declarationJson, valueJson = "", isSet = false, isMissing = false }) => {
    const declaration = JSON.parse(declarationJson || "{}") as Declaration;
    const { required = false, options: choices = [] } = declaration;
    return {
      name: key,
      title: displayName || key.split(".").at(-1) || key,
      type,
      description,
      required,
      control: CONTROLS[type] ?? "text",
      choices: choices.map(({ value }) => value),
      labels: Object.fromEntries(choices.map(({ value, label }) => [value, label || value])),
      initial: shown(type, valueJson),
      bounds: bounds(declaration),
      hasDefault: declaration.default !== undefined,
      isSet,
      isMissing,
    };
  });
}

/** Returns the parts of a request that sets options. The server reads the texts, by the type of each option. */
export function changesOf(fields: OptionField[], edits: Edits): { valuesJson: string; texts: Record<string, string> } {
  const values: Record<string, string | null> = {};
  const texts: Record<string, string> = {};
  for (const { name, type, initial } of fields) {
    const edit = edits[name];
    // A secret is never a text, and an empty one is none.
    if (edit === null || (type === "secret" && edit)) values[name] = edit;
    else if (edit !== undefined && edit !== initial && type !== "secret") texts[name] = type === "string_list" ? lines(edit) : edit;
  }
  return { valuesJson: Object.keys(values).length > 0 ? JSON.stringify(values) : "", texts };
}

/** Returns the problems of a refused change by the key of the option; others have the key "". */
export function problemsOf(error: unknown, fields: OptionField[]): Record<string, string[]> {
  const problems: Record<string, string[]> = {};
  const violations = error instanceof Refusal ? error.violations : [];
  for (const { field = "", description = "" } of violations) {
    const [, named = "", inside = ""] = /^(?:texts|values_json)\/([^/]*)(.*)$/.exec(field) ?? [];
    const key = fields.some(({ name }) => name === named) ? named : "";
    const place = key ? inside : field;
    (problems[key] ??= []).push(place ? `${place}: ${description}` : description);
  }
  if (violations.length === 0) problems[""] = [(error as Error).message];
  return problems;
}

/** Returns a value as a person writes it: a list one item a line. */
function shown(type: string, json: string): string {
  if (json === "" || type === "integer" || type === "number" || type === "boolean") return json;
  const value = JSON.parse(json) as unknown;
  if (type === "string_list" && Array.isArray(value)) return value.join("\n");
  return typeof value === "string" && type !== "json" ? value : JSON.stringify(value, null, 2);
}

function lines(text: string): string {
  const items = text.split("\n").map((item) => item.trim()).filter(Boolean);
  return items.length > 0 ? JSON.stringify(items) : "";
}

function bounds({ minimum, maximum, minLength, maxLength, minItems, maxItems, pattern, default: initial, deprecated }: Declaration): string {
  const parts = [
    range(minimum, maximum, ""),
    range(minLength || undefined, maxLength, " characters"),
    range(minItems || undefined, maxItems, " items"),
    pattern && `like ${pattern}`,
    initial !== undefined && `${typeof initial === "string" ? initial : JSON.stringify(initial)} by default`,
    deprecated && "deprecated",
  ];
  return parts.filter(Boolean).join(", ");
}

/** Words a range; the bounds of 64 bits are none. */
function range(least: number | undefined, most: number | undefined, unit: string): string {
  const isBound = (bound: number | undefined) => bound !== undefined && Math.abs(bound) <= Number.MAX_SAFE_INTEGER;
  if (isBound(least) && isBound(most)) return `${least} to ${most}${unit}`;
  if (isBound(least)) return `at least ${least}${unit}`;
  return isBound(most) ? `at most ${most}${unit}` : "";
}
