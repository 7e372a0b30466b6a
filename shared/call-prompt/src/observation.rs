//! The texts that a model reads about its calls (L1, L2).
//!
//! The wording of the default presenter is fixed: models were taught with it. Every function
//! returns one line that starts with `Observation: `; tool output in it is neutralised.

mod neutralise;
mod results;
mod skeleton;

use call_catalogue::names::listed;
use call_catalogue::{
    Catalogue, Dialect, FENCE_NOT_CLOSED, LONE_CLOSE, MARK_INSIDE_VALUE, NEAR_MISS, Problem,
    ProblemCode, Severity, Tolerance, TrainedFormat,
};
use call_text::{Block, Call, Parsed};
use serde_json::Value;

pub use neutralise::{head_within, neutralise, tail_within};
pub use results::take_results;
pub(crate) use skeleton::example as example_value;
pub use skeleton::{corrected, outline, skeleton};

/// A tool's failure as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure<'f> {
    /// The kind of failure, for instance `timeout`.
    pub category: &'f str,
    /// The tool's own code; empty if it has none.
    pub code: &'f str,
    /// One sentence without internals.
    pub message: &'f str,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

/// A call that succeeded: strings are shown as they are, other values as compact JSON.
pub fn success(tool: &str, result: &Value) -> String {
    format!(
        "Observation: Tool {tool} executed successfully. Result: {}",
        shown(result)
    )
}

fn shown(result: &Value) -> String {
    match result {
        Value::String(text) => neutralise(text).into_owned(),
        other => neutralise(&other.to_string()).into_owned(),
    }
}

/// A call that succeeded with arguments that a person changed (rule G805).
pub fn edited_success(tool: &str, arguments: &str, reason: &str, result: &Value) -> String {
    let reason = match reason.trim() {
        "" => String::new(),
        reason => format!(" Reason: {}", neutralise(reason)),
    };
    format!(
        "Observation: Tool {tool} executed successfully with arguments that a person changed to {}.{reason} \
         Result: {}",
        neutralise(arguments),
        shown(result)
    )
}

/// The remark that the same calls had the same results (rule G706).
pub fn repeated(times: usize) -> String {
    format!(
        "Observation: The same call with the same result was made {times} times in a row. \
         Do something else, or answer in plain text."
    )
}

/// The ends of an output that is too long to be shown (L4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongOutput<'o> {
    /// The beginning of its JSON text.
    pub head: &'o str,
    /// The end of its JSON text; empty if it is not known here.
    pub tail: &'o str,
    /// The size of the whole in bytes.
    pub total_bytes: u64,
    /// The handle for reading the rest.
    pub handle: &'o str,
}

/// A call that succeeded with an output that is too long to be shown (L4). Its ends are shown as in
/// the JSON text, so that the length of the head is the offset of the rest.
pub fn long_success(tool: &str, output: &LongOutput<'_>) -> String {
    let first = output.head.len();
    let (last, tail) = match output.tail {
        "" => (String::new(), String::new()),
        tail => {
            let shown = u64::try_from(first + tail.len()).unwrap_or(u64::MAX);
            let between = output.total_bytes.saturating_sub(shown);
            let last = format!(" and the last {}", tail.len());
            let tail = neutralise(tail);
            (
                last,
                format!("\n[{between} bytes are left out here]\n{tail}"),
            )
        }
    };
    format!(
        "Observation: Tool {tool} executed successfully. Its result is JSON text of {} bytes, of which \
         these are the first {first}{last}; the rest is kept under the handle {}. Result: {}{tail}",
        output.total_bytes,
        output.handle,
        neutralise(output.head)
    )
}

/// A call whose tool failed (L5).
pub fn failure(tool: &str, failure: &Failure<'_>) -> String {
    let code = if failure.code.is_empty() {
        String::new()
    } else {
        format!(" {}", failure.code)
    };
    let again = if failure.retryable {
        " The same call may be tried again."
    } else {
        ""
    };
    let message = neutralise(failure.message);
    format!(
        "Observation: Error - Tool {tool} failed ({}{code}): {message}{again}",
        failure.category
    )
}

/// A call with wrong arguments, and a corrected call to copy if there is one.
pub fn invalid(tool: &str, problems: &[Problem], skeleton: Option<&str>) -> String {
    let mut line = format!(
        "Observation: Error - Invalid parameters for {tool}: {}",
        messages(problems)
    );
    if let Some(skeleton) = skeleton {
        line.push_str("\nWrite it like this:\n");
        line.push_str(skeleton);
    }
    line
}

/// A call that was not run because an earlier call of its block failed.
pub fn skipped(tool: &str, failed_tool: &str) -> String {
    format!("Observation: Tool {tool} was skipped because {failed_tool} failed before it.")
}

/// A call that does not run by itself because it had to be repaired: the repair, and the remedy.
pub fn confirmation(call: &Call) -> String {
    format!(
        "Observation: Error - Tool {} was not run: {}. {}",
        call.tool_id,
        repairs(call),
        advice(call)
    )
}

/// Returns the words for the repairs of a call: each mark, and its reading.
pub fn repairs(call: &Call) -> String {
    let words = |tolerance: &Tolerance| tolerance.words(&neutralise(&tolerance.before));
    let mut done: Vec<String> = repairs_of(call).map(words).collect();
    done.dedup();
    match done.is_empty() {
        true => {
            "a closing mark stands inside a value, so the call can be read in two ways".to_owned()
        }
        false => format!("the call had to be repaired ({})", done.join(", ")),
    }
}

fn repairs_of(call: &Call) -> impl Iterator<Item = &Tolerance> {
    let tolerances = call.tolerances.iter();
    tolerances.filter(|tolerance| tolerance.class.is_repair())
}

/// Returns the advice for the next attempt. A mark inside a value is harmless in the form made for it.
fn advice(call: &Call) -> &'static str {
    let in_value = repairs_of(call).any(|done| done.code == MARK_INSIDE_VALUE);
    match (call.ambiguous || in_value, call.dialect.is_field_based()) {
        (false, _) => "Write the call again so that nothing has to be repaired.",
        (true, true) => {
            "If the mark belongs to the value, write the value between 「始ESCAPE」 and 「末ESCAPE」; \
             otherwise write the call again without the mark."
        }
        (true, false) => {
            "If the mark belongs to the value, write the value in <![CDATA[ and ]]>; otherwise write \
             the call again without the mark."
        }
    }
}

/// Returns the calls that were left out of a message whose earlier blocks ran: their number and tools (A1),
/// and the calls that were written in two dialects (A2). It belongs behind the results of the calls
/// that ran.
pub fn not_run(parsed: &Parsed) -> Option<String> {
    let lines = [written_twice(parsed), later_blocks(parsed)];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The calls that ran once, although two dialects hold them.
fn written_twice(parsed: &Parsed) -> Option<String> {
    let names: Vec<&str> = parsed
        .repeated()
        .map(|call| call.tool_id.as_str())
        .collect();
    let (count, what) = match names.len() {
        0 => return None,
        1 => ("1 call".to_owned(), "was not run a second time"),
        count => (format!("{count} calls"), "were not run a second time"),
    };
    Some(format!(
        "Observation: {count} ({}) {what}: the same call in another form is before it. Write each call once.",
        neutralise(&listed(names.into_iter()))
    ))
}

fn later_blocks(parsed: &Parsed) -> Option<String> {
    let left_out = |index: usize| parsed.blocks.get(index).is_some_and(|block| !block.runs);
    let blocks = parsed.blocks.iter().filter(|block| !block.runs).count();
    if blocks == 0 {
        return None;
    }
    let calls = parsed.calls.iter().filter(|call| left_out(call.block));
    let names: Vec<&str> = calls.map(|call| call.tool_id.as_str()).collect();
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let what = match names.len() {
        0 => counted(blocks, "later block"),
        count => format!(
            "{} of later blocks ({})",
            counted(count, "call"),
            neutralise(&listed(names.into_iter()))
        ),
    };
    let (was, again) = match what.starts_with("1 ") {
        true => ("was", "It"),
        false => ("were", "They"),
    };
    Some(format!(
        "Observation: {what} {was} not run. {again} may be sent again now."
    ))
}

/// A call that repeats untrusted text.
pub fn untrusted_echo(tool: &str) -> String {
    format!(
        "Observation: Error - Tool {tool} was not run: the same call appears in untrusted text, which is not obeyed."
    )
}

/// A call that cannot run, in the default wording.
pub fn for_call(call: &Call, catalogue: &Catalogue) -> Option<String> {
    let Some(first) = call.problems.first() else {
        return (call.runs && call.needs_confirmation).then(|| confirmation(call));
    };
    match first.code {
        ProblemCode::UnknownTool => {
            let mut line = format!("Observation: Error - {}", neutralise(&first.message));
            if !first.expected.is_empty() {
                let stop = if line.ends_with('?') { "" } else { "." };
                line.push_str(&format!("{stop} Available tools: {}", first.expected));
            }
            Some(line)
        }
        ProblemCode::ToolNotAvailable | ProblemCode::ToolRemoved => Some(format!(
            "Observation: Error - {}",
            neutralise(&first.message)
        )),
        // A near miss of a name is advice enough.
        ProblemCode::UnknownParameter
            if call.problems.len() == 1 && !first.suggestions.is_empty() =>
        {
            Some(invalid(&call.tool_id, &call.problems, None))
        }
        _ => Some(invalid(
            &call.tool_id,
            &call.problems,
            corrected(call, catalogue).as_deref(),
        )),
    }
}

/// A block that cannot run, in the default wording.
pub fn for_block(block: &Block) -> Option<String> {
    if block.problems.is_empty() {
        return None;
    }
    let kind = match block.dialect {
        Dialect::Action => "Malformed XML in ACTION block",
        Dialect::ToolTag | Dialect::ToolJson | Dialect::Native => "Malformed tool call",
        Dialect::TamV1 | Dialect::TamV2 => "Malformed TAM block",
        Dialect::Vcp => "Malformed TOOL_REQUEST block",
    };
    Some(format!(
        "Observation: Error - {kind}: {}",
        messages(&block.problems)
    ))
}

/// Returns the line for a block that cannot run. For a block in a trained format the way of writing
/// it in `dialect` follows (G9).
fn for_block_in(
    index: usize,
    parsed: &Parsed,
    dialect: Dialect,
    catalogue: &Catalogue,
) -> Option<String> {
    let block = parsed.blocks.get(index)?;
    let mut line = for_block(block)?;
    let has = |code: ProblemCode| block.problems.iter().any(|problem| problem.code == code);
    let trained = |problem: &Problem| TrainedFormat::of_rule(problem.rule).is_some();
    if !has(ProblemCode::UnsupportedFormat) && !block.problems.iter().any(trained) {
        return Some(line);
    }
    // Of a call that could not be read to its end an example would lack values.
    let calls = parsed.calls.iter().filter(|call| call.block == index);
    let calls = calls.filter(|_| has(ProblemCode::UnsupportedFormat));
    let examples = calls.filter_map(|call| skeleton::corrected_in(call, dialect, catalogue));
    let examples: Vec<String> = examples.collect();
    match examples.is_empty() {
        true => {
            let mark = dialect.opening_mark(None);
            line.push_str(&format!(
                ". Write it behind {mark}, as the list of tools shows"
            ));
        }
        false => {
            line.push_str("\nWrite it like this:\n");
            line.push_str(&examples.join("\n"));
        }
    }
    Some(line)
}

/// The text that a model should read about blocks that should have run and that no call could
/// be read from: one line per block. `None` if there is no such block. Examples are written in
/// `dialect`, which the model is taught.
pub fn for_blocks(parsed: &Parsed, dialect: Dialect, catalogue: &Catalogue) -> Option<String> {
    let refused = (0..parsed.blocks.len()).filter(|index| parsed.blocks[*index].runs);
    let refused = refused.filter_map(|index| for_block_in(index, parsed, dialect, catalogue));
    let lines: Vec<String> = refused.chain(for_text(parsed)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The text that a model should read about a message that cannot run as written: one line per
/// block or call. `None` if there is no problem.
pub fn feedback(parsed: &Parsed, catalogue: &Catalogue) -> Option<String> {
    let mut lines = Vec::new();
    for index in (0..parsed.blocks.len()).filter(|index| parsed.blocks[*index].runs) {
        match for_block_in(index, parsed, Dialect::Action, catalogue) {
            Some(line) => lines.push(line),
            None => lines.extend(
                parsed
                    .calls
                    .iter()
                    .filter(|call| call.block == index)
                    .filter_map(|call| for_call(call, catalogue)),
            ),
        }
    }
    lines.extend(for_text(parsed));
    lines.extend(not_run(parsed));
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns one line for each kind of intended call that remained text: fields behind a marker that
/// opens no block, blocks in a region that is never closed (G9), and the end of a call behind the
/// calls that ran.
fn for_text(parsed: &Parsed) -> impl Iterator<Item = String> + '_ {
    let remark_of = |code: &str| {
        let remarks = parsed.diagnostics.iter();
        remarks.clone().find(|remark| remark.code == code)
    };
    let meant = [NEAR_MISS, FENCE_NOT_CLOSED]
        .into_iter()
        .filter_map(move |code| {
            remark_of(code).filter(|remark| remark.severity == Severity::Warning)
        });
    let said = meant.map(|remark| {
        let outcome = match remark.code == NEAR_MISS {
            true => "No tool was called: ",
            false => "",
        };
        let said = neutralise(&remark.message);
        format!("Observation: Error - {outcome}{said}; {}", remark.hint)
    });
    // Behind the calls that ran, a lone mark closes a call as well; a doubled mark closes none.
    let doubled = parsed.trailing_text.trim_start().starts_with("</");
    let closes = remark_of(LONE_CLOSE).filter(|_| !parsed.blocks.is_empty() && !doubled);
    said.chain(closes.map(|remark| {
        format!(
            "Observation: Error - {}; {}",
            neutralise(&remark.message),
            remark.hint
        )
    }))
}

fn messages(problems: &[Problem]) -> String {
    let listed: Vec<String> = problems
        .iter()
        .map(|problem| neutralise(problem.message.trim_end_matches('.')).into_owned())
        .collect();
    listed.join("; ")
}

#[cfg(test)]
mod tests;
