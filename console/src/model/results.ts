// The results of a call: pictures, tables and texts that its code showed, and the files that it changed.

/** A content that is kept as a file. */
interface Kept {
  $blob: string;
  bytes?: number;
  path?: string;
}

/** A result as the server writes it: the same content in several types. */
export interface Result {
  index: number;
  data: Record<string, unknown>;
  metadata?: Record<string, { width?: number; height?: number } | undefined>;
}

/** A file that a call has changed. */
export interface FileChange {
  path: string;
  change: string;
  bytes?: number;
  kept_as?: string;
}

/** The type of a result that is shown, and its content: a text, or the path of a file. */
export interface Face {
  kind: "picture" | "page" | "drawing" | "text" | "other";
  mediaType: string;
  text?: string;
  path?: string;
  bytes?: number;
  width?: number;
  height?: number;
}

/** The types of a result, the one to show first. */
const KINDS: [string, Face["kind"]][] = [
  ["image/png", "picture"],
  ["image/jpeg", "picture"],
  ["image/webp", "picture"],
  ["image/svg+xml", "drawing"],
  ["text/html", "page"],
  ["text/markdown", "text"],
  ["text/latex", "text"],
  ["text/plain", "text"],
];

/** Reads the results that are lines of a chunk; a line that is none is left out. */
export function readLines(text: string): Result[] {
  return text.split("\n").flatMap((line) => {
    const value = parse(line);
    return isResult(value) ? [value] : [];
  });
}

/** Reads the output of a call: its results and changes, and the rest as JSON. Other outputs have neither. */
export function readOutput(json: string): { results?: Result[]; changes?: FileChange[]; rest: string } {
  const output = parse(json);
  if (!isObject(output)) return { rest: json };
  const { results, files, ...rest } = output;
  const found = Array.isArray(results) && results.every(isResult) ? results : undefined;
  const changes = Array.isArray(files) && files.every(isChange) ? files : undefined;
  if (!found && !changes) return { rest: json };
  const left = { ...rest, ...(!found && results !== undefined && { results }), ...(!changes && files !== undefined && { files }) };
  return { ...(found && { results: found }), ...(changes && { changes }), rest: JSON.stringify(left) };
}

/** Returns the face of a result; nothing if it has no content. */
export function face({ data, metadata = {} }: Result): Face | undefined {
  const others = Object.keys(data).map((type): [string, Face["kind"]] => [type, "other"]);
  for (const [mediaType, kind] of [...KINDS, ...others]) {
    const content = data[mediaType];
    if (content === undefined) continue;
    const { width, height } = metadata[mediaType] ?? {};
    const size = { ...(width && { width }), ...(height && { height }) };
    if (isKept(content)) {
      const { path, bytes } = content;
      return { kind, mediaType, ...size, ...(path && { path }), ...(bytes && { bytes }) };
    }
    const text = typeof content === "string" ? content : JSON.stringify(content);
    return { kind, mediaType, ...size, text };
  }
  return undefined;
}

function isResult(value: unknown): value is Result {
  return isObject(value) && isObject(value["data"]);
}

function isChange(value: unknown): value is FileChange {
  return isObject(value) && typeof value["path"] === "string" && typeof value["change"] === "string";
}

function isKept(value: unknown): value is Kept {
  return isObject(value) && typeof value["$blob"] === "string";
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
