import { useRef, useState } from "preact/hooks";

import { list } from "../api/connect.ts";
import type { Profile } from "../api/types.ts";
import { opened, say } from "../model/conversation.ts";
import { go } from "../model/route.ts";
import { cancel, isOpen, start, steer, type Shown } from "../model/run.ts";
import { useLoaded } from "./load.ts";

/** The choice beside the agents: text that a model wrote elsewhere. */
const MODEL_TEXT = "";
/** The placeholder of the box while a turn runs. */
const STEERS = "Message for the turn that runs (Enter sends, Escape cancels it)";

/** Writes the next message of the conversation that is shown: its last turn is `last`, its last agent `agent`. */
export function Composer({ last, agent }: { last: Shown | undefined; agent: string | undefined }) {
  const profiles = useLoaded(() => list<Profile>("agent.v1.ProfileService/ListProfiles", "profiles"), "");
  const [chosen, setChosen] = useState<{ id: string; profileId: string }>();
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const { id, loading } = opened.value;
  // A conversation continues with its last agent, unless another one is chosen in it.
  const usual = profiles.value?.find((profile) => profile.profileId === agent) ?? profiles.value?.[0];
  const profileId = chosen?.id === id ? chosen.profileId : (usual?.profileId ?? MODEL_TEXT);
  const busy = isOpen(last);
  // What is said to an agent while its turn runs goes into that turn.
  const steers = busy && last !== undefined && last.runId !== "" && profileId !== MODEL_TEXT;
  const ready = text.trim() !== "" && !loading && (!busy || steers || profileId === MODEL_TEXT);

  const attempt = (asked: Promise<void>) => void asked.then(() => setProblem(""), (error: Error) => setProblem(error.message));
  const send = () => {
    if (!ready) return;
    setText("");
    box.current?.focus();
    if (steers && last) attempt(steer(last, text));
    else if (profileId === MODEL_TEXT) start({ calls: { text, conversationId: id } }, (runId) => go("run", runId));
    else say(profileId, text);
  };
  const keydown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && busy && last) {
      attempt(cancel(last));
    }
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="column">
        <div class="choices">
          <label>
            <span>To</span>
            <select value={profileId} onChange={(event) => setChosen({ id, profileId: event.currentTarget.value })}>
              {profiles.value?.map((profile) => (
                <option key={profile.profileId} value={profile.profileId}>
                  {profile.name || profile.profileId}
                </option>
              ))}
              <option value={MODEL_TEXT}>Model text</option>
            </select>
          </label>
        </div>
        <div class="write">
          <textarea
            ref={box}
            rows={3}
            aria-label={profileId ? "Message" : "Model text"}
            placeholder={steers ? STEERS : profileId ? "Message (Enter sends, Escape cancels)" : "<ACTION>…</ACTION>"}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={keydown}
          />
          <button type="submit" class="primary" disabled={!ready}>
            {steers ? "Steer" : "Send"}
          </button>
        </div>
        {(problem || profiles.problem) && <p class="problem" role="alert">{problem || profiles.problem}</p>}
      </div>
    </form>
  );
}
