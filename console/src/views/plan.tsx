import type { Finding } from "../api/types.ts";
import { discardPlan, install, type Planned } from "../model/plugins.ts";
import { go } from "../model/route.ts";
import { time } from "./text.ts";

/** The plan of a package, to be read before it is approved. */
export function PlanDetail({ planned: { title, plan, problem, refused, installing } }: { planned: Planned }) {
  const { planDigest, plugin, text, violations = [], expireTime } = plan ?? {};
  const approve = async () => {
    const name = await install();
    if (name) go("plugins", name);
  };
  return (
    <section class="column try" aria-label={`Plan of ${title}`}>
      <h2>{title}</h2>
      {!plan && !problem && <p class="quiet" role="status">The server reads the package.</p>}
      {plan && !planDigest && <p class="problem" role="alert">This package cannot be installed.</p>}
      <Findings label="Reasons" findings={violations} />
      {plugin && text && <pre class="plan" aria-label="Plan" tabIndex={0}>{text}</pre>}
      {problem && <p class="problem" role="alert">{problem}</p>}
      <Findings label="Refused for" findings={refused} />
      {planDigest && <p class="note">{`Nothing has changed yet. The plan can be installed until ${time(expireTime)}.`}</p>}
      <div class="pages">
        <button type="button" class="quiet-button" onClick={discardPlan}>Close</button>
        {planDigest && <button type="button" class="primary" disabled={installing} onClick={() => void approve()}>Approve and install</button>}
      </div>
    </section>
  );
}

/** Findings about files; nothing where there are none. */
export function Findings({ label, findings }: { label: string; findings: Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <ul class="findings" aria-label={label}>
      {findings.map(({ severity, path, message }, at) => (
        <li key={at} class={severity === undefined || severity === "SEVERITY_ERROR" ? "note wrong" : "note"}>
          {path && <><code>{path}</code>: </>}
          {message}
        </li>
      ))}
    </ul>
  );
}
