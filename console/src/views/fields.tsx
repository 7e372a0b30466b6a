import type { Field } from "../model/form.ts";

/** The fields of a form, from a JSON Schema. */
export function Fields({
  fields,
  values,
  change,
}: {
  fields: Field[];
  values: Record<string, string>;
  change: (name: string, value: string) => void;
}) {
  return (
    <>
      {fields.map((field) => (
        <label key={field.name} class="field">
          <span>
            <code>{field.name}</code>
            {field.required && <em>required</em>}
          </span>
          <Control field={field} value={values[field.name] ?? ""} change={(value) => change(field.name, value)} />
          {field.description && <small>{field.description}</small>}
        </label>
      ))}
    </>
  );
}

function Control({ field, value, change }: { field: Field; value: string; change: (value: string) => void }) {
  const edited = (event: { currentTarget: { value: string } }) => change(event.currentTarget.value);
  switch (field.control) {
    case "boolean":
    case "choice":
      return (
        <select value={value} required={field.required} onChange={edited}>
          <option value="" />
          {(field.control === "boolean" ? ["true", "false"] : field.choices).map((choice) => (
            <option key={choice} value={choice}>{choice}</option>
          ))}
        </select>
      );
    case "number":
      return <input type="number" step="any" value={value} required={field.required} onInput={edited} />;
    default:
      return <textarea rows={field.control === "json" ? 4 : 2} value={value} required={field.required} onInput={edited} />;
  }
}
