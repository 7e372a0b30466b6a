// Unary methods, by the Connect protocol, and the paths that are no methods.

/** An error as the server writes it. */
export interface ErrorBody {
  code?: string;
  message?: string;
  details?: { debug?: { metadata?: Record<string, string>; fieldViolations?: Violation[] } }[];
}

/** A part of a request that is wrong, by its path. */
export interface Violation {
  field?: string;
  description?: string;
}

/** An answer that is an error; `code` is Connect's name of it. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly violations: Violation[] = [],
  ) {
    super(message);
  }
}

let heard: (refusal: Refusal) => void = () => {};

/** Passes to `listener` each refusal of a request that the page makes as its caller. */
export function hearRefusals(listener: (refusal: Refusal) => void): void {
  heard = listener;
}

/** Makes the refusal of a request that the page made as its caller, and reports it. */
export function refuse(error: ErrorBody): Refusal {
  const refusal = read(error);
  heard(refusal);
  return refusal;
}

/** Returns a request id. */
export function fresh(): string {
  return `console-${crypto.getRandomValues(new BigUint64Array(2)).join("-")}`;
}

/** Calls a method as the caller of the page; with a key, as its owner. */
export async function call<Response>(method: string, request: object, key = ""): Promise<Response> {
  const headers = { "connect-protocol-version": "1", ...(key && { authorization: `Bearer ${key}` }) };
  const answer = await send(`/tavern.${method}`, request, headers);
  if (answer.error) throw key ? read(answer.error) : refuse(answer.error);
  return answer.body as Response;
}

/** Sends a request to a path that is no method and has no answer. */
export async function post(path: string, request: object): Promise<void> {
  const { error } = await send(path, request);
  if (error) throw read(error);
}

/** Reads a list of several pages to its end, or to `limit` elements. */
export async function list<Element>(method: string, field: string, condition: object = {}, limit = 1000): Promise<Element[]> {
  const elements: Element[] = [];
  let pageToken = "";
  do {
    const page = await call<Record<string, unknown>>(method, { ...condition, pageSize: 100, pageToken });
    elements.push(...((page[field] as Element[] | undefined) ?? []));
    pageToken = (page["nextPageToken"] as string | undefined) ?? "";
  } while (pageToken && elements.length < limit);
  return elements;
}

async function send(path: string, request: object, headers: Record<string, string> = {}): Promise<{ body?: unknown; error?: ErrorBody }> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    // A key takes the place of the login that this browser may have: two credentials are refused.
    credentials: "authorization" in headers ? "omit" : "same-origin",
    body: JSON.stringify(request),
  });
  const text = await response.text();
  if (response.ok) return { body: text && JSON.parse(text) };
  return { error: errorOf(text, response.statusText) };
}

/** Reads the body of an answer that is an error; without one it says `otherwise`. */
export function errorOf(text: string, otherwise: string): ErrorBody {
  try {
    return JSON.parse(text) as ErrorBody;
  } catch {
    return { message: text.trim() || otherwise };
  }
}

/** Words a refusal: its message, and the permission that is missing where the message does not name it. */
function read({ code = "unknown", message, details = [] }: ErrorBody): Refusal {
  const words = message || code;
  const permission = details.map(({ debug }) => debug?.metadata?.["permission"]).find(Boolean);
  const isNamed = permission === undefined || words.includes(permission);
  const violations = details.flatMap(({ debug }) => debug?.fieldViolations ?? []);
  return new Refusal(code, isNamed ? words : `${words}; the permission ${permission} is missing`, violations);
}
