// A run as a tree: made from its events one by one, without side effects.

import type { CallError, RunEvent, RunOutcome, Wait, WatchRecord } from "../api/types.ts";
import { readLines, readOutput, type FileChange, type Result } from "./results.ts";

/** The state of a piece of work; the last word of the contract's name of its state. */
export type State = "running" | "waiting" | "succeeded" | "failed" | "cancelled" | "skipped" | string;

export interface Prose {
  kind: "input" | "text" | "thinking" | "observation" | "note";
  key: string;
  text: string;
  /** Whether a note is about something that went wrong. */
  wrong?: boolean;
}

/** A call of a tool, a node of a workflow, or a run below that neither started visibly. */
export interface Work {
  kind: "call" | "node" | "run";
  key: string;
  id: string;
  name: string;
  state: State;
  /** The node that made a call. */
  nodeId?: string;
  input?: string;
  output: { text: string; wrong: boolean }[];
  /** The last report of its script; the fraction is from 0 to 1. */
  progress?: { fraction?: number; message: string };
  result?: string;
  /** The pictures, tables and texts that its code showed so far. */
  results?: Result[];
  /** The files that it changed. */
  changes?: FileChange[];
  error?: CallError;
  duration?: string;
  /** The conversation of the run below, whose files its results name. */
  conversationId?: string;
  /** The run below, for events that come from there. */
  runId?: string;
  items: Item[];
}

/** A node that waits for a time, a signal or a person, or did. */
export interface Pause {
  kind: "wait";
  key: string;
  /** The run whose node waits. */
  runId: string;
  wait: Wait;
  /** The cause that woke it; missing while it waits. */
  woken?: string;
}

/** A call that waits for the approval of people, or did. */
export interface Consent {
  kind: "approval";
  key: string;
  approvalId: string;
  effectId: string;
  toolId: string;
  /** Its end, in words; missing while it waits. */
  ended?: string;
}

/** A call of which it is not known whether it took effect, or was not until it was decided. */
export interface Doubt {
  kind: "doubt";
  key: string;
  effectId: string;
  toolId: string;
  /** Whether its run waits for a decision. */
  waits: boolean;
  /** The decision, in words; missing while nothing is. */
  decided?: string;
}

/** The content of a streaming output of a workflow so far. */
export interface Live {
  kind: "live";
  key: string;
  /** The output. */
  name: string;
  text: string;
  /** Whether the text is JSON values, each a line. */
  lines: boolean;
}

export type Item = Prose | Work | Pause | Consent | Doubt | Live;

export interface Timeline {
  /** The last sequence that is in it. */
  last: number;
  state: State;
  subject: string;
  conversationId: string;
  outcome?: RunOutcome;
  ended: boolean;
  items: Item[];
}

export const EMPTY: Timeline = {
  last: 0,
  state: "running",
  subject: "",
  conversationId: "",
  ended: false,
  items: [],
};

/** Returns the timeline after a record. A record that is in it already changes nothing. */
export function record(timeline: Timeline, record: WatchRecord): Timeline {
  if (record.terminal) {
    const run = record.terminal.run;
    const outcome = run?.outcome ?? timeline.outcome;
    const state = word(run?.state) || timeline.state;
    return { ...timeline, ended: true, state, ...(outcome && { outcome }) };
  }
  if (record.gap) {
    const text = `events ${record.gap.firstSequence} to ${record.gap.lastSequence} are not kept`;
    const last = Number(record.gap.lastSequence);
    return { ...timeline, last, items: [...timeline.items, note(`gap${last}`, text)] };
  }
  const event = record.event;
  if (!event || Number(event.sequence) <= timeline.last) return timeline;
  return root({ ...timeline, last: Number(event.sequence) }, event);
}

function root(timeline: Timeline, event: RunEvent): Timeline {
  const path = event.parentPath ?? [];
  if (path.length > 0) {
    return { ...timeline, items: below(timeline.items, [...path.slice(1), event.runId], event) };
  }
  const items = add(timeline.items, event);
  const { runStarted, runFinished } = event;
  if (runStarted) {
    const { subject = "", conversationId = "" } = runStarted;
    return { ...timeline, items, subject, conversationId };
  }
  if (runFinished) {
    const outcome = runFinished.outcome ?? {};
    return { ...timeline, items, outcome, state: word(outcome.state) };
  }
  if (event.cancelRequested) return { ...timeline, items, state: "cancelling" };
  if (event.runPaused) return { ...timeline, items, state: "paused" };
  if (event.runResumed || event.runDequeued) return { ...timeline, items, state: "running" };
  if (event.runQueued) return { ...timeline, items, state: "queued" };
  return { ...timeline, items };
}

/** Puts an event into the run that `path` leads to, outermost first. */
function below(items: Item[], path: string[], event: RunEvent): Item[] {
  const [runId = event.runId, ...rest] = path;
  const inside = (work: Work): Work => {
    const outcome = rest.length === 0 ? event.runFinished?.outcome : undefined;
    const state = work.kind === "run" && outcome ? word(outcome.state) : work.state;
    const children = rest.length > 0 ? below(work.items, rest, event) : add(work.items, event);
    const conversationId = rest.length === 0 ? event.runStarted?.conversationId : undefined;
    return { ...work, runId, state, items: children, ...(conversationId && { conversationId }) };
  };
  if (items.some((item) => isWork(item) && item.runId === runId)) {
    return items.map((item) => (isWork(item) && item.runId === runId ? inside(item) : item));
  }
  // The only work under way started it; with several, nothing yet says which.
  const open = items.filter((item) => isWork(item) && item.state === "running" && !item.runId);
  if (open.length === 1) {
    return items.map((item) => (item === open[0] ? inside(item as Work) : item));
  }
  const name = event.runStarted?.subject ?? runId;
  const work: Work = { ...blank("run", `r${event.sequence}`, runId, name), runId };
  return [...items, inside(work)];
}

function add(items: Item[], event: RunEvent): Item[] {
  const key = event.sequence;
  const own = (text: string, wrong = false) => [...items, note(key, text, wrong)];
  if (event.runStarted) {
    const text = input(event.runStarted.inputJson);
    return text ? [...items, { kind: "input", key, text }] : items;
  }
  if (event.thinking) return write(items, "thinking", key, event.thinking.text);
  if (event.text) return write(items, "text", key, event.text.text);
  if (event.observation) {
    return [...items, { kind: "observation", key, text: event.observation.text ?? "" }];
  }
  if (event.modelAnswered) {
    const { model = "model", inputTokens = 0, outputTokens = 0 } = event.modelAnswered;
    return own(`${model} answered: ${inputTokens} tokens read, ${outputTokens} written`);
  }
  if (event.diagnosed) {
    const { severity, message = "", hint = "" } = event.diagnosed.diagnostic ?? {};
    const text = message.includes(hint) ? message : `${message}; ${hint}`;
    return own(text, severity === "SEVERITY_ERROR");
  }
  if (event.cancelRequested) return own(because("cancel was requested", event.cancelRequested.reason));
  if (event.steeringAccepted) return own("a message waits for the model");
  if (event.steered) return [...items, { kind: "input", key, text: event.steered.message ?? "" }];
  if (event.budgetsEdited) return own("the budgets were changed");
  if (event.hookApplied) {
    const { hook, point, action, pointers = [], reason } = event.hookApplied;
    const [effect, wrong] = APPLIED[action ?? ""] ?? ["was applied", false];
    const places = effect === "replaced" ? ` ${pointers.join(", ")}` : "";
    return own(because(`hook ${hook} at ${point} ${effect}${places}`, reason), wrong);
  }
  const scene = sceneNote(event);
  if (scene) return own(scene.text, scene.wrong);
  if (event.runPaused) return own(because("paused", event.runPaused.reason));
  if (event.runResumed) return own("resumed");
  if (event.runQueued) return own("queued until its turn comes");
  return work(items, event);
}

/** The effects of hooks in words, and whether they are failures. */
const APPLIED: Record<string, [string, boolean]> = {
  HOOK_ACTION_CONTINUE: ["changed nothing", false],
  HOOK_ACTION_REPLACE: ["replaced", false],
  HOOK_ACTION_DENY: ["refused", true],
  HOOK_ACTION_ANSWER: ["answered", false],
  HOOK_ACTION_SKIP: ["failed and was passed over", true],
  HOOK_ACTION_FAIL: ["failed, which refuses the act", true],
};

/** The causes that wake an agent of a scene, in words. */
const WOKEN: Record<string, string> = {
  CAUSE_TIMER: "its time came",
  CAUSE_EVENT: "an event came",
  CAUSE_MESSAGE: "a user said something",
};

/** Words what happened in a scene or to a conversation; nothing for other events. */
function sceneNote(event: RunEvent): { text: string; wrong?: boolean } | undefined {
  const { eventPublished, eventDropped, eventsTaken, eventsHandled, sceneWorkflowStarted } = event;
  if (eventPublished?.event) {
    const { type = "", source, payloadJson = "" } = eventPublished.event;
    const to = eventPublished.deliveredTo?.join(", ") || "no agent";
    return { text: `event ${type} from ${source?.id ?? ""} for ${to}: ${payloadJson}` };
  }
  if (eventDropped) {
    return { text: `event dropped for ${eventDropped.instanceId}: ${eventDropped.detail}`, wrong: true };
  }
  if (eventsTaken) return { text: `${eventsTaken.instanceId} takes ${eventsTaken.eventIds?.length ?? 0} event(s)` };
  if (eventsHandled?.error) return { text: `${eventsHandled.instanceId}: ${eventsHandled.error}`, wrong: true };
  if (sceneWorkflowStarted) return { text: `${sceneWorkflowStarted.moment} runs ${sceneWorkflowStarted.workflowId}` };
  if (event.sceneWorkflowEnded?.error) return { text: event.sceneWorkflowEnded.error, wrong: true };
  if (event.conversationCompacted) {
    const { turns = 0, summary = "" } = event.conversationCompacted;
    return { text: `${turns} earlier turns are replaced: ${summary || "left out"}` };
  }
  if (event.instanceSlept) {
    const { instanceId, wakeTime, wakeOn = [] } = event.instanceSlept;
    const until = [...(wakeTime ? [wakeTime] : []), ...wakeOn].join(" or ");
    return { text: until ? `${instanceId} sleeps until ${until}` : `${instanceId} sleeps` };
  }
  if (event.instanceWoke) {
    return { text: because(`${event.instanceWoke.instanceId} is awake`, WOKEN[event.instanceWoke.cause ?? ""]) };
  }
  if (event.sceneEnding) return { text: because("the scene ends", event.sceneEnding.reason) };
  return undefined;
}

function work(items: Item[], event: RunEvent): Item[] {
  const { callDispatched, callSettled, nodeStarted, nodeFinished, nodeRetrying } = event;
  if (callDispatched) {
    const { effectId = "", toolId = "", argumentsJson = "", nodeId } = callDispatched;
    const began = { ...blank("call", event.sequence, effectId, toolId), input: argumentsJson, ...(nodeId && { nodeId }) };
    return [...items, began];
  }
  if (callSettled?.result) {
    const { effectId = "", toolId = "", status, longOutput, error, duration, childRunId } = callSettled.result;
    // Of a long output the event holds the beginning.
    const outputJson = longOutput
      ? `${longOutput.head ?? ""} … (${longOutput.totalBytes} bytes, handle ${effectId})`
      : callSettled.result.outputJson;
    const { rest, ...shown } = readOutput(outputJson ?? "");
    const settle = (work: Work): Work => ({
      ...work,
      state: word(status),
      ...(rest && { result: rest }),
      ...shown,
      ...(error && { error }),
      ...(duration && { duration }),
      ...(childRunId && { runId: childRunId }),
    });
    const settled = put(items, "call", effectId, settle, () => blank("call", event.sequence, effectId, toolId));
    return doubts(settled, effectId, {});
  }
  if (nodeStarted) {
    const { nodeId = "", nodeType = "" } = nodeStarted;
    return [...items, blank("node", event.sequence, nodeId, nodeType)];
  }
  if (nodeFinished) {
    const { nodeId = "", nodeType = "", state, outputsJson, error, duration } = nodeFinished;
    const finish = (work: Work): Work => ({
      ...work,
      state: word(state),
      ...(outputsJson && { result: outputsJson }),
      ...(error && { error }),
      ...(duration && { duration }),
    });
    return put(items, "node", nodeId, finish, () => blank("node", event.sequence, nodeId, nodeType));
  }
  if (event.nodeWaiting?.wait) {
    const { wait } = event.nodeWaiting;
    const waits = put(items, "node", wait.nodeId ?? "", (work) => ({ ...work, state: "waiting" }));
    return [...waits, { kind: "wait", key: event.sequence, runId: event.runId, wait }];
  }
  if (event.nodeWoken) {
    const { waitId, nodeId = "", cause = "", payloadJson = "", answeredBy = "" } = event.nodeWoken;
    const what = cause === "WAKE_CAUSE_DUE" ? "its time came" : [answeredBy, payloadJson].filter(Boolean).join(": ");
    const wake = (item: Item) => (item.kind === "wait" && item.wait.waitId === waitId ? { ...item, woken: what } : item);
    return put(items.map(wake), "node", nodeId, (work) => ({ ...work, state: "running" }));
  }
  if (nodeRetrying) {
    const { nodeId = "", error } = nodeRetrying;
    const text = because(`${nodeId} is tried again`, error?.message);
    return [...items, note(event.sequence, text, true)];
  }
  return decision(items, event);
}

/** The decisions about a call in doubt in words, by the status that it sets; any other: no effect. */
const DECIDED: Record<string, string> = { "": "it is called again", CALL_STATUS_SUCCEEDED: "it took effect" };

function decision(items: Item[], event: RunEvent): Item[] {
  if (event.approvalRequested) {
    const { approvalId = "", effectId = "", toolId = "" } = event.approvalRequested;
    const waits = put(items, "call", effectId, (work) => ({ ...work, state: "waiting" }));
    return [...waits, { kind: "approval", key: event.sequence, approvalId, effectId, toolId }];
  }
  if (event.approvalEnded) {
    const { approvalId, effectId = "", approved = false, approvers = [], reason } = event.approvalEnded;
    const by = approvers.length > 0 ? ` by ${approvers.join(", ")}` : "";
    const ended = because(`${approved ? "approved" : "not approved"}${by}`, reason);
    const end = (item: Item) => (item.kind === "approval" && item.approvalId === approvalId ? { ...item, ended } : item);
    return put(items.map(end), "call", effectId, (work) => ({ ...work, state: "running" }));
  }
  if (event.callInDoubt) {
    const { effectId = "", toolId = "" } = event.callInDoubt;
    const doubt: Doubt = { kind: "doubt", key: event.sequence, effectId, toolId, waits: true };
    return [...put(items, "call", effectId, (work) => ({ ...work, state: "in doubt" })), doubt];
  }
  if (event.callDecided) {
    const { effectId = "", status, reason } = event.callDecided;
    const decided = because(DECIDED[status ?? ""] ?? "it took no effect", reason);
    const continued = put(items, "call", effectId, (work) => ({ ...work, state: "running" }));
    return doubts(continued, effectId, { decided });
  }
  return output(items, event);
}

/** Notes that no run waits for a decision about a call any more, and what was decided. */
function doubts(items: Item[], effectId: string, decision: Pick<Doubt, "decided">): Item[] {
  const end = (item: Item) => (item.kind === "doubt" && item.waits && item.effectId === effectId ? { ...item, ...decision, waits: false } : item);
  return items.map(end);
}

function output(items: Item[], { sequence, outputChunk, outputReset, progressReported }: RunEvent): Item[] {
  if (outputReset) {
    const { effectId, nodeId, interfaceKey } = outputReset;
    if (interfaceKey) return live(items, sequence, interfaceKey, () => ({ text: "", lines: false }));
    if (!effectId && !nodeId) return [...spoken(items), note(sequence, "The answer was cut off and is requested again.", true)];
    return change(items, outputReset, ({ progress: _, results: __, ...work }) => ({ ...work, output: [] }));
  }
  if (progressReported) {
    const { fraction, message = "" } = progressReported;
    const progress = { message, ...(fraction !== undefined && { fraction }) };
    return change(items, progressReported, (work) => ({ ...work, progress }));
  }
  if (!outputChunk) return items;
  const { interfaceKey, text: piece = "", jsonLines: lines = false } = outputChunk;
  if (interfaceKey) return live(items, sequence, interfaceKey, (text) => ({ text: text + piece, lines }));
  if (outputChunk.stream === "OUTPUT_STREAM_RESULTS") {
    return change(items, outputChunk, (work) => ({ ...work, results: [...(work.results ?? []), ...readLines(piece)] }));
  }
  const wrong = outputChunk.stream === "OUTPUT_STREAM_ERR";
  const text = (outputChunk.text ?? "") + (outputChunk.truncated ? "\n(more is not shown)" : "");
  return change(items, outputChunk, (work) => {
    const last = work.output.at(-1);
    const joined = last?.wrong === wrong ? { text: last.text + text, wrong } : { text, wrong };
    const before = joined.text === text ? work.output : work.output.slice(0, -1);
    return { ...work, output: [...before, joined] };
  });
}

/** Leaves out what a model said last, which is void. */
function spoken(items: Item[]): Item[] {
  const before = items.findLastIndex((item) => item.kind !== "text" && item.kind !== "thinking");
  return items.slice(0, before + 1);
}

/** Changes what a streaming output has so far. */
function live(items: Item[], key: string, name: string, update: (text: string) => Pick<Live, "text" | "lines">): Item[] {
  const at = items.findLastIndex((item) => item.kind === "live" && item.name === name);
  const found = items[at];
  if (found?.kind === "live") return items.with(at, { ...found, ...update(found.text) });
  return [...items, { kind: "live", key, name, ...update("") }];
}

/** Changes the work that wrote something: a node by its name, a call by its effect. */
function change(
  items: Item[],
  { effectId = "", nodeId = "" }: { effectId?: string; nodeId?: string },
  update: (work: Work) => Work,
): Item[] {
  return nodeId ? put(items, "node", nodeId, update) : put(items, "call", effectId, update);
}

/** Changes the last work of a kind with an id; adds it first if it is not there and can be made. */
function put(
  items: Item[],
  kind: Work["kind"],
  id: string,
  update: (work: Work) => Work,
  make?: () => Work,
): Item[] {
  const at = items.findLastIndex((item) => item.kind === kind && item.id === id);
  const found = items[at];
  if (found && isWork(found)) return items.with(at, update(found));
  return make ? [...items, update(make())] : items;
}

function write(items: Item[], kind: "text" | "thinking", key: string, text = ""): Item[] {
  const last = items.at(-1);
  if (last?.kind === kind) return items.with(-1, { ...last, text: last.text + text });
  return [...items, { kind, key, text }];
}

function note(key: string, text: string, wrong = false): Prose {
  return { kind: "note", key, text, wrong };
}

function blank(kind: Work["kind"], key: string, id: string, name: string): Work {
  return { kind, key, id, name, state: "running", output: [], items: [] };
}

export function isWork(item: Item): item is Work {
  return item.kind === "call" || item.kind === "node" || item.kind === "run";
}

/** Returns the last part of an enum value in lower case: `RUN_STATE_IN_DOUBT` is "in doubt". */
export function word(value = ""): string {
  return value.replace(/^[A-Z]+_(STATE|STATUS|REASON|DECISION)_/, "").toLowerCase().replaceAll("_", " ");
}

function because(what: string, why = ""): string {
  return why ? `${what}: ${why}` : what;
}

/** Returns what a run began with: the text where it is one, else its JSON. */
function input(json = ""): string {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "string" ? value : json;
  } catch {
    return json;
  }
}
