import { useRef, useState } from "preact/hooks";

import { list } from "../api/connect.ts";
import type { Profile } from "../api/types.ts";
import { go } from "../model/route.ts";
import { cancel, shown, start, steer } from "../model/run.ts";
import { useLoaded } from "./load.ts";

/** The choice beside the agents: text that a model wrote elsewhere. */
const MODEL_TEXT = "";
/** What the box says while a turn runs. */
const STEERS = "Message for the turn that runs (Enter sends, Escape cancels it)";

export function Composer() {
  const profiles = useLoaded(() => list<Profile>("agent.v1.ProfileService/ListProfiles", "profiles"), "");
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const [conversation, setConversation] = useState("");
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const profileId = chosen ?? profiles.value?.[0]?.profileId ?? MODEL_TEXT;
  const busy = shown.value !== undefined && !shown.value.timeline.ended && !shown.value.problem;

  // What is said to an agent while its turn runs goes into that turn.
  const steers = busy && shown.value?.runId.startsWith("turn_") === true;

  const send = () => {
    if (!text.trim() || (busy && !steers)) return;
    setText("");
    box.current?.focus();
    if (steers) {
      void steer(text);
      return;
    }
    const conversationId = conversation.trim();
    const target = profileId
      ? { agent: { profileId, userMessage: text, conversationId } }
      : { calls: { text, conversationId } };
    start(target, (runId) => go("run", runId));
  };
  const keydown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && busy) {
      void cancel();
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
            <select value={profileId} onChange={(event) => setChosen(event.currentTarget.value)}>
              {profiles.value?.map((profile) => (
                <option key={profile.profileId} value={profile.profileId}>
                  {profile.name || profile.profileId}
                </option>
              ))}
              <option value={MODEL_TEXT}>Model text</option>
            </select>
          </label>
          <label>
            <span>Conversation</span>
            <input
              value={conversation}
              maxLength={256}
              placeholder="new"
              onInput={(event) => setConversation(event.currentTarget.value)}
            />
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
          <button type="submit" class="primary" disabled={!text.trim() || (busy && !steers)}>
            {steers ? "Steer" : "Send"}
          </button>
        </div>
        {profiles.problem && <p class="problem" role="alert">{profiles.problem}</p>}
      </div>
    </form>
  );
}
