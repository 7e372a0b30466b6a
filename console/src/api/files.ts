// The files of conversations, at their addresses.

import { errorOf, refuse } from "./connect.ts";
import type { WorkspaceFile } from "./types.ts";

export interface FileList {
  files?: WorkspaceFile[];
  totalBytes?: string;
  maxTotalBytes?: string;
}

/** The pages of a list that are read. */
const PAGES = 5;

/** Returns the address of a file of a conversation; without a path, that of the list. */
export function fileAddress(conversationId: string, path = ""): string {
  const parts = path.split("/").map(encodeURIComponent).join("/");
  return `/v1/conversations/${encodeURIComponent(conversationId)}/files${path && `/${parts}`}`;
}

/** Reads the list of files, to its end or to thousands of them. */
export async function listFiles(conversationId: string): Promise<FileList> {
  const list: FileList & { files: WorkspaceFile[] } = { files: [] };
  let token = "";
  for (let page = 0; page < PAGES; page += 1) {
    const query = token && `?page_token=${encodeURIComponent(token)}`;
    const answer = (await answered(fetch(`${fileAddress(conversationId)}${query}`))) as FileList & { nextPageToken?: string };
    const { files = [], nextPageToken = "", ...sizes } = answer;
    Object.assign(list, sizes);
    list.files.push(...files);
    token = nextPageToken;
    if (!token) break;
  }
  return list;
}

/** Reads a file as text. */
export async function readText(address: string): Promise<string> {
  const response = await fetch(address);
  if (!response.ok) throw refuse(errorOf(await response.text(), response.statusText));
  return response.text();
}

/** Deletes a version of a file. */
export async function deleteFile(conversationId: string, { path, sha256 = "" }: WorkspaceFile): Promise<void> {
  const headers = { "if-match": `"${sha256}"` };
  await answered(fetch(fileAddress(conversationId, path), { method: "DELETE", headers }));
}

/** Puts a file, and reports the fraction that is sent. `fetch` reports none. */
export function putFile(conversationId: string, path: string, content: Blob, progress: (fraction: number) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", fileAddress(conversationId, path));
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = ({ loaded, total }) => progress(total > 0 ? loaded / total : 1);
    request.onload = () => {
      if (request.status < 300) resolve();
      else reject(refuse(errorOf(request.responseText, request.statusText)));
    };
    request.onerror = () => reject(new Error("The upload broke off: the connection was lost, or the file is too large."));
    request.send(content);
  });
}

async function answered(sent: Promise<Response>): Promise<unknown> {
  const response = await sent;
  const text = await response.text();
  if (!response.ok) throw refuse(errorOf(text, response.statusText));
  return text && JSON.parse(text);
}
