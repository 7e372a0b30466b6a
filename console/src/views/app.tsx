import { useEffect } from "preact/hooks";

import { access, ask, isIn } from "../model/caller.ts";
import { openConversation, opened } from "../model/conversation.ts";
import { count, poll } from "../model/inbox.ts";
import { address, go, route } from "../model/route.ts";
import { open } from "../model/run.ts";
import { Login, Who } from "./caller.tsx";
import { ChatView } from "./chat.tsx";
import { InboxView } from "./inbox.tsx";
import { PluginsView } from "./plugins.tsx";
import { RunView } from "./run.tsx";
import { RunsView } from "./runs.tsx";
import { ToolsView } from "./tools.tsx";
import { WorkflowsView } from "./workflows.tsx";

/** The views of the bar, in the order of the digits that open them. */
const VIEWS = [
  { view: "chat", title: "Chat" },
  { view: "runs", title: "Runs" },
  { view: "tools", title: "Tools" },
  { view: "workflows", title: "Workflows" },
  { view: "inbox", title: "Inbox" },
  { view: "plugins", title: "Plugins" },
] as const;

/** Admits the caller, then shows the views. They stay, though without use, when its key ends. */
export function App() {
  const { state, caller, problem } = access.value;
  useEffect(() => void ask(), []);
  return (
    <>
      <header class="bar">
        <h1>Tavern</h1>
        {caller && <Bar />}
        {isIn.value && <Who />}
      </header>
      {(state === "out" || problem) && (
        <section class="door" aria-label="Access">
          {problem && <p class="problem" role="alert">{problem}</p>}
          {state === "out" && <Login />}
          {state === "asking" && <p><button type="button" class="quiet-button" onClick={() => void ask()}>Try again</button></p>}
        </section>
      )}
      {caller && (
        <fieldset class="views" disabled={!isIn.value}>
          <Views />
        </fieldset>
      )}
    </>
  );
}

function Bar() {
  const { view } = route.value;
  return (
    <nav aria-label="Views">
      {VIEWS.map((entry, at) => (
        <a
          key={entry.view}
          href={link(entry.view)}
          aria-current={entry.view === (view === "run" ? "runs" : view) ? "page" : undefined}
          aria-keyshortcuts={`Alt+${at + 1}`}
          title={`Alt+${at + 1}`}
        >
          {entry.title}
          {entry.view === "inbox" && count.value && <span class="count">{count.value}</span>}
        </a>
      ))}
    </nav>
  );
}

function Views() {
  const { view, id } = route.value;
  useEffect(() => {
    if (view === "run" && id) open(id);
    if (view === "chat") openConversation(id);
  }, [view, id]);
  useEffect(() => {
    if (isIn.value && opened.value.problem) openConversation(opened.value.id);
  }, [isIn.value]);
  useEffect(() => {
    addEventListener("keydown", shortcut);
    return () => removeEventListener("keydown", shortcut);
  }, []);
  useEffect(poll, [isIn.value]);
  useEffect(() => {
    document.title = count.value ? `(${count.value}) Tavern` : "Tavern";
  }, [count.value]);
  return (
    <main class={`view ${view}`}>
      {view === "chat" && <ChatView id={id} />}
      {view === "run" && <RunView />}
      {view === "runs" && <RunsView />}
      {view === "inbox" && <InboxView />}
      {view === "tools" && <ToolsView id={id} />}
      {view === "workflows" && <WorkflowsView id={id} />}
      {view === "plugins" && <PluginsView id={id} />}
    </main>
  );
}

/** Returns the address of a view; that of the chat is the conversation that was open last. */
function link(view: (typeof VIEWS)[number]["view"]): string {
  return address(view, view === "chat" ? opened.value.id : "");
}

/** Opens a view by Alt and the place of a key: with Alt, some keyboards write another character than its digit. */
function shortcut(event: KeyboardEvent): void {
  const entry = VIEWS.find((_, at) => event.code === `Digit${at + 1}`);
  if (!entry || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(entry.view, entry.view === "chat" ? opened.value.id : "");
}
