import { useEffect, useState } from "preact/hooks";

import { call, Refusal } from "../api/connect.ts";
import type { Approval } from "../api/types.ts";
import { isOwn, isUnlocked } from "../model/caller.ts";
import { address } from "../model/route.ts";
import { word, type Consent } from "../model/timeline.ts";
import { Allowed } from "./caller.tsx";
import { pretty, time } from "./text.ts";

const PENDING = "APPROVAL_STATE_PENDING";

/** The key of the approver where callers have none, until the page is closed; it is stored nowhere. */
let lastKey = "";

/** A call that waits for the approval of people, in a timeline. */
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
  if (problem) return <p class="problem" role="alert">{problem}</p>;
  return approval ? <Decision approval={approval} decided={setApproval} /> : null;
}

/** A call that waits for the approval of people, in the list of them; `decided` is called after a decision. */
export function ApprovalEntry({ approval, decided }: { approval: Approval; decided: () => void }) {
  const [ended, setEnded] = useState<Approval>();
  const { toolId, runId, createTime, expireTime } = approval;
  const after = (approval: Approval) => {
    if (approval.state !== PENDING) setEnded(approval);
    decided();
  };
  return (
    <article>
      <p class="note">
        <code class="name">{toolId}</code> waiting since {time(createTime)}; refused at {time(expireTime)} unless it is approved
      </p>
      {runId && <a href={address("run", runId)}>Open the run</a>}
      <Decision approval={ended ?? approval} decided={after} />
    </article>
  );
}

/** A pending approval and its form, then the state that the decision gave it. */
function Decision({ approval, decided }: { approval: Approval; decided: (approval: Approval) => void }) {
  const { state, needed = 1, consents = [], argumentsDigest, argumentsJson, reasons, role, principal } = approval;
  const pending = state === PENDING;
  const asked = <pre class="input" aria-label="Arguments">{pretty(argumentsJson)}</pre>;
  return (
    <div class="answer">
      {consents.length > 0 && pending && <p class="note">{`approved by ${consents.length} of ${needed}`}</p>}
      {pending ? (
        <>
          {reasons?.map(({ ruleId, text }) => (
            <p key={ruleId} class="quiet">{[ruleId, text].filter(Boolean).join(": ")}</p>
          ))}
          {role && !isUnlocked() && <p class="quiet">{`for the group ${role}`}</p>}
          {isOwn(principal) ? (
            <>
              {asked}
              <p class="note">The call acts for you, so another person decides.</p>
            </>
          ) : (
            <Allowed permission="approve" instead={asked}>
              {/* The form keeps what is written in it while the arguments are the same. */}
              <Decide key={argumentsDigest} approval={approval} decided={decided} />
            </Allowed>
          )}
        </>
      ) : (
        <p class="note">{word(state)}</p>
      )}
    </div>
  );
}

function Decide({ approval, decided }: { approval: Approval; decided: (approval: Approval) => void }) {
  const asked = pretty(approval.argumentsJson ?? "{}");
  const [text, setText] = useState(asked);
  const [reason, setReason] = useState("");
  const [key, setKey] = useState(lastKey);
  const [problem, setProblem] = useState("");
  const send = async (verdict: "APPROVE" | "REJECT") => {
    if (isUnlocked() && key.trim() === "") {
      setProblem("Enter the key of an approver.");
      return;
    }
    const { approvalId, argumentsDigest } = approval;
    const edited = verdict === "APPROVE" && text !== asked ? { editedArgumentsJson: text } : {};
    const decision = { approvalId, argumentsDigest, verdict: `APPROVAL_VERDICT_${verdict}`, reason, ...edited };
    try {
      const answer = await call<{ approval: Approval }>("registry.v1.ApprovalService/DecideApproval", decision, isUnlocked() ? key.trim() : "");
      lastKey = key;
      setProblem("");
      decided(answer.approval);
    } catch (error) {
      setProblem(refusal(error as Error));
    }
  };
  return (
    <form aria-label="Decide" onSubmit={(event) => event.preventDefault()}>
      <label class="field">
        <span>Arguments</span>
        <textarea rows={Math.min(12, text.split("\n").length + 1)} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Reason{approval.reasonRequired ? "" : " (optional)"}</span>
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      {isUnlocked() && (
        <label class="field">
          <span>Your key{approval.role ? ` (role ${approval.role})` : ""}</span>
          <input type="password" autocomplete="off" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
      )}
      <div class="buttons">
        <button type="button" class="primary" onClick={() => void send("APPROVE")}>Approve</button>
        <button type="button" class="quiet-button" onClick={() => void send("REJECT")}>Reject</button>
      </div>
      {problem && <p class="problem" role="alert">{problem}</p>}
    </form>
  );
}

/** Words a refusal for the person at the form, who knows a key and no header. */
function refusal(error: Error): string {
  const unknown = isUnlocked() && error instanceof Refusal && error.code === "unauthenticated";
  return unknown ? "No approver has this key. Check it and decide again." : error.message;
}
