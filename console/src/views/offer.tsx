import { useState } from "preact/hooks";

import { list } from "../api/connect.ts";
import type { Profile } from "../api/types.ts";
import { may } from "../model/caller.ts";
import { addTool } from "../model/inventory.ts";
import { useLoaded } from "./load.ts";

/** Adds a tool to what an agent may use, where the caller may change agents. */
export function Offer({ toolId }: { toolId: string }) {
  return may("define") ? <Form toolId={toolId} /> : null;
}

function Form({ toolId }: { toolId: string }) {
  const profiles = useLoaded(() => list<Profile>("agent.v1.ProfileService/ListProfiles", "profiles"), "");
  const [profileId, setProfileId] = useState("");
  const [said, setSaid] = useState({ text: "", wrong: false });
  const add = async () => {
    try {
      setSaid({ text: `${await addTool(profileId, toolId)} may use ${toolId}.`, wrong: false });
    } catch (error) {
      setSaid({ text: (error as Error).message, wrong: true });
    }
  };
  return (
    <form
      class="choices offer"
      aria-label={`Offer ${toolId} to an agent`}
      onSubmit={(event) => {
        event.preventDefault();
        void add();
      }}
    >
      <label>
        <span>Agent</span>
        <select required value={profileId} onChange={(event) => setProfileId(event.currentTarget.value)}>
          <option value="" />
          {profiles.value?.map(({ profileId, name }) => <option key={profileId} value={profileId}>{name || profileId}</option>)}
        </select>
      </label>
      <button type="submit" class="quiet-button">Add to its tools</button>
      {said.text && <p class={said.wrong ? "problem" : "note"} role="status">{said.text}</p>}
    </form>
  );
}
