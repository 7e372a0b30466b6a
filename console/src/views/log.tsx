import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { may } from "../model/caller.ts";
import { address } from "../model/route.ts";
import { cancel, isOpen, type Shown } from "../model/run.ts";
import { waitsFor } from "../model/waiting.ts";
import { Items, StateMark } from "./timeline.tsx";

/** Pixels from the end within which a view follows what is added. */
const NEAR_END = 80;

/** A part of the page that scrolls, and stays at its end as its content grows while it is there. */
export function Scroll({ children }: { children: ComponentChildren }) {
  const scroller = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  useEffect(() => {
    const element = scroller.current;
    if (!element?.firstElementChild) return;
    const sizes = new ResizeObserver(() => {
      if (following.current) element.scrollTop = element.scrollHeight;
    });
    for (const sized of [element, element.firstElementChild]) sizes.observe(sized);
    return () => sizes.disconnect();
  }, []);
  const follow = () => {
    const element = scroller.current;
    if (!element) return;
    following.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
  };
  return (
    <div class="scroll" ref={scroller} onScroll={follow}>
      {children}
    </div>
  );
}

/** A run as it grows: its state and the events in it; `children` stand beside its state. */
export function Log({ run, children }: { run: Shown; children?: ComponentChildren }) {
  const [problem, setProblem] = useState("");
  const { runId, timeline } = run;
  const running = !timeline.ended;
  const reason = waitsFor(timeline);
  const stop = () => cancel(run).then(() => setProblem(""), (error: Error) => setProblem(error.message));
  return (
    <>
      <div class="runhead">
        <StateMark state={reason ? "waiting" : timeline.state} reason={reason} />
        {runId ? <a class="id" href={address("run", runId)}><code>{runId}</code></a> : <span class="id">starting</span>}
        {children}
        {!run.connected && <span class="quiet">connecting again</span>}
        {isOpen(run) && runId && may("invoke") && (
          <button type="button" class="quiet-button" onClick={() => void stop()}>
            Cancel
          </button>
        )}
      </div>
      <div role="log" aria-live="polite" aria-busy={running}>
        <Items items={timeline.items} conversationId={timeline.conversationId} />
      </div>
      {(run.problem || problem) && <p class="problem" role="alert">{run.problem || problem}</p>}
    </>
  );
}

/** The state in which a run ended, and the reason. */
export function End({ run }: { run: Shown }) {
  const { ended, outcome, state } = run.timeline;
  if (!ended) return null;
  const message = outcome?.error?.message ?? outcome?.error?.code;
  return (
    <p class={`end ${state === "succeeded" ? "" : "wrong"}`} role="status">
      {message ? `${state}: ${message}` : state}
    </p>
  );
}
