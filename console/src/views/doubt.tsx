import { useEffect, useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Call } from "../api/types.ts";
import { address } from "../model/route.ts";
import { word, type Doubt } from "../model/timeline.ts";
import { Allowed } from "./caller.tsx";
import { pretty, time } from "./text.ts";

/** Decisions about a call in doubt: the word of the contract, that of the page, and its meaning. */
const DECISIONS = [
  { decision: "TOOK_EFFECT", title: "Took effect", meaning: "The call succeeded, with this output." },
  { decision: "DID_NOT", title: "Did not", meaning: "The call failed, and may be tried again." },
  { decision: "REPEAT", title: "Repeat", meaning: "The call is made again. If it took effect, that happens twice." },
] as const;

/** A call in doubt in a timeline, which people can decide about here. */
export function DoubtRow({ doubt: { effectId, toolId, decided } }: { doubt: Doubt }) {
  return (
    <div class="wait">
      <p class="note">
        <code class="name">{toolId}</code> {decided ?? "It is not known whether the call took effect."}
      </p>
      {decided === undefined && <Undecided effectId={effectId} />}
    </div>
  );
}

/** A call in doubt in the list of them; `decided` is called after its decision. */
export function DoubtEntry({ doubtful, decided }: { doubtful: Call; decided: () => void }) {
  const { effectId, toolId, runId, dispatchTime } = doubtful;
  return (
    <article>
      <p class="note">
        <code class="name">{toolId}</code>
        {dispatchTime && <> dispatched <time dateTime={dispatchTime}>{time(dispatchTime)}</time></>}
      </p>
      <p><code class="id">{effectId}</code></p>
      {runId && <a href={address("run", runId)}>Open the run</a>}
      <Undecided effectId={effectId} decided={decided} />
    </article>
  );
}

function Undecided({ effectId, decided }: { effectId: string; decided?: () => void }) {
  const [doubtful, setDoubtful] = useState<Call>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const shown = call<{ call: Call }>("registry.v1.CallService/GetCall", { effectId });
    shown.then(({ call }) => setDoubtful(call), (error: Error) => setProblem(error.message));
  }, [effectId]);
  const error = doubtful?.result?.error;
  const resolve = async (request: object) => {
    try {
      const method = "registry.v1.CallService/ResolveCall";
      const resolved = await call<{ call: Call }>(method, { effectId, ...request });
      setProblem("");
      setDoubtful(resolved.call);
      decided?.();
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <div class="answer">
      {error && <p class="note wrong">{[error.code, error.message].filter(Boolean).join(": ")}</p>}
      {doubtful?.argumentsJson && <pre class="input" aria-label="Arguments">{pretty(doubtful.argumentsJson)}</pre>}
      {doubtful?.state === "CALL_STATE_IN_DOUBT" && (
        <Allowed permission="operate">
          <Decide resolve={resolve} />
        </Allowed>
      )}
      {doubtful?.resolution && <p class="note">{`decided: ${word(doubtful.resolution.decision)}`}</p>}
      {problem && <p class="problem" role="alert">{problem}</p>}
    </div>
  );
}

function Decide({ resolve }: { resolve: (request: object) => Promise<void> }) {
  const [output, setOutput] = useState("");
  const [reason, setReason] = useState("");
  const send = (decision: string) => {
    const outputJson = decision === "TOOK_EFFECT" ? { outputJson: output } : {};
    void resolve({ decision: `CALL_DECISION_${decision}`, reason, ...outputJson });
  };
  return (
    <form aria-label="Decide" onSubmit={(event) => event.preventDefault()}>
      <label class="field">
        <span>Output, if it took effect (JSON, optional)</span>
        <textarea rows={2} placeholder="null" value={output} onInput={(event) => setOutput(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Reason (optional)</span>
        <input value={reason} maxLength={500} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      {DECISIONS.map(({ decision, title, meaning }) => (
        <p key={decision} class="decision">
          <button type="button" class="quiet-button" onClick={() => send(decision)}>{title}</button>
          <small>{meaning}</small>
        </p>
      ))}
    </form>
  );
}
