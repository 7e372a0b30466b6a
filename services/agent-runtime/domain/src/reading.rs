//! The decisions on the calls of an answer.
//!
//! The parser reports the calls of a text; this module decides on each before any of them leaves:
//! it runs, or it is refused with an observation. Only the model's own text of this turn is read
//! here.

use std::{fmt::Write as _, sync::Arc};

use call_catalogue::{Catalogue, Diagnostic, Dialect, Problem, ProblemCode, Rule, Span};
use call_prompt::echo::Echo;
use call_prompt::observation;
use call_text::native::NativeCall;
use call_text::{Block, Call, Parsed, Policy, native};

use super::{
    budgets::Budget,
    observation::{beyond_budget, bounded},
    turn::{CallStatus, ReadCall, name_failure},
};

/// The longest arguments that a call may have, in bytes of JSON.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = 512 << 10;

/// The most remarks on one answer that are recorded: they become durable together with its calls.
const MAX_REMARKS: usize = 512;

/// The data besides the answer that its reading depends on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The tools of the agent.
    pub catalogue: &'a Catalogue,
    /// The rules by which the text was read.
    pub policy: &'a Policy,
    /// The dialect in which the model is shown how to call.
    pub dialect: Dialect,
    /// The most calls of one answer that are carried out.
    pub per_answer: u32,
    /// The number of calls that the turn has left.
    pub left: u32,
    /// The budget because of which no call is carried out.
    pub last: Option<Budget>,
    /// Texts that the model was shown and that are not trusted.
    pub untrusted: &'a [&'a str],
}

/// An answer, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The calls in the order in which they run.
    pub calls: Vec<CallReading>,
    /// The remarks of the parser.
    pub diagnostics: Vec<Diagnostic>,
    /// The observation about the text as a whole.
    pub observation: Option<String>,
}

/// A call and the decision on it.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReading {
    /// The call in the form of the turn.
    pub call: ReadCall,
    /// The call as the parser read it, with all its problems.
    pub written: Call,
    /// The refusal; none if it runs.
    pub refusal: Option<Refusal>,
}

/// The reason for not carrying out a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status with which the call ends.
    pub status: CallStatus,
    /// The kind of reason.
    pub kind: RefusalKind,
    /// A stable code.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The observation for the model; none if it is not asked again.
    pub observation: Option<String>,
}

/// The kinds of reasons that keep a call from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The call is wrong.
    Validation,
    /// A rule forbids it.
    Policy,
    /// A budget has ended.
    Limit,
}

impl Reading {
    /// Names the failure, in the words of the turn, if no call can run.
    pub fn failure(&self) -> Option<String> {
        name_failure(
            self.calls.iter().map(|reading| &reading.call),
            self.observation.as_deref(),
        )
    }

    /// Adds the schema and a filled example of each tool to the observation (rule L7).
    pub fn explain(&mut self, context: Context<'_>) {
        for reading in &mut self.calls {
            let Some(tool) = context.catalogue.tool(&reading.call.tool_id) else {
                continue;
            };
            let Some(observed) = reading
                .refusal
                .as_mut()
                .and_then(|refusal| refusal.observation.as_mut())
            else {
                continue;
            };
            // Writing to a string cannot fail.
            let _ = write!(
                observed,
                "\nThe parameters of {} as JSON Schema: {}",
                tool.id, tool.parameters
            );
            if let Some(example) = observation::outline(tool, context.dialect, context.catalogue) {
                let _ = write!(observed, "\nA call of it is written like this:\n{example}");
            }
            *observed = bounded(std::mem::take(observed));
        }
    }
}

/// Decides on each call of a text and on the answer's structured calls.
pub fn read(parsed: Parsed, native_calls: &[NativeCall], context: Context<'_>) -> Reading {
    Reader::default().finish(parsed, native_calls, context)
}

/// Reads an answer while it is written: a closed block is final, whatever follows it.
#[derive(Debug, Default)]
pub struct Reader {
    /// Prepared with the first call.
    echo: Option<Echo>,
    calls: Vec<CallReading>,
    planned: u32,
    /// The number of calls, from the first, that the rest of the answer cannot change.
    sure: usize,
    /// The number of calls, from the first, that were found to be in a thought after they had
    /// become sure.
    taken_back: usize,
}

impl Reader {
    /// Adds the calls of a closed block.
    pub fn take(&mut self, block: &Block, calls: &[Arc<Call>], context: Context<'_>) {
        if !block.problems.is_empty() {
            return;
        }
        for call in calls.iter().filter(|call| call.runs) {
            self.decide(Call::clone(call), context);
        }
        let certain = self.calls[self.sure..]
            .iter()
            .take_while(|reading| reading.may_start_early(context.catalogue));
        self.sure += certain.count();
    }

    /// Takes back the calls so far, which were found to be in a thought. Sure calls, which may have
    /// started, stay: they change nothing.
    pub fn take_back(&mut self) {
        self.calls.truncate(self.sure);
        self.taken_back = self.sure;
        self.planned = u32::try_from(self.sure).unwrap_or(u32::MAX);
    }

    /// Returns the calls, from the first, that may start before the answer is complete: their tools
    /// are read-only, nothing was repaired in them, and only calls of the same kind precede them.
    pub fn sure(&self) -> &[CallReading] {
        &self.calls[..self.sure]
    }

    /// Decides on the remaining calls when the answer is complete. The context is the same as for
    /// the earlier calls.
    pub fn finish(
        mut self,
        mut parsed: Parsed,
        native_calls: &[NativeCall],
        context: Context<'_>,
    ) -> Reading {
        if !native_calls.is_empty() {
            let typed = native::typed(native_calls, context.catalogue, context.policy);
            native::supplement(&mut parsed, typed);
        }
        for call in parsed.runnable().skip(self.calls.len() - self.taken_back) {
            self.decide(call.clone(), context);
        }
        let of_text = [
            observation::for_blocks(&parsed, context.dialect, context.catalogue),
            observation::not_run(&parsed),
        ];
        let of_text: Vec<String> = of_text.into_iter().flatten().collect();
        let is_shown = !of_text.is_empty() && context.last.is_none();
        Reading {
            calls: self.calls,
            diagnostics: remarks(&parsed),
            observation: is_shown.then(|| bounded(of_text.join("\n"))),
        }
    }

    fn decide(&mut self, call: Call, context: Context<'_>) {
        let echo = self
            .echo
            .get_or_insert_with(|| Echo::new(context.untrusted.iter().copied()));
        let index = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let reading = decide(call, index, self.planned, echo, context);
        self.planned += u32::from(reading.refusal.is_none());
        self.calls.push(reading);
    }
}

impl CallReading {
    fn may_start_early(&self, catalogue: &Catalogue) -> bool {
        let read_only = catalogue
            .tool(&self.call.tool_id)
            .is_some_and(|tool| tool.read_only);
        let exact = !self.written.was_repaired() && !self.written.ambiguous;
        self.refusal.is_none() && read_only && exact && !self.call.needs_confirmation
    }
}

/// A call whose tool is unknown or not available, at whose name the model was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCall {
    /// The index of its block, of which it is the first call.
    pub block: usize,
    /// The block's dialect.
    pub dialect: Dialect,
    /// The name as written.
    pub name: String,
    /// The place of the name.
    pub span: Span,
}

/// Replaces the calls and problems of a block that was cut at the name of an unknown tool by that
/// call: the model is shown the name, and not the artificial end.
pub fn cut_at(parsed: &mut Parsed, unknown: UnknownCall, context: Context<'_>) {
    let Some(block) = parsed.blocks.get_mut(unknown.block) else {
        return;
    };
    if !block.runs {
        return;
    }
    block.problems.clear();
    parsed.calls.retain(|call| call.block != unknown.block);
    let named = NativeCall {
        id: String::new(),
        name: unknown.name,
        arguments_json: "{}".to_owned(),
    };
    let typed = native::typed(&[named], context.catalogue, context.policy);
    parsed.calls.extend(typed.into_iter().map(|call| {
        Arc::new(Call {
            block: unknown.block,
            dialect: unknown.dialect,
            span: unknown.span,
            ..call
        })
    }));
}

/// Returns every remark of the parser, in the order of the text.
fn remarks(parsed: &Parsed) -> Vec<Diagnostic> {
    let tolerances = parsed.calls.iter().flat_map(|call| &call.tolerances);
    let mut remarks = parsed.diagnostics.clone();
    remarks.extend(tolerances.map(call_catalogue::Tolerance::to_diagnostic));
    remarks.sort_by_key(|remark| remark.span.start);
    remarks.dedup();
    remarks.truncate(MAX_REMARKS);
    remarks
}

fn decide(
    mut written: Call,
    index: u32,
    planned: u32,
    echo: &Echo,
    context: Context<'_>,
) -> CallReading {
    let mut arguments_json = serde_json::Value::Object(written.arguments.clone()).to_string();
    let forbidden = match written.problems.is_empty() {
        true => forbidden(&written, echo),
        false => None,
    };
    if let Some(forbidden) = &forbidden {
        written
            .problems
            .push(problem_of(&written, &forbidden.message));
    } else if arguments_json.len() > MAX_ARGUMENTS_BYTES {
        written.problems.push(problem_of(
            &written,
            &format!(
                "The arguments have {} bytes; at most {MAX_ARGUMENTS_BYTES} are accepted",
                arguments_json.len()
            ),
        ));
        written.arguments.clear();
        arguments_json = "{}".to_owned();
    }
    let call = ReadCall {
        index,
        tool_id: written.tool_id.clone(),
        arguments_json,
        native: written.dialect == Dialect::Native,
        needs_confirmation: written.needs_confirmation,
        continue_on_error: written.control.continue_on_error,
        retries: written.control.retries,
        parallel_safe: context
            .catalogue
            .tool(&written.tool_id)
            .is_some_and(|tool| tool.parallel_safe),
        no_reply: written.control.no_reply,
        problems: written
            .problems
            .iter()
            .map(|problem| problem.message.clone())
            .collect(),
    };
    let refusal = refusal(&written, forbidden, planned, context);
    CallReading {
        call,
        written,
        refusal,
    }
}

/// A rule that forbids a call without other problems.
struct Forbidden {
    code: &'static str,
    message: String,
    observation: String,
}

/// Returns the rule that forbids a call, if one does.
fn forbidden(written: &Call, echo: &Echo) -> Option<Forbidden> {
    if echo.contains(written) {
        return Some(Forbidden {
            code: "untrusted_echo",
            message: "This call repeats text that came from a user, a document or a tool, so it is not executed by itself".to_owned(),
            observation: observation::untrusted_echo(&written.tool_id),
        });
    }
    written.needs_confirmation.then(|| Forbidden {
        code: "needs_confirmation",
        message: format!(
            "This call is not executed by itself: {}",
            observation::repairs(written)
        ),
        observation: bounded(observation::confirmation(written)),
    })
}

fn refusal(
    written: &Call,
    forbidden: Option<Forbidden>,
    planned: u32,
    context: Context<'_>,
) -> Option<Refusal> {
    let limit = |code: &str, message: String| {
        let observation = context
            .last
            .is_none()
            .then(|| beyond_budget(&written.tool_id, &message));
        Some(Refusal {
            status: CallStatus::Skipped,
            kind: RefusalKind::Limit,
            code: code.to_owned(),
            message,
            observation,
        })
    };
    if context.last.is_some() {
        return limit("no_calls_remain", "no calls remain in this turn".to_owned());
    }
    if let Some(problem) = written.problems.first() {
        let (kind, code, observation) = match forbidden {
            Some(Forbidden {
                code, observation, ..
            }) => (RefusalKind::Policy, code, Some(observation)),
            None => (
                RefusalKind::Validation,
                problem.code.as_str(),
                observation::for_call(written, context.catalogue).map(bounded),
            ),
        };
        return Some(Refusal {
            status: CallStatus::Failed,
            kind,
            code: code.to_owned(),
            message: written
                .problems
                .iter()
                .map(|problem| problem.message.as_str())
                .collect::<Vec<_>>()
                .join("; "),
            observation,
        });
    }
    if planned >= context.left {
        return limit("calls", "the turn has used all of its calls".to_owned());
    }
    if planned >= context.per_answer {
        return limit(
            "calls_per_response",
            format!("one answer may hold at most {} calls", context.per_answer),
        );
    }
    None
}

fn problem_of(call: &Call, message: &str) -> Problem {
    Problem {
        code: ProblemCode::LimitExceeded,
        rule: Rule::V13,
        path: String::new(),
        expected: String::new(),
        received: String::new(),
        suggestions: Vec::new(),
        message: message.to_owned(),
        span: call.span,
    }
}

#[cfg(test)]
mod tests;
