// The files of the conversation that is shown.

import { signal } from "@preact/signals";

import { deleteFile, listFiles, putFile } from "../api/files.ts";
import type { RunEvent, WorkspaceFile } from "../api/types.ts";

/** Milliseconds in which several reasons to read the list become one. */
const SOON = 250;
/** Files that are sent at once. */
const AT_ONCE = 2;

/** A file on its way to the server. */
export interface Upload {
  key: number;
  path: string;
  /** The part that is sent, from 0 to 1. */
  fraction: number;
  /** The reason for which it is not stored; empty while it is under way. */
  problem: string;
}

export interface Files {
  /** The conversation; empty for a new one, which has no files. */
  id: string;
  files: WorkspaceFile[];
  bytes: number;
  maxBytes: number;
  uploads: Upload[];
  problem: string;
}

const NONE: Files = { id: "", files: [], bytes: 0, maxBytes: 0, uploads: [], problem: "" };

export const files = signal<Files>(NONE);

/** Shows the files of a conversation. A conversation that `isNew` has none yet. */
export function showFiles(id: string, isNew: boolean): void {
  if (files.value.id !== id) files.value = { ...NONE, id };
  if (id && !isNew) void read(id);
}

/** Stores files under their names. */
export async function upload(id: string, contents: File[]): Promise<void> {
  if (files.value.id !== id) files.value = { ...NONE, id };
  const waiting = contents.map((content) => ({ content, upload: begun(content.name) }));
  change({ uploads: [...files.value.uploads, ...waiting.map(({ upload }) => upload)] });
  const send = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await put(id, next.content, next.upload.key);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, send));
  await read(id);
}

/** Takes an upload that failed off the list. */
export function dismiss({ key }: Upload): void {
  change({ uploads: files.value.uploads.filter((upload) => upload.key !== key) });
}

/** Deletes a file, as it is shown. */
export async function remove(file: WorkspaceFile): Promise<void> {
  const { id } = files.value;
  try {
    await deleteFile(id, file);
    if (files.value.id === id) change({ problem: "" });
  } catch (error) {
    if (files.value.id === id) change({ problem: (error as Error).message });
    return;
  }
  await read(id);
}

let soon: ReturnType<typeof setTimeout> | undefined;

/** Reads the list again after an event that changes files. */
export function refreshFilesAfter({ callSettled, runFinished }: RunEvent): void {
  const { toolId = "", outputJson = "", longOutput } = callSettled?.result ?? {};
  const changes = toolId.startsWith("FileOperator") || longOutput !== undefined || /"files":\s*\[\s*\{/.test(outputJson);
  if (!(callSettled && changes) && !runFinished) return;
  soon ??= setTimeout(() => {
    soon = undefined;
    if (files.value.id) void read(files.value.id);
  }, SOON);
}

let lastKey = 0;

function begun(path: string): Upload {
  return { key: ++lastKey, path, fraction: 0, problem: "" };
}

async function put(id: string, content: File, key: number): Promise<void> {
  const update = (part: Partial<Upload>) => {
    if (files.value.id === id) change({ uploads: files.value.uploads.map((upload) => (upload.key === key ? { ...upload, ...part } : upload)) });
  };
  try {
    await putFile(id, content.name, content, (fraction) => update({ fraction }));
    if (files.value.id === id) change({ uploads: files.value.uploads.filter((upload) => upload.key !== key) });
  } catch (error) {
    update({ problem: (error as Error).message });
  }
}

async function read(id: string): Promise<void> {
  try {
    const { files: all = [], totalBytes = "0", maxTotalBytes = "0" } = await listFiles(id);
    if (files.value.id === id) change({ files: all, bytes: Number(totalBytes), maxBytes: Number(maxTotalBytes), problem: "" });
  } catch (error) {
    if (files.value.id === id) change({ problem: (error as Error).message });
  }
}

function change(part: Partial<Files>): void {
  files.value = { ...files.value, ...part };
}
