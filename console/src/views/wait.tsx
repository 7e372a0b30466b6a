import { useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Question } from "../api/types.ts";
import { isUnlocked } from "../model/caller.ts";
import { collect, fields } from "../model/form.ts";
import { address } from "../model/route.ts";
import type { Pause } from "../model/timeline.ts";
import { Allowed } from "./caller.tsx";
import { Fields } from "./fields.tsx";
import { pretty, time } from "./text.ts";

/** A question in the list of them; `answered` is called after its answer. */
export function QuestionEntry({ question: { runId, parentPath = [], wait }, answered }: { question: Question; answered: () => void }) {
  return (
    <article>
      <WaitRow pause={{ kind: "wait", key: wait.waitId, runId, wait }} answered={answered} />
      <a href={address("run", parentPath[0] ?? runId)}>Open the run</a>
    </article>
  );
}

/** The wait of a node; a question to a person can be answered here. */
export function WaitRow({ pause: { runId, wait, woken }, answered }: { pause: Pause; answered?: () => void }) {
  const asks = wait.kind === "WAIT_KIND_HUMAN_INPUT";
  return (
    <div class="wait">
      <p class="note">
        <code class="name">{wait.nodeId}</code> {woken === undefined ? waitsFor(wait) : `waited: ${woken}`}
      </p>
      {asks && woken === undefined && (
        <>
          <p class="prose">{wait.name}</p>
          {wait.contextJson && <pre class="input" aria-label="Context">{pretty(wait.contextJson)}</pre>}
          <Allowed permission="invoke">
            <Answer runId={runId} wait={wait} answered={answered} />
          </Allowed>
        </>
      )}
    </div>
  );
}

function waitsFor({ kind, name, due, assignees = [] }: Pause["wait"]): string {
  const until = due ? ` until ${time(due)}` : "";
  if (kind === "WAIT_KIND_SIGNAL") return `waits for the signal ${name}${until}`;
  if (kind === "WAIT_KIND_TIMER") return `waits${until}`;
  if (kind === "WAIT_KIND_RETRY") return `waits for another attempt${until}`;
  return `waits for ${assignees.join(", ") || "an answer"}${until}`;
}

function Answer({ runId, wait, answered }: { runId: string; wait: Pause["wait"]; answered: (() => void) | undefined }) {
  const [problem, setProblem] = useState("");
  const [done, setDone] = useState(false);
  const send = async (answer: unknown) => {
    try {
      // Where callers have keys, the server writes down who answered.
      const by = isUnlocked() ? { answeredBy: "console" } : {};
      const request = { runId, waitId: wait.waitId, answerJson: JSON.stringify(answer), ...by };
      await call("run.v1.RunService/AnswerWait", request);
      setProblem("");
      setDone(true);
      answered?.();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  if (done) return <p class="note">answered</p>;
  return (
    <div class="answer">
      {wait.choices?.map(({ value, label }) => (
        <button key={value} type="button" class="quiet-button" onClick={() => void send(value)}>
          {label || value}
        </button>
      ))}
      {(wait.schemaJson || !wait.choices?.length) && (
        <Form schemaJson={wait.schemaJson ?? ""} send={send} failed={setProblem} />
      )}
      {problem && <p class="problem" role="alert">{problem}</p>}
    </div>
  );
}

/** A form for the fields of a schema, or a text without one. */
function Form({ schemaJson, send, failed }: { schemaJson: string; send: (answer: unknown) => Promise<void>; failed: (problem: string) => void }) {
  const form = fields(schemaJson);
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setText] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    try {
      void send(form.length > 0 ? collect(form, values) : text);
    } catch (error) {
      failed((error as Error).message);
    }
  };
  return (
    <form onSubmit={submit} aria-label="Answer">
      {form.length > 0 ? (
        <Fields fields={form} values={values} change={(name, value) => setValues({ ...values, [name]: value })} />
      ) : (
        <label class="field">
          <span>Answer</span>
          <textarea rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      )}
      <button type="submit" class="primary">Answer</button>
    </form>
  );
}
