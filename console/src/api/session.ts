// Streams, all over one WebSocket: browsers open few connections to a host.

import { Refusal } from "./connect.ts";

interface Frame {
  id?: string;
  message?: { record?: unknown; runId?: string };
  end?: { error?: { code: string; message?: string } };
}

interface Open {
  message: (message: NonNullable<Frame["message"]>) => void;
  end: (error?: Error) => void;
}

let socket: Promise<WebSocket> | undefined;
let lastId = 0;
const open = new Map<string, Open>();

/**
 * Sends a request and gives every message of its answer to `message`. Resolves at the end, rejects
 * with a `Refusal` if the server refused, and with another error if the connection broke.
 */
export async function stream(
  kind: "invokeText" | "watchRun",
  request: object,
  message: Open["message"],
): Promise<void> {
  socket ??= connect();
  const connected = await socket;
  const id = String(++lastId);
  return new Promise((resolve, reject) => {
    open.set(id, { message, end: (error) => (error ? reject(error) : resolve()) });
    connected.send(JSON.stringify({ id, [kind]: request }));
  });
}

function connect(): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const opening = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/session`);
    opening.onopen = () => resolve(opening);
    opening.onmessage = ({ data }) => receive(JSON.parse(String(data)));
    opening.onclose = () => {
      const lost = new Error("the connection was lost");
      socket = undefined;
      for (const request of open.values()) request.end(lost);
      open.clear();
      reject(lost);
    };
  });
}

function receive(frame: Frame): void {
  const request = frame.id === undefined ? undefined : open.get(frame.id);
  if (!request || frame.id === undefined) return;
  if (frame.message) request.message(frame.message);
  if (frame.end) {
    open.delete(frame.id);
    const error = frame.end.error;
    request.end(error && new Refusal(error.code, error.message ?? error.code));
  }
}
