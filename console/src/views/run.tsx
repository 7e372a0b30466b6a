import { address } from "../model/route.ts";
import { shown } from "../model/run.ts";
import { End, Log, Scroll } from "./log.tsx";

/** A run by itself. */
export function RunView() {
  const run = shown.value;
  const { conversationId = "" } = run?.timeline ?? {};
  return (
    <Scroll>
      <section class="column" aria-label="Timeline">
        {run && (
          <Log run={run}>
            {run.runId.startsWith("turn_") && conversationId && <a href={address("chat", conversationId)}>Open the conversation</a>}
          </Log>
        )}
        {run && <End run={run} />}
      </section>
    </Scroll>
  );
}
