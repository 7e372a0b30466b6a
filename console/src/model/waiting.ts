// The reasons for which a run waits, so far as its events say so.

import { isWork, type Item, type Timeline, type Work } from "./timeline.ts";

/** The reasons of the waits of nodes, by their kinds. */
const NODES: Record<string, string> = {
  WAIT_KIND_HUMAN_INPUT: "question",
  WAIT_KIND_SIGNAL: "signal",
  WAIT_KIND_TIMER: "time",
  WAIT_KIND_RETRY: "time",
};

/** Returns the reasons for which work waits, a word each; nothing while any of it continues. */
export function waitsFor({ state, items }: Pick<Timeline, "state" | "items">): string {
  const { reasons, busy } = look(items);
  return state === "running" && !busy ? [...new Set(reasons)].join(", ") : "";
}

/** Finds the open waits of a run and of the runs below it, and whether anything beside them continues. */
function look(items: Item[]): { reasons: string[]; busy: boolean } {
  const works = items.filter(isWork);
  const running = works.filter(({ state }) => state === "running");
  const reasons = items.map(reason).filter((reason) => reason !== "");
  const below = running.map(({ items }) => look(items));
  const inside = below.flatMap(({ reasons }) => reasons);
  const leaves = running.filter((work, at) => below[at]?.reasons.length === 0 && !stands(work, works));
  // A call that was not dispatched yet is no work of its own: the node that makes it seems to continue.
  const calls = new Set(works.map(({ id }) => id));
  const undispatched = items.filter((item) => (item.kind === "approval" || item.kind === "doubt") && reason(item) && !calls.has(item.effectId));
  const busy = leaves.length > undispatched.length || below.some(({ reasons, busy }) => reasons.length > 0 && busy);
  return { reasons: [...reasons, ...inside], busy };
}

/** Returns whether a node only stands for work that is under way: nodes inside of it, and its calls. */
function stands({ kind, id }: Work, works: Work[]): boolean {
  const open = works.filter(({ state }) => ["running", "waiting", "in doubt"].includes(state));
  return kind === "node" && open.some((work) => work.nodeId === id || work.id.startsWith(`${id}#`) || work.id.startsWith(`${id}/`));
}

function reason(item: Item): string {
  if (item.kind === "approval") return item.ended === undefined ? "approval" : "";
  if (item.kind === "doubt") return item.waits ? "in doubt" : "";
  if (item.kind === "wait" && item.woken === undefined) return NODES[item.wait.kind ?? ""] ?? "time";
  return "";
}
