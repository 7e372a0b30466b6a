// The run that is shown, and how it is followed to its end.

import { signal } from "@preact/signals";

import { call, Refusal } from "../api/connect.ts";
import { stream } from "../api/session.ts";
import type { WatchRecord } from "../api/types.ts";
import { EMPTY, record, type Timeline } from "./timeline.ts";

/** Milliseconds before a broken connection is tried again. */
const PAUSE = 500;

export interface Shown {
  runId: string;
  timeline: Timeline;
  /** Why it is not followed any further. */
  problem: string;
  connected: boolean;
}

export const shown = signal<Shown | undefined>(undefined);

/** Starts a run and follows it; it replaces the one that is shown. */
export function start(target: object, began: (runId: string) => void): void {
  void follow("", { requestId: fresh(), ...target }, began);
}

/** Follows a run that exists. */
export function open(runId: string): void {
  if (shown.value?.runId !== runId) void follow(runId, {}, () => {});
}

export async function cancel(): Promise<void> {
  await ask("run.v1.RunService/CancelRun", { reason: "cancelled on the page" });
}

/** Gives the turn that is shown a message, which its model reads next. */
export async function steer(message: string): Promise<void> {
  await ask("agent.v1.AgentService/SteerTurn", { requestId: fresh(), message });
}

/** Returns a request id. */
function fresh(): string {
  return `console-${crypto.getRandomValues(new BigUint64Array(2)).join("-")}`;
}

async function ask(method: string, request: object): Promise<void> {
  const current = shown.value;
  if (!current) return;
  try {
    await call(method, { runId: current.runId, ...request });
  } catch (error) {
    if (shown.value?.runId === current.runId) update({ problem: (error as Error).message });
  }
}

async function follow(runId: string, request: object, began: (runId: string) => void): Promise<void> {
  const timeline = EMPTY;
  shown.value = { runId, timeline, problem: "", connected: true };
  let mine: Shown | undefined = shown.value;
  const current = () => mine !== undefined && shown.value === mine;
  const change = (part: Partial<Shown>) => {
    if (current()) mine = update(part);
  };
  const receive = (message: { record?: unknown; runId?: string }) => {
    if (!current() || !mine) return;
    if (message.runId && !mine.runId) {
      change({ runId: message.runId });
      began(message.runId);
    }
    const next = message.record as WatchRecord | undefined;
    if (next) change({ timeline: record(mine.timeline, next), connected: true });
  };
  while (current() && mine && !mine.timeline.ended) {
    try {
      if (mine.runId) {
        const watch = { runId: mine.runId, afterSequence: String(mine.timeline.last) };
        await stream("watchRun", watch, receive);
      } else {
        await stream("invokeText", request, receive);
      }
    } catch (error) {
      if (error instanceof Refusal && error.code !== "unavailable") {
        change({ problem: error.message });
        return;
      }
      change({ connected: false });
    }
    if (mine.timeline.ended) return;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function update(part: Partial<Shown>): Shown | undefined {
  if (shown.value) shown.value = { ...shown.value, ...part };
  return shown.value;
}
