import { useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { PluginOptions } from "../api/types.ts";
import { may } from "../model/caller.ts";
import { changesOf, optionFields, problemsOf, type Edits, type OptionField } from "../model/options.ts";
import { Allowed } from "./caller.tsx";
import { Control } from "./fields.tsx";
import { useLoaded } from "./load.ts";

const SERVICE = "registry.v1.PluginService";

/** The types whose controls do not show how a value is written. */
const TYPES: Record<string, string> = { integer: "whole number", number: "number", string_list: "one a line", json: "JSON", secret: "never shown" };

/** The options of a plugin; nothing if it declares none. */
export function OptionsForm({ name }: { name: string }) {
  const [reads, setReads] = useState(0);
  const loaded = useLoaded(() => call<PluginOptions>(`${SERVICE}/GetPluginOptions`, { name }), `${name} ${reads}`);
  const [saved, setSaved] = useState<PluginOptions>();
  const [edits, setEdits] = useState<Edits>({});
  const [problems, setProblems] = useState<Record<string, string[]>>({});
  const [isSaved, setIsSaved] = useState(false);
  const { options = [], etag = "" } = saved ?? loaded.value ?? {};
  const fields = optionFields(options);
  const edit = (key: string, value: string | null) => {
    setIsSaved(false);
    setEdits({ ...edits, [key]: value });
  };
  /** Forgets what was changed, and reads the values again. */
  const discard = () => {
    setSaved(undefined);
    setEdits({});
    setProblems({});
    setReads(reads + 1);
  };
  const save = async () => {
    try {
      const request = { name, etag, ...changesOf(fields, edits) };
      setSaved(await call<PluginOptions>(`${SERVICE}/UpdatePluginOptions`, request));
      setEdits({});
      setProblems({});
      setIsSaved(true);
    } catch (error) {
      setIsSaved(false);
      setProblems(problemsOf(error, fields));
    }
  };
  if (loaded.problem) return <p class="problem" role="alert">{loaded.problem}</p>;
  if (fields.length === 0) return null;
  return (
    <form
      class="part"
      aria-label={`Options of ${name}`}
      // The server names everything that is wrong at once.
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <h3>Options</h3>
      <fieldset class="views" disabled={!may("administer")}>
        {fields.map((field) => (
          <OptionRow key={field.name} field={field} edit={edits[field.name]} problems={problems[field.name] ?? []} change={(value) => edit(field.name, value)} />
        ))}
      </fieldset>
      {problems[""]?.map((problem) => <p key={problem} class="problem" role="alert">{problem}</p>)}
      <Allowed permission="administer">
        <p class="buttons">
          <button type="submit" class="primary" disabled={Object.keys(edits).length === 0}>Save</button>
          {Object.keys(edits).length > 0 && <button type="button" class="quiet-button" onClick={discard}>Discard the changes</button>}
          {isSaved && <span class="note" role="status">Saved.</span>}
        </p>
      </Allowed>
    </form>
  );
}

/** An option with its value, and the problems of the value that was sent last. */
function OptionRow({
  field,
  edit,
  problems,
  change,
}: {
  field: OptionField;
  edit: string | null | undefined;
  problems: string[];
  change: (value: string | null) => void;
}) {
  const { name, title, type, description, required, bounds, initial, hasDefault, isSet, isMissing } = field;
  const clear = hasDefault ? "Restore the default" : "Clear";
  const notes = [TYPES[type], bounds, type === "secret" && isSet && "it is set"].filter(Boolean);
  const described = { "aria-describedby": `${name}-notes`, "aria-invalid": problems.length > 0 };
  return (
    <div class="field">
      <label class="field-label">
        <span>
          {title}
          {required && <em> required</em>}
          {isMissing && <em class="needed"> needed</em>}
        </span>
        <Control field={field} value={edit === undefined ? initial : (edit ?? "")} change={change} described={described} />
      </label>
      <div id={`${name}-notes`}>
        {problems.map((problem) => <p key={problem} class="problem" role="alert">{problem}</p>)}
        {description && <p><small>{description}</small></p>}
        {notes.length > 0 && <p><small>{notes.join(", ")}</small></p>}
      </div>
      {isSet && edit !== null && may("administer") && (
        <button type="button" class="quiet-button" aria-label={`${clear}: ${title}`} onClick={() => change(null)}>
          {clear}
        </button>
      )}
      {edit === null && <p class="note">{`Save to ${hasDefault ? "restore the default" : "clear it"}.`}</p>}
    </div>
  );
}
