import { useState } from "preact/hooks";

/** The place in a list that is read a page at a time: the tokens of the pages up to the one that is shown. */
export interface Place {
  /** The token of the page that is shown; empty for the first. */
  pageToken: string;
  tokens: string[];
  go: (tokens: string[]) => void;
}

/** Returns a place in a list, at first its first page. */
export function usePlace(): Place {
  const [tokens, go] = useState<string[]>([]);
  return { pageToken: tokens.at(-1) ?? "", tokens, go };
}

/** The buttons that lead to the page before the one that is shown, and to the one with the token `next`. */
export function Pages({ place: { tokens, go }, next }: { place: Place; next: string | undefined }) {
  return (
    <div class="pages">
      <button type="button" class="quiet-button" disabled={tokens.length === 0} onClick={() => go(tokens.slice(0, -1))}>
        Newer
      </button>
      <button type="button" class="quiet-button" disabled={!next} onClick={() => next && go([...tokens, next])}>
        Older
      </button>
    </div>
  );
}
