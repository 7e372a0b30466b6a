// Methods that stream, by the Connect protocol: messages with heads, both ways. No browser sends a request piece by
// piece, so all its messages are sent as one body.

import { errorOf, refuse, type ErrorBody } from "./connect.ts";

/** The bytes of a head: one of flags and four of length. */
const HEAD = 5;
/** The flag of the message that ends an answer. */
const END = 2;

/** Calls a method that streams, with all messages of its request, and yields the messages of its answer. */
export async function* answers<Answer>(method: string, requests: object[], signal?: AbortSignal): AsyncGenerator<Answer, void> {
  const response = await fetch(`/tavern.${method}`, {
    method: "POST",
    headers: { "connect-protocol-version": "1", "content-type": "application/connect+json" },
    credentials: "same-origin",
    body: new Blob(requests.flatMap(framed)),
    ...(signal && { signal }),
  });
  if (!response.ok || !response.body) throw refuse(errorOf(await response.text(), response.statusText));
  let bytes = new Uint8Array();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the connection was lost");
      bytes = joined(bytes, value);
      for (let end = endOf(bytes); end <= bytes.length; end = endOf(bytes)) {
        const message = JSON.parse(new TextDecoder().decode(bytes.subarray(HEAD, end))) as unknown;
        const isEnd = ((bytes[0] ?? 0) & END) !== 0;
        bytes = bytes.slice(end);
        if (!isEnd) {
          yield message as Answer;
          continue;
        }
        const { error } = message as { error?: ErrorBody };
        if (error) throw refuse(error);
        return;
      }
    }
  } finally {
    // A caller that has enough leaves the stream.
    void reader.cancel().catch(() => {});
  }
}

function framed(message: object): Uint8Array<ArrayBuffer>[] {
  const text = new TextEncoder().encode(JSON.stringify(message));
  const head = new Uint8Array(HEAD);
  new DataView(head.buffer).setUint32(1, text.length);
  return [head, text];
}

function joined(one: Uint8Array, other: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}

/** Returns the end of the first message; infinity while its head is incomplete. */
function endOf(bytes: Uint8Array): number {
  if (bytes.length < HEAD) return Number.POSITIVE_INFINITY;
  return HEAD + new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
}
