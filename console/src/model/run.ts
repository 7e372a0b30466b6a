// Runs that are followed to their ends, and the one that is shown by itself.

import { computed, signal, type ReadonlySignal } from "@preact/signals";

import { call, fresh, Refusal } from "../api/connect.ts";
import { stream } from "../api/session.ts";
import type { WatchRecord } from "../api/types.ts";
import { admitted, ask, isIn } from "./caller.ts";
import { refreshFilesAfter } from "./files.ts";
import { refreshAfter } from "./inbox.ts";
import { EMPTY, record, type Timeline } from "./timeline.ts";

/** Milliseconds before a broken connection is tried again. */
const PAUSE = 500;

export interface Shown {
  /** Empty until the run is started. */
  runId: string;
  timeline: Timeline;
  /** The reason for which it is not followed any further. */
  problem: string;
  connected: boolean;
}

/** A run that is followed until it ends, or until `stop`. */
export interface Followed {
  run: ReadonlySignal<Shown>;
  stop: () => void;
}

const followed = signal<Followed | undefined>(undefined);

/** The run that is shown by itself. */
export const shown = computed(() => followed.value?.run.value);

/** Starts a run and shows it. */
export function start(target: object, began: (runId: string) => void): void {
  show(follow("", target, began));
}

/** Shows a run that exists. */
export function open(runId: string): void {
  if (shown.value?.runId !== runId) show(follow(runId));
}

function show(next: Followed): void {
  followed.value?.stop();
  followed.value = next;
}

/** Returns whether a run is started and has not ended, as far as is known. */
export function isOpen(run: Shown | undefined): boolean {
  return run !== undefined && !run.timeline.ended && !run.problem;
}

export async function cancel({ runId }: Shown): Promise<void> {
  await call("run.v1.RunService/CancelRun", { runId, reason: "cancelled on the page" });
}

/** Gives a turn a message, which its model reads next. */
export async function steer({ runId }: Shown, message: string): Promise<void> {
  await call("agent.v1.AgentService/SteerTurn", { runId, requestId: fresh(), message });
}

/** Follows a run; without an id, starts the one that `target` describes. */
export function follow(runId: string, target: object = {}, began: (runId: string) => void = () => {}): Followed {
  const run = signal<Shown>({ runId, timeline: EMPTY, problem: "", connected: true });
  let wanted = true;
  const change = (part: Partial<Shown>) => {
    run.value = { ...run.value, ...part };
  };
  const receive = (message: { record?: unknown; runId?: string }) => {
    if (!wanted) return;
    if (message.runId && !run.value.runId) {
      change({ runId: message.runId });
      began(message.runId);
    }
    const next = message.record as WatchRecord | undefined;
    if (!next) return;
    change({ timeline: record(run.value.timeline, next), connected: true });
    if (next.event) {
      refreshAfter(next.event);
      refreshFilesAfter(next.event);
    }
  };
  void toItsEnd(run, { requestId: fresh(), ...target }, receive, change, () => wanted);
  const stop = () => {
    wanted = false;
  };
  return { run, stop };
}

async function toItsEnd(
  run: ReadonlySignal<Shown>,
  request: object,
  receive: (message: { record?: unknown; runId?: string }) => void,
  change: (part: Partial<Shown>) => void,
  wanted: () => boolean,
): Promise<void> {
  while (wanted() && !run.value.timeline.ended) {
    const { runId, timeline } = run.value;
    try {
      if (runId) await stream("watchRun", { runId, afterSequence: String(timeline.last) }, receive, wanted);
      else await stream("invokeText", request, receive, wanted);
    } catch (error) {
      const code = error instanceof Refusal ? error.code : "";
      if (!["", "unavailable", "unauthenticated"].includes(code)) {
        change({ problem: (error as Error).message });
        return;
      }
      change({ connected: false });
      // A connection that is refused does not say why.
      if (code === "") await ask();
    }
    if (run.value.timeline.ended) return;
    if (!isIn.value) {
      change({ problem: "Your key has ended.", connected: true });
      await admitted();
      change({ problem: "", connected: false });
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}
