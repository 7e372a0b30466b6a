import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Call, Wait } from "../api/types.ts";
import { address } from "../model/route.ts";
import { DoubtEntry } from "./doubt.tsx";
import { useLoaded } from "./load.ts";
import { WaitRow } from "./wait.tsx";

interface Question {
  runId: string;
  parentPath?: string[];
  subject?: string;
  wait: Wait;
}

/** What waits for people: what they are asked, and the calls in doubt, over all runs, each to be decided here. */
export function QuestionsView() {
  return (
    <div class="scroll">
      <Section<Question>
        title="Questions"
        empty="Nothing is asked."
        method="run.v1.RunService/ListQuestions"
        field="questions"
        draw={({ runId, parentPath = [], wait }) => (
          <article key={wait.waitId}>
            <a href={address("run", parentPath[0] ?? runId)}>
              <code class="id">{parentPath[0] ?? runId}</code>
            </a>
            <WaitRow pause={{ kind: "wait", key: wait.waitId, runId, wait }} />
          </article>
        )}
      />
      <Section<Call>
        title="Calls in doubt"
        empty="No call is in doubt."
        method="registry.v1.CallService/ListCalls"
        condition={{ state: "CALL_STATE_IN_DOUBT" }}
        field="calls"
        draw={(doubtful, refresh) => (
          <DoubtEntry key={`${doubtful.effectId} ${doubtful.attempt}`} doubtful={doubtful} decided={refresh} />
        )}
      />
    </div>
  );
}

/** A list, a page at a time; `field` holds the elements in the answer of `method`. */
function Section<Element>({
  title,
  empty,
  method,
  condition = {},
  field,
  draw,
}: {
  title: string;
  empty: string;
  method: string;
  condition?: object;
  field: string;
  draw: (element: Element, refresh: () => void) => ComponentChildren;
}) {
  const [token, setToken] = useState("");
  const [round, setRound] = useState(0);
  const refresh = () => {
    setToken("");
    setRound(round + 1);
  };
  const load = () => call<Record<string, unknown>>(method, { ...condition, pageSize: 50, pageToken: token });
  const page = useLoaded(load, `${token} ${round}`);
  const elements = (page.value?.[field] ?? []) as Element[];
  const next = page.value?.["nextPageToken"] as string | undefined;
  return (
    <section class="column waits" aria-label={title}>
      <h2>{title}</h2>
      {page.problem && <p class="problem" role="alert">{page.problem}</p>}
      {page.value && elements.length === 0 && <p class="quiet">{empty}</p>}
      {elements.map((element) => draw(element, refresh))}
      <div class="pages">
        <button type="button" class="quiet-button" onClick={refresh}>
          Refresh
        </button>
        <button type="button" class="quiet-button" disabled={!next} onClick={() => next && setToken(next)}>
          Older
        </button>
      </div>
    </section>
  );
}
