import { useEffect, useState } from "preact/hooks";

import { call } from "../api/connect.ts";
import type { Approval } from "../api/types.ts";
import type { Consent } from "../model/timeline.ts";
import { pretty } from "./text.ts";

/** The key of the approver, until the page is closed; it is stored nowhere. */
let lastKey = "";

/** A call that waits for the approval of people, who can decide here. */
export function ApprovalRow({ consent: { approvalId, toolId, ended } }: { consent: Consent }) {
  return (
    <div class="wait">
      <p class="note">
        <code class="name">{toolId}</code> {ended ?? "waits for an approval"}
      </p>
      {ended === undefined && <Pending approvalId={approvalId} />}
    </div>
  );
}

function Pending({ approvalId }: { approvalId: string }) {
  const [approval, setApproval] = useState<Approval>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const shown = call<{ approval: Approval }>("registry.v1.ApprovalService/GetApproval", { approvalId });
    shown.then(({ approval }) => setApproval(approval), (error: Error) => setProblem(error.message));
  }, [approvalId]);
  return (
    <div class="answer">
      {approval?.state === "APPROVAL_STATE_PENDING" && <Decide approval={approval} failed={setProblem} />}
      {problem && <p class="problem" role="alert">{problem}</p>}
    </div>
  );
}

function Decide({ approval, failed }: { approval: Approval; failed: (problem: string) => void }) {
  const asked = pretty(approval.argumentsJson ?? "{}");
  const [text, setText] = useState(asked);
  const [reason, setReason] = useState("");
  const [key, setKey] = useState(lastKey);
  const send = async (verdict: "APPROVE" | "REJECT") => {
    lastKey = key;
    const { approvalId, argumentsDigest } = approval;
    const edited = verdict === "APPROVE" && text !== asked ? { editedArgumentsJson: text } : {};
    const decision = { approvalId, argumentsDigest, verdict: `APPROVAL_VERDICT_${verdict}`, reason, ...edited };
    try {
      await call("registry.v1.ApprovalService/DecideApproval", decision, key);
      failed("");
    } catch (error) {
      failed((error as Error).message);
    }
  };
  return (
    <form aria-label="Decide" onSubmit={(event) => event.preventDefault()}>
      {approval.reasons?.map(({ ruleId, text }) => (
        <p key={ruleId} class="quiet">{[ruleId, text].filter(Boolean).join(": ")}</p>
      ))}
      <label class="field">
        <span>Arguments</span>
        <textarea rows={Math.min(12, text.split("\n").length + 1)} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Reason{approval.reasonRequired ? "" : " (optional)"}</span>
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Your key{approval.role ? ` (role ${approval.role})` : ""}</span>
        <input type="password" autocomplete="off" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <button type="button" class="primary" onClick={() => void send("APPROVE")}>Approve</button>
      <button type="button" class="quiet-button" onClick={() => void send("REJECT")}>Reject</button>
    </form>
  );
}
