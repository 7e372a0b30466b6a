import { useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Wait } from "../api/types.ts";
import { address } from "../model/route.ts";
import { useLoaded } from "./load.ts";
import { WaitRow } from "./wait.tsx";

interface Page {
  questions?: { runId: string; parentPath?: string[]; subject?: string; wait: Wait }[];
  nextPageToken?: string;
}

/** What people are asked, over all runs, each with its answer. */
export function QuestionsView() {
  const [token, setToken] = useState("");
  const [round, setRound] = useState(0);
  const request = { pageSize: 50, pageToken: token };
  const load = () => call<Page>("run.v1.RunService/ListQuestions", request);
  const page = useLoaded(load, `${token} ${round}`);
  const questions = page.value?.questions ?? [];
  const next = page.value?.nextPageToken;
  return (
    <div class="scroll">
      <section class="column" aria-label="Questions">
        {page.problem && <p class="problem" role="alert">{page.problem}</p>}
        {page.value && questions.length === 0 && <p class="empty">Nothing is asked.</p>}
        {questions.map(({ runId, parentPath = [], wait }) => (
          <article key={wait.waitId}>
            <a href={address("run", parentPath[0] ?? runId)}>
              <code class="id">{parentPath[0] ?? runId}</code>
            </a>
            <WaitRow pause={{ kind: "wait", key: wait.waitId, runId, wait }} />
          </article>
        ))}
        <div class="pages">
          <button type="button" class="quiet-button" onClick={() => { setToken(""); setRound(round + 1); }}>
            Refresh
          </button>
          <button type="button" class="quiet-button" disabled={!next} onClick={() => next && setToken(next)}>
            Older
          </button>
        </div>
      </section>
    </div>
  );
}
