import type { ComponentChildren } from "preact";

import { approvals, doubts, questions, refresh, type Waiting } from "../model/inbox.ts";
import { ApprovalEntry } from "./approval.tsx";
import { DoubtEntry } from "./doubt.tsx";
import { QuestionEntry } from "./wait.tsx";

/** The decisions that wait for people, over all runs, each to be made here. */
export function InboxView() {
  return (
    <div class="scroll">
      <Section title="Approvals" empty="No call waits for an approval." list={approvals.waiting.value} more={approvals.more}>
        {approvals.waiting.value.elements?.map((approval) => (
          <ApprovalEntry key={approval.approvalId} approval={approval} decided={refresh} />
        ))}
      </Section>
      <Section title="Questions" empty="Nothing is asked." list={questions.waiting.value} more={questions.more}>
        {questions.waiting.value.elements?.map((question) => (
          <QuestionEntry key={question.wait.waitId} question={question} answered={refresh} />
        ))}
      </Section>
      <Section title="Calls in doubt" empty="No call is in doubt." list={doubts.waiting.value} more={doubts.more}>
        {doubts.waiting.value.elements?.map((doubtful) => (
          <DoubtEntry key={`${doubtful.effectId} ${doubtful.attempt}`} doubtful={doubtful} decided={refresh} />
        ))}
      </Section>
    </div>
  );
}

function Section({
  title,
  empty,
  list: { elements, more: isCut, problem },
  more,
  children,
}: {
  title: string;
  empty: string;
  list: Waiting<unknown>;
  more: () => Promise<void>;
  children: ComponentChildren;
}) {
  return (
    <section class="column waits" aria-label={title}>
      <h2>
        {title}
        {elements && elements.length > 0 && <span class="count">{`${elements.length}${isCut ? "+" : ""}`}</span>}
      </h2>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {elements?.length === 0 && <p class="quiet">{empty}</p>}
      {children}
      {isCut && (
        <div class="pages">
          <button type="button" class="quiet-button" onClick={() => void more()}>More</button>
        </div>
      )}
    </section>
  );
}
