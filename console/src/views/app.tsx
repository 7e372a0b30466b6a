import { useEffect } from "preact/hooks";

import { address, go, route } from "../model/route.ts";
import { open, shown } from "../model/run.ts";
import { QuestionsView } from "./questions.tsx";
import { RunView } from "./run.tsx";
import { RunsView } from "./runs.tsx";
import { ToolsView } from "./tools.tsx";
import { WorkflowsView } from "./workflows.tsx";

const VIEWS = [
  { view: "run", title: "Run", shortcut: "1" },
  { view: "runs", title: "History", shortcut: "2" },
  { view: "tools", title: "Tools", shortcut: "3" },
  { view: "workflows", title: "Workflows", shortcut: "4" },
  { view: "questions", title: "Questions", shortcut: "5" },
] as const;

export function App() {
  const { view, id } = route.value;
  useEffect(() => {
    if (view === "run" && id) open(id);
  }, [view, id]);
  useEffect(() => {
    addEventListener("keydown", shortcut);
    return () => removeEventListener("keydown", shortcut);
  }, []);
  return (
    <>
      <header class="bar">
        <h1>Tavern</h1>
        <nav aria-label="Views">
          {VIEWS.map((entry) => (
            <a
              key={entry.view}
              href={address(entry.view, entry.view === "run" ? shown.value?.runId : "")}
              aria-current={entry.view === view ? "page" : undefined}
              aria-keyshortcuts={`Alt+${entry.shortcut}`}
              title={`Alt+${entry.shortcut}`}
            >
              {entry.title}
            </a>
          ))}
        </nav>
      </header>
      <main class={`view ${view}`}>
        {view === "run" && <RunView />}
        {view === "runs" && <RunsView />}
        {view === "questions" && <QuestionsView />}
        {view === "tools" && <ToolsView id={id} />}
        {view === "workflows" && <WorkflowsView id={id} />}
      </main>
    </>
  );
}

function shortcut(event: KeyboardEvent): void {
  const entry = VIEWS.find((entry) => entry.shortcut === event.key);
  if (!event.altKey || !entry) return;
  event.preventDefault();
  go(entry.view, entry.view === "run" ? shown.value?.runId : "");
}
