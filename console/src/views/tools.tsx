import { useState } from "preact/hooks";

import { call, list } from "../api/connect.ts";
import type { Tool } from "../api/types.ts";
import { collect, fields } from "../model/form.ts";
import { address, go } from "../model/route.ts";
import { start } from "../model/run.ts";
import { Allowed } from "./caller.tsx";
import { Fields } from "./fields.tsx";
import { useLoaded } from "./load.ts";
import { Offer } from "./offer.tsx";
import { pretty } from "./text.ts";

export function ToolsView({ id }: { id: string }) {
  const tools = useLoaded(() => list<Tool>("registry.v1.ToolRegistryService/ListTools", "tools"), "");
  const [wanted, setWanted] = useState("");
  const found = (tools.value ?? []).filter((tool) =>
    `${tool.toolId} ${tool.description ?? ""}`.toLowerCase().includes(wanted.toLowerCase()),
  );
  const open = tools.value?.find((tool) => tool.toolId === id);
  return (
    <div class={open ? "scroll split" : "scroll"}>
      <section class="column" aria-label="Tools">
        <div class="choices">
          <label>
            <span>Find</span>
            <input type="search" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
          </label>
        </div>
        {tools.problem && <p class="problem" role="alert">{tools.problem}</p>}
        {tools.value && found.length === 0 && <p class="empty">No tools match.</p>}
        <ul class="list">
          {found.map((tool) => (
            <li key={tool.toolId}>
              <a href={address("tools", tool.toolId)} aria-current={tool.toolId === id ? "true" : undefined}>
                <code class="name">{tool.toolId}</code>
                <span class="description">{tool.description}</span>
              </a>
            </li>
          ))}
        </ul>
      </section>
      {open && <Try key={open.toolId} tool={open} />}
    </div>
  );
}

function Try({ tool }: { tool: Tool }) {
  const form = fields(tool.parametersJson);
  const initial = Object.fromEntries(form.map((field) => [field.name, field.initial]));
  const [values, setValues] = useState<Record<string, string>>(initial);
  const [problem, setProblem] = useState("");
  // The call is written as a model would write it, so that the whole way is tried.
  const send = async () => {
    try {
      const argumentsJson = JSON.stringify(collect(form, values));
      const request = { toolId: tool.toolId, argumentsJson };
      const { text } = await call<{ text: string }>("gateway.v1.GatewayService/RenderCall", request);
      start({ calls: { text } }, (runId) => go("run", runId));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <section class="column try" aria-label={tool.toolId}>
      <h2>{tool.displayName || tool.toolId}</h2>
      <p class="quiet">{tool.description}</p>
      <Allowed permission="invoke" instead={<pre class="input" aria-label="Parameters">{pretty(tool.parametersJson)}</pre>}>
        <form
          aria-label={`Try ${tool.toolId}`}
          onSubmit={(event) => {
            event.preventDefault();
            void send();
          }}
        >
          <Fields fields={form} values={values} change={(name, value) => setValues({ ...values, [name]: value })} />
          {problem && <p class="problem" role="alert">{problem}</p>}
          <button type="submit" class="primary">Try</button>
        </form>
      </Allowed>
      <Offer toolId={tool.toolId} />
      <div class="pages">
        <a class="quiet-button" href={address("tools")}>Close</a>
      </div>
    </section>
  );
}
