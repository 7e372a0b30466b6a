// What a view reads from the server once it is shown.

import { useEffect, useState } from "preact/hooks";

export interface Loaded<Value> {
  value?: Value;
  problem?: string;
}

export function useLoaded<Value>(load: () => Promise<Value>, again: unknown): Loaded<Value> {
  const [loaded, setLoaded] = useState<Loaded<Value>>({});
  useEffect(() => {
    let wanted = true;
    load().then(
      (value) => wanted && setLoaded({ value }),
      (error: Error) => wanted && setLoaded({ problem: error.message }),
    );
    return () => {
      wanted = false;
    };
  }, [again]);
  return loaded;
}
