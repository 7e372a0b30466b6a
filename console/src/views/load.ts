// What a view reads from the server once it is shown, and again after a login.

import { useEffect, useState } from "preact/hooks";

import { isIn } from "../model/caller.ts";

export interface Loaded<Value> {
  value?: Value;
  problem?: string;
}

export function useLoaded<Value>(load: () => Promise<Value>, again: unknown): Loaded<Value> {
  const [loaded, setLoaded] = useState<Loaded<Value>>({});
  useEffect(() => {
    if (!isIn.value) return;
    let wanted = true;
    load().then(
      (value) => wanted && setLoaded({ value }),
      (error: Error) => wanted && isIn.value && setLoaded({ problem: error.message }),
    );
    return () => {
      wanted = false;
    };
  }, [again, isIn.value]);
  return loaded;
}
