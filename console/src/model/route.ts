// Which view is shown: the part of the address after `#`.

import { signal } from "@preact/signals";

export interface Route {
  view: "run" | "runs" | "tools" | "workflows";
  /** The run, tool or workflow that is open; empty if none is. */
  id: string;
}

export const route = signal(read(location.hash));

addEventListener("hashchange", () => {
  route.value = read(location.hash);
});

export function read(hash: string): Route {
  const [view = "", ...id] = hash.replace(/^#\/?/, "").split("/");
  const known = view === "runs" || view === "tools" || view === "workflows" ? view : "run";
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
