/** Returns JSON as people read it: a text as it is, anything longer than a line over several. */
export function pretty(json = ""): string {
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === "string") return value;
    const line = JSON.stringify(value);
    return line.length > 72 ? JSON.stringify(value, null, 2) : line;
  } catch {
    return json;
  }
}

/** Returns a time of the contract as people write it where they are. */
export function time(timestamp = ""): string {
  return timestamp && new Date(timestamp).toLocaleString();
}
