// The fields of a form, from the JSON Schema of a tool's parameters.

export interface Field {
  name: string;
  description: string;
  required: boolean;
  control: "text" | "line" | "secret" | "number" | "boolean" | "choice" | "json";
  choices: string[];
  /** The choices as people read them, where they are others. */
  labels?: Record<string, string>;
  initial: string;
}

interface Schema {
  type?: unknown;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
}

export function fields(schemaJson = "{}"): Field[] {
  const schema = JSON.parse(schemaJson || "{}") as Schema;
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, property]) => ({
    name,
    description: property.description ?? "",
    required: required.has(name),
    control: control(property),
    choices: (property.enum ?? []).map(write),
    initial: property.default === undefined ? "" : write(property.default),
  }));
}

/** Returns the arguments that were filled in; throws if one is not of its type. */
export function collect(fields: Field[], values: Record<string, string>): Record<string, unknown> {
  const filled = fields.filter((field) => (values[field.name] ?? "") !== "");
  return Object.fromEntries(filled.map((field) => [field.name, value(field, values[field.name] ?? "")]));
}

function control({ type, enum: choices }: Schema): Field["control"] {
  if (choices?.every((choice) => typeof choice === "string")) return "choice";
  if (type === "string") return "text";
  if (type === "number" || type === "integer") return "number";
  return type === "boolean" ? "boolean" : "json";
}

function value({ name, control }: Field, text: string): unknown {
  if (control === "text" || control === "choice") return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is not a valid ${control === "json" ? "JSON value" : control}`);
  }
}

function write(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
