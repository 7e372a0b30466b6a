// The parts of a conversation, from its messages.

import type { Conversation, Message } from "../api/types.ts";

/** A message of no turn, or the run of a turn with its place among the turns, from 1. */
export type Earlier = { key: string; message: Message } | { key: string; number: number; runId: string };

/** Returns the parts of a conversation in their order, queued turns last. */
export function arrange(messages: Message[], { activeRunId, queuedRunIds = [] }: Pick<Conversation, "activeRunId" | "queuedRunIds">): Earlier[] {
  const parts: Earlier[] = [];
  const known = new Set<string>();
  const turn = (runId: string) => {
    if (known.has(runId)) return;
    known.add(runId);
    parts.push({ key: runId, number: known.size, runId });
  };
  for (const [at, message] of messages.entries()) {
    if (message.runId) turn(message.runId);
    else parts.push({ key: `message${at}`, message });
  }
  for (const runId of [...(activeRunId ? [activeRunId] : []), ...queuedRunIds]) turn(runId);
  return parts;
}
