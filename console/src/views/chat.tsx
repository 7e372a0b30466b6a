import { may } from "../model/caller.ts";
import { openConversation, opened, showEarlier, type Part } from "../model/conversation.ts";
import { address } from "../model/route.ts";
import { isOpen } from "../model/run.ts";
import { Composer } from "./composer.tsx";
import { Conversations } from "./conversations.tsx";
import { FilesPanel } from "./files.tsx";
import { End, Log, Scroll } from "./log.tsx";

/** The conversations, and the one that is open. */
export function ChatView({ id }: { id: string }) {
  const { parts } = opened.value;
  const turns = parts.flatMap((part) => ("turn" in part ? [part.turn.run.value] : []));
  const last = turns.at(-1);
  const agent = turns.findLast(({ timeline }) => timeline.subject !== "")?.timeline.subject;
  // The list is read again when a turn begins a conversation or ends.
  const changes = `${opened.value.id} ${isOpen(last)}`;
  return (
    <div class={id || parts.length > 0 ? "chats open" : "chats"}>
      <Conversations chosen={opened.value.id} changes={changes} />
      <div class="conversation">
        <Scroll>
          <section class="column" aria-label="Conversation">
            <Head />
            {parts.map((part) => <PartRow key={part.key} part={part} />)}
          </section>
        </Scroll>
        {may("invoke") && <Composer last={last} agent={agent} />}
      </div>
      <FilesPanel />
    </div>
  );
}

function Head() {
  const { id, earlier, parts, loading, problem } = opened.value;
  if (!id && parts.length === 0) {
    if (!may("invoke")) return <p class="empty">Choose a conversation. To send a message, the permission invoke is missing.</p>;
    return (
      <div class="empty">
        <h2>Send a message to an agent</h2>
        <p>Or choose model text and paste what a model wrote. Its calls are carried out, and everything that happens is shown.</p>
      </div>
    );
  }
  return (
    <>
      <div class="runhead names">
        <a class="back" href={address("chat")} onClick={() => openConversation("")}>All conversations</a>
        <code class="id">{id || "a new conversation"}</code>
        {loading && <span class="quiet">loading</span>}
      </div>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {earlier.length > 0 && (
        <button type="button" class="quiet-button" onClick={showEarlier}>{`Earlier (${earlier.length})`}</button>
      )}
    </>
  );
}

function PartRow({ part }: { part: Part }) {
  if ("turn" in part) {
    const run = part.turn.run.value;
    return (
      <article class="turn" aria-label={`Turn ${part.number}`}>
        <Log run={run} />
        {run.timeline.state !== "succeeded" && <End run={run} />}
      </article>
    );
  }
  const { role, text, calls = [] } = part.message;
  return (
    <article class={`turn item ${role === "CHAT_ROLE_USER" ? "input" : ""}`}>
      {text && <p class="prose">{text}</p>}
      {calls.map(({ name, argumentsJson }, at) => (
        <p key={at} class="note"><code class="name">{name}</code> <code>{argumentsJson}</code></p>
      ))}
    </article>
  );
}
