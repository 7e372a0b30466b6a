// The decisions that wait for people, over all runs: approvals, questions and calls in doubt.

import { computed, signal } from "@preact/signals";

import { call } from "../api/connect.ts";
import type { Approval, Call, Question, RunEvent } from "../api/types.ts";
import { isIn } from "./caller.ts";

/** Milliseconds between two looks at the lists while the page is seen. */
const INTERVAL = 5_000;
/** Milliseconds in which several reasons to look become one. */
const SOON = 250;
/** Elements of a list at first, and that are added at a time. */
const PAGE = 50;
/** The most elements of a list; the server returns no more in one page. */
const MOST = 500;

export interface Waiting<Element> {
  /** Missing until the list is read. */
  elements?: Element[];
  /** Whether there are more than were read. */
  more: boolean;
  problem: string;
}

export const approvals = waitingList<Approval>("registry.v1.ApprovalService/ListApprovals", "approvals", { state: "APPROVAL_STATE_PENDING" });
export const questions = waitingList<Question>("run.v1.RunService/ListQuestions", "questions");
export const doubts = waitingList<Call>("registry.v1.CallService/ListCalls", "calls", { state: "CALL_STATE_IN_DOUBT" });

const KINDS = [approvals, questions, doubts] as const;

/** The number of decisions that wait, in words; empty if none do. */
export const count = computed(() => {
  const lists = KINDS.map(({ waiting }) => waiting.value);
  const sum = lists.reduce((sum, { elements = [] }) => sum + elements.length, 0);
  return sum === 0 ? "" : `${sum}${lists.some(({ more }) => more) ? "+" : ""}`;
});

/** Reads the lists again and again until the function that is returned is called. */
export function poll(): () => void {
  const look = () => void (document.visibilityState === "visible" && refresh());
  const timer = setInterval(look, INTERVAL);
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

export function refresh(): void {
  if (!isIn.value) return;
  for (const { read } of KINDS) void read();
}

let soon: ReturnType<typeof setTimeout> | undefined;

/** Reads the lists again after an event that adds or ends a wait for people. */
export function refreshAfter(event: RunEvent): void {
  const { approvalRequested, approvalEnded, nodeWaiting, nodeWoken, callInDoubt, callDecided } = event;
  if (!(approvalRequested ?? approvalEnded ?? nodeWaiting ?? nodeWoken ?? callInDoubt ?? callDecided)) return;
  soon ??= setTimeout(() => {
    soon = undefined;
    refresh();
  }, SOON);
}

/** Returns the list of one kind of decision; `field` holds its elements in the answer of `method`. */
function waitingList<Element>(method: string, field: string, condition: object = {}) {
  const waiting = signal<Waiting<Element>>({ more: false, problem: "" });
  let pageSize = PAGE;
  let last = 0;
  const read = async () => {
    const mine = ++last;
    let next: Waiting<Element>;
    try {
      const page = await call<Record<string, unknown>>(method, { ...condition, pageSize });
      next = { elements: (page[field] as Element[] | undefined) ?? [], more: Boolean(page["nextPageToken"]), problem: "" };
    } catch (error) {
      // Without a caller the page asks for a key, once for all lists.
      next = { ...waiting.value, problem: isIn.value ? (error as Error).message : "" };
    }
    // An answer that was overtaken says how it was before.
    if (mine === last) waiting.value = next;
  };
  const more = () => {
    pageSize = Math.min(MOST, pageSize + PAGE);
    return read();
  };
  return { waiting, read, more };
}
