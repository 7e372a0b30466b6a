import { useEffect, useRef, useState } from "preact/hooks";

import { fileAddress } from "../api/files.ts";
import type { WorkspaceFile } from "../api/types.ts";
import { isIn, may } from "../model/caller.ts";
import { conversationOfFiles, opened } from "../model/conversation.ts";
import { dismiss, files, remove, showFiles, upload, type Upload } from "../model/files.ts";
import { Choose, useDrop } from "./choose.tsx";
import { FileLink } from "./results.tsx";
import { size, time } from "./text.ts";

/** From this width in pixels the files stand beside the conversation. */
const WIDE = 900;

/** The files of the conversation that is open. A conversation that has not begun takes files too. */
export function FilesPanel() {
  const { id, isNew } = opened.value;
  const { files: all, bytes, maxBytes, uploads, problem } = files.value;
  const isWide = useRef(matchMedia(`(min-width: ${WIDE}px)`).matches);
  useEffect(() => showFiles(id, isNew), [id, isIn.value]);
  const mayPut = may("invoke");
  const send = (contents: File[]) => void (mayPut && contents.length > 0 && upload(conversationOfFiles(), contents));
  const { isOver, ...target } = useDrop(mayPut, send);
  return (
    <details class={isOver ? "files over" : "files"} open={isWide.current} aria-label="Files" {...target}>
      <summary>{all.length > 0 ? `Files (${all.length})` : "Files"}</summary>
      {mayPut && <Choose label="Add files" text="Drop files here, or choose them" multiple send={send} />}
      {uploads.map((upload) => <UploadRow key={upload.key} upload={upload} />)}
      {problem && <p class="problem" role="alert">{problem}</p>}
      <ul aria-label="Files of the conversation">
        {all.map((file) => <FileRow key={file.path} id={id} file={file} />)}
      </ul>
      {maxBytes > 0 && all.length > 0 && <p class="quiet">{`${size(bytes)} of ${size(maxBytes)}`}</p>}
    </details>
  );
}

function UploadRow({ upload }: { upload: Upload }) {
  const { path, fraction, problem } = upload;
  return (
    <div class="upload">
      <code class="path">{path}</code>
      {problem ? (
        <p class="problem" role="alert">
          {problem} <button type="button" class="quiet-button" onClick={() => dismiss(upload)}>Dismiss</button>
        </p>
      ) : (
        <progress value={fraction} aria-label={`Sending ${path}`} />
      )}
    </div>
  );
}

function FileRow({ id, file }: { id: string; file: WorkspaceFile }) {
  const { path, sizeBytes = "0", updateTime } = file;
  const [asks, setAsks] = useState(false);
  return (
    <li class="file" aria-label={path}>
      <FileLink conversationId={id} path={path} />
      <span class="quiet">{size(Number(sizeBytes))}</span>
      <time dateTime={updateTime}>{time(updateTime)}</time>
      <span class="buttons">
        {asks ? (
          <>
            <span>Delete it?</span>
            <button type="button" class="quiet-button wrong" onClick={() => (setAsks(false), void remove(file))}>Delete</button>
            <button type="button" class="quiet-button" onClick={() => setAsks(false)}>Keep</button>
          </>
        ) : (
          <>
            <a class="quiet-button" href={fileAddress(id, path)} download={path.split("/").at(-1)}>Save</a>
            {may("invoke") && <button type="button" class="quiet-button" aria-label={`Delete ${path}`} onClick={() => setAsks(true)}>Delete</button>}
          </>
        )}
      </span>
    </li>
  );
}
