import { useEffect } from "preact/hooks";

import type { Plugin } from "../api/types.ts";
import { isIn, mayInstallation } from "../model/caller.ts";
import { discardPlan, keyOf, plan, planned, plugins, statesOf, watch } from "../model/plugins.ts";
import { address } from "../model/route.ts";
import { Choose, useDrop } from "./choose.tsx";
import { PlanDetail } from "./plan.tsx";
import { PluginDetail } from "./plugin.tsx";
import { StateMark } from "./timeline.tsx";

/** The plugins; a package that is dropped anywhere on the view is planned. */
export function PluginsView({ id }: { id: string }) {
  const { all, problem } = plugins.value;
  const mayInstall = mayInstallation("administer");
  useEffect(watch, [isIn.value]);
  useEffect(() => discardPlan, [id]);
  const send = ([archive]: File[]) => void (mayInstall && archive && plan(archive, archive.name));
  const { isOver, ...target } = useDrop(mayInstall, send);
  const chosen = all?.find((plugin) => keyOf(plugin) === id);
  const isSplit = planned.value !== undefined || chosen !== undefined;
  return (
    <div class={["scroll", isSplit && "split", isOver && "over"].filter(Boolean).join(" ")} {...target}>
      <section class="column" aria-label="Plugins">
        {mayInstall && <Choose label="Add a plugin" text="Drop the .zip of a plugin here, or choose it" accept=".zip,application/zip" send={send} />}
        {problem && <p class="problem" role="alert">{problem}</p>}
        {all?.length === 0 && <p class="empty">There are no plugins.</p>}
        <ul class="list">
          {all?.map((plugin) => <Row key={keyOf(plugin)} plugin={plugin} isOpen={plugin === chosen && !planned.value} />)}
        </ul>
      </section>
      {planned.value ? <PlanDetail planned={planned.value} /> : chosen && <PluginDetail key={id} plugin={chosen} />}
    </div>
  );
}

function Row({ plugin, isOpen }: { plugin: Plugin; isOpen: boolean }) {
  const { name = "", directory = "", displayName, version, description } = plugin;
  return (
    <li>
      <a href={address("plugins", keyOf(plugin))} aria-current={isOpen ? "true" : undefined} onClick={discardPlan}>
        <code class="name">{name || directory}</code>
        {displayName && displayName !== name && <span class="quiet">{displayName}</span>}
        {version && <span class="quiet">{version}</span>}
        {statesOf(plugin).map((state) => <StateMark key={state} state={state} />)}
        <span class="description">{description}</span>
      </a>
    </li>
  );
}
