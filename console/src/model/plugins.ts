// The plugins as they change, and the plan that a person reads before it is installed.

import { signal } from "@preact/signals";

import { call, fresh, Refusal } from "../api/connect.ts";
import { planPlugin, watchPlugins, type Package } from "../api/plugins.ts";
import type { Finding, Plugin, PluginHook, PluginPlan } from "../api/types.ts";
import { isIn } from "./caller.ts";

/** Milliseconds before a broken connection is tried again. */
const PAUSE = 1_000;

/** The plugins; `all` is missing until they are read. */
export const plugins = signal<{ all?: Plugin[]; problem: string }>({ problem: "" });

/** A package whose plan is shown. */
export interface Planned {
  source: Package;
  /** The name of the file or the directory. */
  title: string;
  requestId: string;
  /** Missing until the server has read the package. */
  plan?: PluginPlan;
  problem: string;
  /** The reasons for which the plan was not installed. */
  refused: Finding[];
  installing: boolean;
}

/** The package whose plan is shown; missing if none is. */
export const planned = signal<Planned | undefined>(undefined);

/** Returns the word by which an address names a plugin: a directory that was left out ends with a slash. */
export function keyOf({ name = "", directory = "" }: Plugin): string {
  return name || `${directory}/`;
}

/** Returns the states of a plugin, as `tavern plugins list` words them. */
export function statesOf({ loaded, disabled, missingOptions = [], hasChanges }: Plugin): string[] {
  const states: [boolean, string][] = [
    [!loaded, "left out"],
    [disabled ?? false, "switched off"],
    [missingOptions.length > 0, "needs options"],
    [hasChanges ?? false, "has changes"],
  ];
  const held = states.filter(([holds]) => holds).map(([, state]) => state);
  return held.length > 0 ? held : ["loaded"];
}

/** Returns the state of a hook in a word. */
export function stateOfHook({ suspended, failures = 0, inactiveReason }: PluginHook): string {
  if (inactiveReason) return "switched off";
  if (suspended) return "suspended";
  return failures > 0 ? "fails" : "asked";
}

/** Words the failures of a hook, and their effect. */
export function failuresOf({ suspended, failures = 0, lastFailure = "", onFailure = "" }: PluginHook): string {
  const times = `${failures} ${failures === 1 ? "failure" : "failures"} in a row, the last ${lastFailure}`;
  const effect = onFailure === "deny" ? "acts are refused" : "it is passed over";
  return suspended ? `${times}: ${effect} without a question, but for a probe each 30 s.` : `${times}: ${effect}.`;
}

/** Returns the directory whose files wait for a plan; empty if none do. */
export function waitingDirectory({ directory = "", loaded, hasChanges }: Plugin): string {
  return loaded && !hasChanges ? "" : directory;
}

/** Follows the plugins until the function that is returned is called. */
export function watch(): () => void {
  const leaving = new AbortController();
  void follow(leaving.signal);
  return () => leaving.abort();
}

async function follow(signal: AbortSignal): Promise<void> {
  while (!signal.aborted && isIn.value) {
    try {
      for await (const all of watchPlugins(signal)) plugins.value = { all, problem: "" };
    } catch (error) {
      if (signal.aborted || !isIn.value) return;
      plugins.value = { ...plugins.value, problem: (error as Error).message };
      if (error instanceof Refusal && error.code === "permission_denied") return;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** Plans a package, and shows the plan in the place of an earlier one. */
export async function plan(source: Package, title: string): Promise<void> {
  const mine: Planned = { source, title, requestId: fresh(), problem: "", refused: [], installing: false };
  planned.value = mine;
  let part: Partial<Planned>;
  try {
    part = { plan: await planPlugin(source) };
  } catch (error) {
    part = { problem: (error as Error).message };
  }
  if (planned.value === mine) planned.value = { ...mine, ...part };
}

/** Shows no plan any more. */
export function discardPlan(): void {
  planned.value = undefined;
}

/** Installs the plan that is shown. Returns the name of the plugin; nothing if it was refused. */
export async function install(): Promise<string | undefined> {
  const shown = planned.value;
  const planDigest = shown?.plan?.planDigest;
  if (!shown || !planDigest) return undefined;
  const mine = { ...shown, installing: true, problem: "", refused: [] };
  planned.value = mine;
  try {
    const request = { planDigest, requestId: shown.requestId };
    const { plugin } = await call<{ plugin?: Plugin }>("registry.v1.PluginService/InstallPlugin", request);
    if (planned.value === mine) discardPlan();
    return plugin?.name ?? shown.plan?.plugin;
  } catch (error) {
    if (planned.value === mine) planned.value = { ...mine, installing: false, problem: (error as Error).message, refused: reasonsOf(error) };
    return undefined;
  }
}

/** Returns the reasons for which a change was refused, apart from its message. */
export function reasonsOf(error: unknown): Finding[] {
  const violations = error instanceof Refusal ? error.violations : [];
  return violations.map(({ field = "", description = "" }) => ({ path: field, message: description }));
}
