import { useState } from "preact/hooks";

import { call, list } from "../api/connect.ts";
import type { Run, Tool, Workflow } from "../api/types.ts";
import { collect, fields } from "../model/form.ts";
import { address } from "../model/route.ts";
import { open, shown } from "../model/run.ts";
import { Allowed } from "./caller.tsx";
import { Fields } from "./fields.tsx";
import { Graph } from "./graph.tsx";
import { useLoaded } from "./load.ts";
import { Offer } from "./offer.tsx";
import { StateMark } from "./timeline.tsx";

export function WorkflowsView({ id }: { id: string }) {
  const workflows = useLoaded(() => list<Workflow>("workflow.v1.WorkflowService/ListWorkflows", "workflows"), "");
  const chosen = workflows.value?.find(({ workflowId }) => workflowId === id);
  return (
    <div class={chosen ? "scroll split" : "scroll"}>
      <section class="column" aria-label="Workflows">
        {workflows.problem && <p class="problem" role="alert">{workflows.problem}</p>}
        {workflows.value?.length === 0 && <p class="empty">There are no workflows.</p>}
        <ul class="list">
          {workflows.value?.map(({ workflowId, name, description }) => (
            <li key={workflowId}>
              <a href={address("workflows", workflowId)} aria-current={workflowId === id ? "true" : undefined}>
                <code class="name">{workflowId}</code>
                {name !== workflowId && <span class="quiet">{name}</span>}
                <span class="description">{description}</span>
              </a>
            </li>
          ))}
        </ul>
      </section>
      {chosen && <Detail key={id} workflow={chosen} />}
    </div>
  );
}

function Detail({ workflow }: { workflow: Workflow }) {
  const [runId, setRunId] = useState("");
  const run = shown.value?.runId === runId ? shown.value : undefined;
  return (
    <section class="column try" aria-label={`Workflow ${workflow.workflowId}`}>
      <h2>{workflow.name || workflow.workflowId}</h2>
      <p class="quiet">{workflow.description}</p>
      <Graph name={workflow.workflowId} definitionJson={workflow.definitionJson ?? "{}"} items={run?.timeline.items ?? []} />
      {run && (
        <p class="runhead" role="status">
          <StateMark state={run.timeline.state} />
          <a href={address("run", runId)}>Open the run</a>
          {run.problem && <span class="wrong">{run.problem}</span>}
        </p>
      )}
      <Allowed permission="invoke">
        <Start workflowId={workflow.workflowId} started={setRunId} />
      </Allowed>
      <Offer toolId={`workflow:${workflow.workflowId}`} />
      <div class="pages">
        <a class="quiet-button" href={address("workflows")}>Close</a>
      </div>
    </section>
  );
}

/** The inputs of a workflow, as those of its tool. */
function Start({ workflowId, started }: { workflowId: string; started: (runId: string) => void }) {
  const request = { toolId: `workflow:${workflowId}` };
  const tool = useLoaded(() => call<{ tool?: Tool }>("registry.v1.ToolRegistryService/GetTool", request), workflowId);
  const form = fields(tool.value?.tool?.parametersJson);
  const [filled, setFilled] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState("");
  const values = { ...Object.fromEntries(form.map(({ name, initial }) => [name, initial])), ...filled };
  const start = async () => {
    try {
      setProblem("");
      const inputsJson = JSON.stringify(collect(form, values));
      const { run } = await call<{ run: Run }>("workflow.v1.WorkflowService/StartRun", { workflowId, inputsJson });
      open(run.runId);
      started(run.runId);
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <form
      aria-label={`Run ${workflowId}`}
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <Fields fields={form} values={values} change={(name, value) => setFilled({ ...filled, [name]: value })} />
      {(problem || tool.problem) && <p class="problem" role="alert">{problem || tool.problem}</p>}
      <button type="submit" class="primary">Run</button>
    </form>
  );
}
