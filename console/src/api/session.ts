// Streams, all over one WebSocket: browsers open few connections to a host.

import { refuse, type ErrorBody } from "./connect.ts";

interface Frame {
  id?: string;
  message?: { record?: unknown; runId?: string };
  end?: { error?: ErrorBody };
}

interface Open {
  message: (message: NonNullable<Frame["message"]>) => void;
  end: (error?: Error) => void;
  wanted: () => boolean;
}

/** Streams that are open at once; the server refuses more than 16. */
const MOST = 12;

let socket: Promise<WebSocket> | undefined;
let lastId = 0;
const open = new Map<string, Open>();
/** Requests that wait until a stream ends. */
const waiting: (() => void)[] = [];

/**
 * Sends a request and gives every message of its answer to `message`. Resolves at the end, rejects
 * with a `Refusal` if the server refused, and with another error if the connection broke.
 *
 * A request behind `MOST` open ones waits until one of them ends. The protocol ends no stream early, so where
 * one is not `wanted` any more, a new connection takes the place of the old one instead.
 */
export async function stream(
  kind: "invokeText" | "watchRun",
  request: object,
  message: Open["message"],
  wanted: () => boolean,
): Promise<void> {
  while (open.size >= MOST) {
    if ([...open.values()].some((request) => !request.wanted())) void socket?.then((full) => full.close());
    await new Promise<void>((resolve) => waiting.push(resolve));
    if (!wanted()) return;
  }
  const id = String(++lastId);
  return new Promise((resolve, reject) => {
    open.set(id, { message, wanted, end: (error) => (error ? reject(error) : resolve()) });
    socket ??= connect();
    const refused = () => ended(id, new Error("the connection was lost"));
    socket.then((connected) => connected.send(JSON.stringify({ id, [kind]: request })), refused);
  });
}

/** Ends a request, and lets one that waits have its place. */
function ended(id: string, error?: Error): void {
  const request = open.get(id);
  open.delete(id);
  request?.end(error);
  waiting.shift()?.();
}

function connect(): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const opening = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/session`);
    opening.onopen = () => resolve(opening);
    opening.onmessage = ({ data }) => receive(JSON.parse(String(data)));
    opening.onclose = () => {
      const lost = new Error("the connection was lost");
      socket = undefined;
      for (const id of [...open.keys()]) ended(id, lost);
      reject(lost);
    };
  });
}

function receive(frame: Frame): void {
  const request = frame.id === undefined ? undefined : open.get(frame.id);
  if (!request || frame.id === undefined) return;
  if (frame.message) request.message(frame.message);
  if (frame.end) {
    const error = frame.end.error && refuse(frame.end.error);
    // The socket keeps the login with which it was opened: the next request needs another one.
    if (error?.code === "unauthenticated") void socket?.then((connected) => connected.close());
    ended(frame.id, error);
  }
}
