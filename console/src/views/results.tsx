import { useEffect, useMemo, useState } from "preact/hooks";

import { fileAddress, readText } from "../api/files.ts";
import { drawingDocument, pageDocument, type FrameDocument } from "../model/frame.ts";
import { face, type Face, type FileChange, type Result } from "../model/results.ts";
import { size } from "./text.ts";

/** The results of a call, in their order. Text is only ever text, and foreign pages and drawings stand in frames without rights. */
export function Results({ results, conversationId }: { results: Result[]; conversationId: string }) {
  return (
    <ol class="results" aria-label="Results">
      {results.map((result, at) => (
        <li key={at}><ResultRow result={result} conversationId={conversationId} /></li>
      ))}
    </ol>
  );
}

/** The files that a call has changed. */
export function Changes({ changes, conversationId }: { changes: FileChange[]; conversationId: string }) {
  return (
    <ul class="changes" aria-label="Changed files">
      {changes.map(({ path, change, bytes, kept_as: keptAs }) => (
        <li key={path} class={change === "conflict" ? "note wrong" : "note"}>
          {change} {change === "removed" || !conversationId ? <code>{path}</code> : <FileLink conversationId={conversationId} path={path} />}
          {bytes !== undefined && change !== "removed" && ` (${size(bytes)})`}
          {keptAs && `, beside ${keptAs}`}
        </li>
      ))}
    </ul>
  );
}

function ResultRow({ result, conversationId }: { result: Result; conversationId: string }) {
  const shown = useMemo(() => face(result), [result]);
  if (!shown) return null;
  const address = shown.path && conversationId ? fileAddress(conversationId, shown.path) : "";
  switch (shown.kind) {
    case "picture":
      return <Picture face={shown} address={address} />;
    case "page":
    case "drawing":
      return <Frame face={shown} address={address} />;
    case "text":
      return <Text face={shown} address={address} />;
    default:
      // Values in JSON are text too.
      if (shown.text !== undefined && /json$/.test(shown.mediaType)) return <Text face={shown} address="" />;
      return <Other face={shown} address={address} />;
  }
}

function Picture({ face: { mediaType, text = "", path = "", bytes, width, height }, address }: { face: Face; address: string }) {
  const [broken, setBroken] = useState(false);
  const own = useMemo(() => (address || !text ? "" : objectUrl(mediaType, text)), [mediaType, text, address]);
  useEffect(() => () => URL.revokeObjectURL(own), [own]);
  const source = address || own;
  if (!source || broken) return <Other face={{ kind: "other", mediaType, path, ...(bytes && { bytes }) }} address={address} />;
  const name = path || "picture";
  const picture = <img src={source} alt={name} width={width} height={height} onError={() => setBroken(true)} />;
  return address ? <a class="picture" href={address} target="_blank" rel="noopener">{picture}</a> : picture;
}

/** The style of the documents in frames, which the policy of the page names. */
let style: Promise<string> | undefined;

function Frame({ face: shown, address }: { face: Face; address: string }) {
  const { kind, text, mediaType } = shown;
  const [document, setDocument] = useState<FrameDocument>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let wanted = true;
    const content = text === undefined ? readText(address) : Promise.resolve(text);
    style ??= readText("/console/frame.css");
    Promise.all([content, style]).then(
      ([content, style]) => {
        const made = kind === "page" ? pageDocument(content, style) : drawingDocument(content, style);
        if (wanted) made ? setDocument(made) : setProblem(`This ${mediaType} cannot be read.`);
      },
      (error: Error) => wanted && setProblem(error.message),
    );
    return () => {
      wanted = false;
    };
  }, [kind, text, address]);
  if (problem) return <p class="note wrong">{problem}</p>;
  if (!document) return null;
  return <iframe sandbox="" srcdoc={document.html} height={document.height} title={kind === "page" ? "Table" : "Drawing"} />;
}

function Text({ face: shown, address }: { face: Face; address: string }) {
  const [text, setText] = useState(shown.text);
  useEffect(() => {
    if (shown.text !== undefined || !address) return;
    readText(address).then(setText, (error: Error) => setText(error.message));
  }, [shown.text, address]);
  if (text === undefined && !address) return <Other face={shown} address="" />;
  return <pre class="output">{text}</pre>;
}

function Other({ face: { mediaType, path, bytes }, address }: { face: Face; address: string }) {
  return (
    <p class="note">
      {path && address ? <a href={address} download>{path}</a> : path} {mediaType}
      {bytes !== undefined && `, ${size(bytes)}`}
    </p>
  );
}

/** A link that opens a file, or saves it where a browser does not show it. */
export function FileLink({ conversationId, path }: { conversationId: string; path: string }) {
  return <a class="path" href={fileAddress(conversationId, path)} target="_blank" rel="noopener">{path}</a>;
}

/** Makes an address of a picture in base64; empty for a text that is none. */
function objectUrl(mediaType: string, base64: string): string {
  try {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    return URL.createObjectURL(new Blob([bytes], { type: mediaType }));
  } catch {
    return "";
  }
}
