import { useMemo } from "preact/hooks";

import { isWork, type Item, type Live, type Prose, type Work } from "../model/timeline.ts";
import { waitsFor } from "../model/waiting.ts";
import { ApprovalRow } from "./approval.tsx";
import { DoubtRow } from "./doubt.tsx";
import { Changes, Results } from "./results.tsx";
import { pretty } from "./text.ts";
import { WaitRow } from "./wait.tsx";

/** The items of a timeline; text is only ever text. The results in it name files of the conversation. */
export function Items({ items, conversationId }: { items: Item[]; conversationId: string }) {
  return (
    <ol class="items">
      {items.map((item) => (
        <Row key={item.key} item={item} conversationId={conversationId} />
      ))}
    </ol>
  );
}

/** The state of a run or of work in it, and the reason for which it waits, if that is to be shown. */
export function StateMark({ state, reason = "" }: { state: string; reason?: string }) {
  const classes = ["state", ...[state, reason].map((word) => word.replaceAll(" ", "-"))];
  return <span class={classes.join(" ").trim()}>{reason ? `${state} (${reason})` : state}</span>;
}

function Row({ item, conversationId }: { item: Item; conversationId: string }) {
  // An item that did not change is not drawn again.
  return useMemo(() => <li class={`item ${item.kind}`}>{content(item, conversationId)}</li>, [item, conversationId]);
}

function content(item: Item, conversationId: string) {
  if (isWork(item)) return <WorkRow work={item} conversationId={conversationId} />;
  if (item.kind === "live") return <LiveRow live={item} />;
  if (item.kind === "approval") return <ApprovalRow consent={item} />;
  if (item.kind === "doubt") return <DoubtRow doubt={item} />;
  return item.kind === "wait" ? <WaitRow pause={item} /> : <ProseRow prose={item} />;
}

function LiveRow({ live: { name, text, lines } }: { live: Live }) {
  const values = text.split("\n").filter((line) => line !== "");
  return (
    <>
      <p class="note"><code class="name">{name}</code></p>
      {lines ? (
        <ol class="values" aria-label={name}>
          {values.map((value) => <li><pre class="output">{value}</pre></li>)}
        </ol>
      ) : (
        <pre class="output" aria-label={name}>{text}</pre>
      )}
    </>
  );
}

function ProseRow({ prose }: { prose: Prose }) {
  switch (prose.kind) {
    case "thinking":
    case "observation":
      return (
        <details open={prose.kind === "thinking"}>
          <summary>{prose.kind === "thinking" ? "Thinking" : "The model reads"}</summary>
          <p class="prose">{prose.text}</p>
        </details>
      );
    case "note":
      return <p class={prose.wrong ? "note wrong" : "note"}>{prose.text}</p>;
    default:
      return <p class="prose">{prose.text}</p>;
  }
}

function WorkRow({ work, conversationId }: { work: Work; conversationId: string }) {
  const label = work.kind === "node" ? work.id : work.name;
  const input = pretty(work.input);
  const reason = waitsFor(work);
  return (
    <details open>
      <summary>
        <StateMark state={reason ? "waiting" : work.state} reason={reason} />
        <code class="name">{label}</code>
        {work.kind === "node" && <span class="quiet">{work.name}</span>}
        {work.duration && <span class="time">{duration(work.duration)}</span>}
      </summary>
      {input && input !== "{}" && <pre class="input" aria-label="Arguments">{input}</pre>}
      {work.progress && work.state === "running" && <ProgressRow progress={work.progress} />}
      {work.output.length > 0 && (
        <pre class="output" aria-label="Output">
          {work.output.map((chunk, at) => (
            <span key={at} class={chunk.wrong ? "wrong" : ""}>{chunk.text}</span>
          ))}
        </pre>
      )}
      {work.results && work.results.length > 0 && <Results results={work.results} conversationId={conversationId} />}
      {work.changes && work.changes.length > 0 && <Changes changes={work.changes} conversationId={conversationId} />}
      {work.items.length > 0 && <Items items={work.items} conversationId={work.conversationId ?? conversationId} />}
      {work.result && <pre class="result" aria-label="Result">{pretty(work.result)}</pre>}
      {work.error && <p class="note wrong">{[work.error.code, work.error.message].filter(Boolean).join(": ")}</p>}
    </details>
  );
}

function ProgressRow({ progress: { fraction, message } }: { progress: NonNullable<Work["progress"]> }) {
  return (
    <p class="note">
      {fraction !== undefined && <progress value={fraction} aria-label="Progress" />} {message}
    </p>
  );
}

/** Shortens the contract's `1.234567s`. */
function duration(text: string): string {
  const seconds = Number.parseFloat(text);
  return seconds < 1 ? `${(seconds * 1000).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
}
