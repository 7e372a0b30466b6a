import { useEffect, useRef } from "preact/hooks";

import { cancel, shown } from "../model/run.ts";
import { waitsFor } from "../model/timeline.ts";
import { Composer } from "./composer.tsx";
import { Items, StateMark } from "./timeline.tsx";

/** Pixels from the end within which the view follows what is added. */
const NEAR_END = 80;

export function RunView() {
  const run = shown.value;
  const scroller = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  useEffect(() => {
    const element = scroller.current;
    if (element && following.current) element.scrollTop = element.scrollHeight;
  }, [run?.timeline]);
  const follow = () => {
    const element = scroller.current;
    if (!element) return;
    following.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
  };
  return (
    <>
      <div class="scroll" ref={scroller} onScroll={follow}>
        <section class="column" aria-label="Timeline">
          {run ? <Log /> : <Welcome />}
        </section>
      </div>
      <Composer />
    </>
  );
}

function Welcome() {
  return (
    <div class="empty">
      <h2>Send a message to an agent</h2>
      <p>Or choose model text and paste what a model wrote. Its calls are carried out, and everything that happens is shown here.</p>
    </div>
  );
}

function Log() {
  const run = shown.value;
  if (!run) return null;
  const { timeline } = run;
  const running = !timeline.ended;
  const reason = waitsFor(timeline);
  return (
    <>
      <div class="runhead">
        <StateMark state={reason ? "waiting" : timeline.state} reason={reason} />
        <code class="id">{run.runId || "starting"}</code>
        {!run.connected && <span class="quiet">connecting again</span>}
        {running && run.runId && !run.problem && (
          <button type="button" class="quiet-button" onClick={() => void cancel()}>
            Cancel
          </button>
        )}
      </div>
      <div role="log" aria-live="polite" aria-busy={running}>
        <Items items={timeline.items} />
      </div>
      {timeline.ended && <End />}
      {run.problem && <p class="problem" role="alert">{run.problem}</p>}
    </>
  );
}

function End() {
  const outcome = shown.value?.timeline.outcome;
  const state = shown.value?.timeline.state ?? "";
  const message = outcome?.error?.message ?? outcome?.error?.code;
  return (
    <p class={`end ${state === "succeeded" ? "" : "wrong"}`} role="status">
      {message ? `${state}: ${message}` : state}
    </p>
  );
}
