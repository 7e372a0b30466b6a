// The conversation that is shown: its turns, each followed to its end, and messages of no turn.

import { effect, signal } from "@preact/signals";

import { call, list, Refusal } from "../api/connect.ts";
import { listFiles } from "../api/files.ts";
import type { Conversation, Message } from "../api/types.ts";
import { arrange, type Earlier } from "./parts.ts";
import { go, route } from "./route.ts";
import { follow, type Followed } from "./run.ts";

/** Parts that are shown at first, and that are added at a time. */
const PARTS = 8;
/** The most messages of a conversation that are read. */
const MESSAGES = 10_000;

/** A message of no turn, or a turn. */
export type Part = { key: string; message: Message } | { key: string; number: number; turn: Followed };

export interface Opened {
  /** Empty until the first turn of a new conversation has begun, or it has files. */
  id: string;
  /** Whether the conversation has neither a turn nor a file on the server, as far as is known. */
  isNew: boolean;
  earlier: Earlier[];
  parts: Part[];
  /** Whether its messages are being read. */
  loading: boolean;
  problem: string;
}

const NEW: Opened = { id: "", isNew: true, earlier: [], parts: [], loading: false, problem: "" };

export const opened = signal<Opened>(NEW);

/** Shows a conversation; without an id, a new one. */
export function openConversation(id: string): void {
  const { parts, problem } = opened.value;
  if (opened.value.id === id && (id !== "" || parts.length === 0) && !problem) return;
  leave();
  opened.value = { ...NEW, id, isNew: id === "", loading: id !== "" };
  if (id) void load(id);
}

/** Returns the turn that was started last. */
export function lastTurn(): Followed | undefined {
  const turns = opened.value.parts.flatMap((part) => ("turn" in part ? [part.turn] : []));
  return turns.at(-1);
}

/** Returns the conversation that is shown as a place for files; gives a new one its id. */
export function conversationOfFiles(): string {
  const { id } = opened.value;
  if (id) return id;
  const words = crypto.getRandomValues(new Uint8Array(16));
  const fresh = `conv_${Array.from(words, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  opened.value = { ...opened.value, id: fresh };
  if (route.value.view === "chat") go("chat", fresh);
  return fresh;
}

/** Says something to an agent: the next turn of the conversation. */
export function say(profileId: string, userMessage: string): void {
  const { id, parts, earlier } = opened.value;
  const turn = follow("", { agent: { profileId, userMessage, conversationId: id } });
  const number = 1 + [...earlier, ...parts].filter((part) => "number" in part).length;
  opened.value = { ...opened.value, isNew: false, parts: [...parts, { key: `new${number}`, number, turn }] };
  if (id) return;
  // The server names a new conversation in the first event of its first turn.
  const stop = effect(() => {
    const { conversationId } = turn.run.value.timeline;
    if (conversationId) queueMicrotask(() => named(turn, conversationId, stop));
  });
}

/** Shows more of the earlier parts. */
export function showEarlier(): void {
  const { earlier, parts } = opened.value;
  opened.value = { ...opened.value, earlier: earlier.slice(0, -PARTS), parts: [...earlier.slice(-PARTS).map(followed), ...parts] };
}

function named(turn: Followed, id: string, stop: () => void): void {
  stop();
  if (opened.value.id !== "" || lastTurn() !== turn) return;
  opened.value = { ...opened.value, id };
  if (route.value.view === "chat") go("chat", id);
}

async function load(id: string): Promise<void> {
  const current = () => opened.value.id === id && opened.value.loading;
  try {
    const service = "agent.v1.ConversationService";
    const condition = { conversationId: id };
    const messages = await list<Message>(`${service}/ListMessages`, "messages", condition, MESSAGES);
    const { conversation } = await call<{ conversation: Conversation }>(`${service}/GetConversation`, condition);
    if (!current()) return;
    const all = arrange(messages, conversation);
    opened.value = { ...opened.value, loading: false, earlier: all };
    showEarlier();
  } catch (error) {
    // A conversation begins with files too, and then has no messages.
    const hasFiles = error instanceof Refusal && error.code === "not_found" && (await listFiles(id).then(() => true, () => false));
    if (current()) opened.value = { ...opened.value, loading: false, problem: hasFiles ? "" : (error as Error).message };
  }
}

function followed(part: Earlier): Part {
  return "message" in part ? part : { key: part.key, number: part.number, turn: follow(part.runId) };
}

function leave(): void {
  for (const part of opened.value.parts) if ("turn" in part) part.turn.stop();
}
