// The view that is shown: the part of the address after `#`.

import { signal } from "@preact/signals";

const VIEWS = ["chat", "runs", "run", "tools", "workflows", "inbox", "plugins"] as const;

export interface Route {
  view: (typeof VIEWS)[number];
  /** The conversation, run, tool, plugin or workflow that is open; empty if none is. */
  id: string;
}

export const route = signal(read(location.hash));

addEventListener("hashchange", () => {
  route.value = read(location.hash);
});

export function read(hash: string): Route {
  const [view = "", ...id] = hash.replace(/^#\/?/, "").split("/");
  const known = VIEWS.find((known) => known === view) ?? "chat";
  return { view: known, id: decode(id.join("/")) };
}

export function address(view: Route["view"], id = ""): string {
  return `#/${view}${id && `/${encodeURIComponent(id)}`}`;
}

export function go(view: Route["view"], id = ""): void {
  location.hash = address(view, id);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
