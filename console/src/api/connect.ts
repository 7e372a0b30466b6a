// Unary methods, by the Connect protocol.

/** An answer that is an error; `code` is Connect's name of it. */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

export async function call<Response>(method: string, request: object, key = ""): Promise<Response> {
  const response = await fetch(`/tavern.${method}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "connect-protocol-version": "1",
      ...(key && { authorization: `Bearer ${key}` }),
    },
    body: JSON.stringify(request),
  });
  const body = await response.json();
  if (!response.ok) throw new Refusal(body.code ?? "unknown", body.message ?? response.statusText);
  return body;
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
