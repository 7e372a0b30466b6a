import { useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Run } from "../api/types.ts";
import { address } from "../model/route.ts";
import { word } from "../model/timeline.ts";
import { useLoaded } from "./load.ts";
import { Pages, usePlace } from "./pages.tsx";
import { time } from "./text.ts";
import { StateMark } from "./timeline.tsx";

const STATES = ["QUEUED", "RUNNING", "WAITING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED", "IN_DOUBT"];

interface Page {
  runs?: Run[];
  nextPageToken?: string;
}

export function RunsView() {
  const [state, setState] = useState("UNSPECIFIED");
  const [subject, setSubject] = useState("");
  const place = usePlace();
  const request = { state: `RUN_STATE_${state}`, subject, pageSize: 50, pageToken: place.pageToken };
  const load = () => call<Page>("run.v1.RunService/ListRuns", request);
  const page = useLoaded(load, JSON.stringify(request));
  const runs = page.value?.runs ?? [];
  const next = page.value?.nextPageToken;
  return (
    <div class="scroll">
      <section class="column" aria-label="Runs">
        <div class="choices">
          <label>
            <span>State</span>
            <select
              value={state}
              onChange={(event) => {
                place.go([]);
                setState(event.currentTarget.value);
              }}
            >
              <option value="UNSPECIFIED">any</option>
              {STATES.map((state) => (
                <option key={state} value={state}>{word(`RUN_STATE_${state}`)}</option>
              ))}
            </select>
          </label>
          <label>
            <span>Subject</span>
            <input
              value={subject}
              maxLength={256}
              placeholder="any"
              onChange={(event) => {
                place.go([]);
                setSubject(event.currentTarget.value.trim());
              }}
            />
          </label>
        </div>
        {page.problem && <p class="problem" role="alert">{page.problem}</p>}
        {page.value && runs.length === 0 && <p class="empty">No runs match.</p>}
        <ul class="list">
          {runs.map((run) => (
            <li key={run.runId}>
              <a href={address("run", run.runId)}>
                <StateMark state={word(run.state)} reason={reason(run)} />
                <span class="name">{run.subject || "text"}</span>
                <time dateTime={run.createTime}>{time(run.createTime)}</time>
                <code class="id">{run.runId}</code>
              </a>
            </li>
          ))}
        </ul>
        <Pages place={place} next={next} />
      </section>
    </div>
  );
}

/** Returns the reason for which a run waits, where that is not a node. */
function reason({ waitReason }: Run): string {
  return waitReason === "WAIT_REASON_NODES" ? "" : word(waitReason);
}
