// Packages of plugins, which are planned by a stream of their pieces, and the plugins as they change.

import { answers } from "./framed.ts";
import type { Plugin, PluginPlan } from "./types.ts";

/** A package: an archive, or the name of a directory below the plugin directory. */
export type Package = Blob | string;

/** The most bytes of an archive. */
const MOST = 20 << 20;
/** The bytes of a piece, of which base64 makes four thirds. */
const PIECE = 384 << 10;

/** Reads a package on the server, and returns the plan of its installation. */
export async function planPlugin(source: Package): Promise<PluginPlan> {
  const requests: object[] = typeof source === "string" ? [{ header: { directory: source } }] : [{ header: {} }, ...(await pieces(source))];
  let planned: PluginPlan | undefined;
  for await (const { plan } of answers<{ plan?: PluginPlan }>("registry.v1.PluginService/PlanPlugin", requests)) planned = plan;
  if (!planned) throw new Error("the answer has no plan");
  return planned;
}

/** Yields the plugins, and again after each change. */
export async function* watchPlugins(signal: AbortSignal): AsyncGenerator<Plugin[], void> {
  const changes = answers<{ plugins?: Plugin[] }>("registry.v1.PluginService/WatchPlugins", [{}], signal);
  for await (const { plugins = [] } of changes) yield plugins;
}

async function pieces(archive: Blob): Promise<object[]> {
  if (archive.size > MOST) throw new Error(`The archive has ${archive.size} bytes; at most ${MOST} are taken.`);
  const bytes = new Uint8Array(await archive.arrayBuffer());
  const starts = Array.from({ length: Math.ceil(bytes.length / PIECE) }, (_, at) => at * PIECE);
  return starts.map((start) => ({ chunk: base64(bytes.subarray(start, start + PIECE)) }));
}

function base64(bytes: Uint8Array): string {
  const characters = Array.from(bytes, (byte) => String.fromCharCode(byte));
  return btoa(characters.join(""));
}
