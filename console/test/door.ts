// The server of the tests of the caller: it knows keys, one login, and the connections of the page.

import type { Caller } from "../src/api/types.ts";

interface Asked {
  path: string;
  kind: string;
  /** The key that the request has; "cookie" if it has that of the login instead. */
  credential: string;
  body: string;
}

const NO_ONE = { code: "unauthenticated", message: "no valid credential" };

/** A server that takes the place of `fetch`, `WebSocket` and `location` until another one does. */
export class Door {
  readonly requests: Asked[] = [];
  connections = 0;
  reloads = 0;
  broken = false;
  private caller: Caller | undefined;
  private opened: Connection[] = [];

  constructor(private readonly keys: Record<string, Caller>) {
    const door = this;
    const location = { origin: "http://127.0.0.1", reload: () => void (this.reloads += 1) };
    class Opened extends Connection {
      constructor() {
        super();
        door.open(this);
      }
    }
    const fetch = (path: string, init: RequestInit) => Promise.resolve(this.answer(path, init));
    Object.assign(globalThis, { location, fetch, WebSocket: Opened });
  }

  /** Changes the caller whom the cookie of the page proves. */
  admit(caller: Caller | undefined): void {
    this.caller = caller;
  }

  /** Returns the next connection of the page once a request is sent over it. */
  async connection(): Promise<Connection> {
    await this.until(() => this.opened.some(({ sent }) => sent.length > 0));
    return this.opened.pop() as Connection;
  }

  /** Waits until a condition is met; fails after many looks. */
  async until(condition: () => boolean): Promise<void> {
    for (let looks = 0; !condition(); looks += 1) {
      if (looks > 5_000) throw new Error(`${condition} is not met`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  private open(connection: Connection): void {
    this.connections += 1;
    if (!this.caller) return queueMicrotask(() => connection.close());
    this.opened.push(connection);
    queueMicrotask(() => connection.onopen());
  }

  private answer(path: string, { headers, credentials, body }: RequestInit): Response {
    const sent = new Headers(headers);
    const key = sent.get("authorization");
    const cookie = credentials === "same-origin" ? ["cookie"] : [];
    const credential = [...cookie, ...(key ? [key] : [])].join(" and ");
    this.requests.push({ path, kind: sent.get("content-type") ?? "", credential, body: String(body) });
    if (this.broken) return Response.json({ code: "unavailable", message: "the registry is away" }, { status: 503 });
    if (path === "/v1/login") {
      const { key } = JSON.parse(String(body)) as { key: string };
      if (!this.keys[key]) return Response.json(NO_ONE, { status: 401 });
      this.caller = this.keys[key];
      return new Response(null, { status: 204 });
    }
    if (path === "/v1/logout") {
      this.caller = undefined;
      return new Response(null, { status: 204 });
    }
    if (!this.caller || key) return Response.json(NO_ONE, { status: 401 });
    const { principal, permissions = [] } = this.caller;
    const needed = /\/(Get|List)/.test(path) ? "read" : "invoke";
    if (permissions.includes(needed)) return Response.json({ caller: this.caller });
    const details = [{ type: "google.rpc.ErrorInfo", debug: { metadata: { principal, permission: needed } } }];
    return Response.json({ code: "permission_denied", message: `${principal} may not do this`, details }, { status: 403 });
  }
}

/** The server's end of a connection of the page. */
class Connection {
  static readonly CLOSED = 3;
  readonly sent: object[] = [];
  readyState = 1;
  onopen = () => {};
  onclose = () => {};
  onmessage: (event: { data: string }) => void = () => {};
  private id = "";

  send(text: string): void {
    const { id, ...request } = JSON.parse(text) as { id: string };
    this.id = id;
    this.sent.push(request);
  }

  /** Answers the request that was sent last. */
  answer(frame: object): void {
    this.onmessage({ data: JSON.stringify({ id: this.id, ...frame }) });
  }

  close(): void {
    this.readyState = Connection.CLOSED;
    queueMicrotask(() => this.onclose());
  }
}
