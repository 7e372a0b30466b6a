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

/** Returns a number of bytes as people write it. */
export function size(bytes: number): string {
  const units = ["bytes", "KiB", "MiB", "GiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const value = bytes / 1024 ** power;
  return `${power === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[power]}`;
}
