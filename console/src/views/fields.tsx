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

interface Described {
  "aria-describedby"?: string;
  "aria-invalid"?: boolean;
}

/** The control of a field; `described` names the texts beside it. */
export function Control({ field, value, change, described = {} }: { field: Field; value: string; change: (value: string) => void; described?: Described }) {
  const { control, required, choices, labels = {} } = field;
  const edited = (event: { currentTarget: { value: string } }) => change(event.currentTarget.value);
  switch (control) {
    case "boolean":
    case "choice":
      return (
        <select value={value} required={required} onChange={edited} {...described}>
          <option value="" />
          {(control === "boolean" ? ["true", "false"] : choices).map((choice) => (
            <option key={choice} value={choice}>{labels[choice] ?? choice}</option>
          ))}
        </select>
      );
    case "number":
      return <input type="number" step="any" value={value} required={required} onInput={edited} {...described} />;
    case "line":
      return <input value={value} required={required} onInput={edited} {...described} />;
    case "secret":
      return <input type="password" autocomplete="new-password" value={value} onInput={edited} {...described} />;
    default:
      return <textarea rows={control === "json" ? 4 : 2} value={value} required={required} onInput={edited} {...described} />;
  }
}
