import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";

import { call, fresh } from "../api/connect.ts";
import type { Plugin, PluginHook } from "../api/types.ts";
import { may, mayInstallation } from "../model/caller.ts";
import { failuresOf, plan, reasonsOf, stateOfHook, statesOf, waitingDirectory } from "../model/plugins.ts";
import { address, go } from "../model/route.ts";
import { OptionsForm } from "./options.tsx";
import { Findings } from "./plan.tsx";
import { StateMark } from "./timeline.tsx";

/** A plugin with everything that can be changed about it. */
export function PluginDetail({ plugin }: { plugin: Plugin }) {
  const { name = "", directory = "", displayName, version, description, loaded = false, disabled = false } = plugin;
  const { packageDigest = "", diagnostics = [], permissions = [] } = plugin;
  const waiting = waitingDirectory(plugin);
  const [refusal, setRefusal] = useState<Error>();
  /** Changes something; the view learns of it by its stream. */
  const change = async (method: string, request: object) => {
    try {
      await call(`registry.v1.PluginService/${method}`, request);
      setRefusal(undefined);
      return true;
    } catch (error) {
      setRefusal(error as Error);
      return false;
    }
  };
  return (
    <section class="column try" aria-label={`Plugin ${name || directory}`}>
      <h2>{displayName || name || directory}</h2>
      <p class="runhead">
        {statesOf(plugin).map((state) => <StateMark key={state} state={state} />)}
        {version && <span class="quiet">{version}</span>}
      </p>
      {description && <p class="quiet">{description}</p>}
      {refusal && <p class="problem" role="alert">{refusal.message}</p>}
      <Findings label="Refused for" findings={reasonsOf(refusal)} />
      {waiting && <Waiting directory={waiting} loaded={loaded} />}
      <Findings label="Findings" findings={diagnostics} />
      {loaded && (
        <>
          <Switch label="Switched on" isOn={!disabled} set={(enabled) => change("SetPluginState", { name, enabled })} />
          <Tools plugin={plugin} change={change} />
          <Hooks key={`${packageDigest}${disabled}`} name={name} />
          <OptionsForm key={packageDigest} name={name} />
          <Part title="Package">
            <p class="note">{directory ? `From the directory ${directory}` : "From an archive"}, <code>{packageDigest}</code></p>
            {permissions.length > 0 && <p class="note">It may: {permissions.join(", ")}</p>}
            {mayInstallation("administer") && (
              <>
                <Earlier plugin={plugin} change={change} />
                <Remove name={name} change={change} />
              </>
            )}
          </Part>
        </>
      )}
      <div class="pages">
        <a class="quiet-button" href={address("plugins")}>Close</a>
      </div>
    </section>
  );
}

type Change = (method: string, request: object) => Promise<boolean>;

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class="part" aria-labelledby={id}>
      <h3 id={id}>{title}</h3>
      {children}
    </section>
  );
}

/** The files of a directory that are not in force. */
function Waiting({ directory, loaded }: { directory: string; loaded: boolean }) {
  const words = loaded ? "The files in its directory have changed, and are not in force." : "Its files are not in force.";
  return (
    <p class="note">
      {words}{" "}
      {mayInstallation("administer") && (
        <button type="button" class="quiet-button" onClick={() => void plan(directory, directory)}>Show the plan</button>
      )}
    </p>
  );
}

/** A switch, which shows the state of the server, and before it the one that is asked for. */
function Switch({ label, isOn, set }: { label: ComponentChildren; isOn: boolean; set: (isOn: boolean) => Promise<boolean> }) {
  const [asked, setAsked] = useState<boolean>();
  useEffect(() => setAsked(undefined), [isOn]);
  return (
    <label class="switch">
      <input
        type="checkbox"
        role="switch"
        checked={asked ?? isOn}
        disabled={!may("administer")}
        onChange={async ({ currentTarget }) => {
          setAsked(currentTarget.checked);
          if (!(await set(currentTarget.checked))) setAsked(undefined);
        }}
      />
      <span>{label}</span>
    </label>
  );
}

function Tools({ plugin: { toolIds = [], disabledToolIds = [] }, change }: { plugin: Plugin; change: Change }) {
  if (toolIds.length === 0) return null;
  return (
    <Part title="Tools">
      <ul class="switches">
        {toolIds.map((toolId) => (
          <li key={toolId}>
            <Switch
              label={<code>{toolId}</code>}
              isOn={!disabledToolIds.includes(toolId)}
              set={(enabled) => change("SetToolState", { toolId, enabled })}
            />
            <a href={address("tools", toolId)} aria-label={`Open ${toolId}`}>Open</a>
          </li>
        ))}
      </ul>
    </Part>
  );
}

/** Milliseconds after which the health of hooks is read again. */
const LOOK = 5_000;

/** The hooks of a plugin, with those that are suspended after failures. */
function Hooks({ name }: { name: string }) {
  const [hooks, setHooks] = useState<PluginHook[]>([]);
  useEffect(() => {
    const read = async () => {
      const { hooks: all = [] } = await call<{ hooks?: PluginHook[] }>("registry.v1.PluginService/ListHooks", {});
      setHooks(all.filter(({ hook = "" }) => hook.startsWith(`${name}/`)));
    };
    const look = () => void read().catch(() => {});
    look();
    const timer = setInterval(look, LOOK);
    return () => clearInterval(timer);
  }, [name]);
  if (hooks.length === 0) return null;
  return (
    <Part title="Hooks">
      <ul>
        {hooks.map((hook) => (
          <li key={`${hook.hook}${hook.point}`} class="note">
            <code>{hook.hook}</code> at <code>{hook.point}</code> <StateMark state={stateOfHook(hook)} />
            {hook.condition && <> if <code>{hook.condition}</code></>}
            {hook.failures ? <p class="problem">{failuresOf(hook)}</p> : null}
            {hook.inactiveReason && <p class="note">{hook.inactiveReason}</p>}
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Earlier({ plugin: { name, earlierDigests = [] }, change }: { plugin: Plugin; change: Change }) {
  return (
    <ul aria-label="Earlier packages">
      {earlierDigests.map((packageDigest) => (
        <li key={packageDigest} class="note">
          Before: <code>{packageDigest}</code>{" "}
          <button
            type="button"
            class="quiet-button"
            aria-label={`Roll back to ${packageDigest}`}
            onClick={() => void change("RollbackPlugin", { name, packageDigest, requestId: fresh() })}
          >
            Roll back
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The tools of a plugin, and the documents that name them. */
interface Users {
  toolIds?: string[];
  profileIds?: string[];
  workflowIds?: string[];
}

function Ids({ ids }: { ids: string[] }) {
  return <ul>{ids.map((id) => <li key={id}><code>{id}</code></li>)}</ul>;
}

/** Removes a plugin, once a person has seen which tools go with it, and their users. */
function Remove({ name, change }: { name: string; change: Change }) {
  const [users, setUsers] = useState<Users>();
  const [purge, setPurge] = useState(false);
  const [problem, setProblem] = useState("");
  const look = async () => {
    try {
      const request = { name, validateOnly: true };
      setUsers(await call<Users>("registry.v1.PluginService/UninstallPlugin", request));
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const remove = async () => {
    if (await change("UninstallPlugin", { name, purge, requestId: fresh() })) go("plugins");
  };
  if (!users) {
    return (
      <p class="buttons">
        <button type="button" class="quiet-button" onClick={() => void look()}>Remove</button>
        {problem && <span class="problem" role="alert">{problem}</span>}
      </p>
    );
  }
  const { toolIds = [], profileIds = [], workflowIds = [] } = users;
  return (
    <div class="offer" role="group" aria-label={`Remove ${name}`}>
      <p>{toolIds.length > 0 ? "Calls of these tools will fail:" : "It has no tools."}</p>
      <Ids ids={toolIds} />
      {profileIds.length > 0 && <p>These agents name them:</p>}
      <Ids ids={profileIds} />
      {workflowIds.length > 0 && <p>These workflows name them:</p>}
      <Ids ids={workflowIds} />
      <label class="switch">
        <input type="checkbox" checked={purge} onChange={({ currentTarget }) => setPurge(currentTarget.checked)} />
        <span>Remove the values of its options and the files that it keeps too, of all tenants. They stay for 30 days otherwise.</span>
      </label>
      <p class="buttons">
        <button type="button" class="quiet-button wrong" onClick={() => void remove()}>{`Remove ${name}`}</button>
        <button type="button" class="quiet-button" onClick={() => setUsers(undefined)}>Keep</button>
      </p>
    </div>
  );
}
