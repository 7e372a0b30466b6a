//! `CodeInterpreter:run_cell`: code whose variables stay for the next cell of the conversation.

use call_outcome::{CallOutcome, Category, Failure, Written};
use contracts::tavern::sandbox::v1::{CellEnded, CellInterruption, CellOutcome, SessionEndReason};
use script_client::Cell;
use serde_json::{Map, Value, json};

use super::{code::shown, left_files, optional_text, text};
use crate::conversation_files::ConversationFiles;
use crate::dispatch::{
    ResolvedCall,
    sandbox::{CellPlace, CellRun, CodeFiles, Ran, Sandbox, Sessions, portable},
};
use crate::in_flight::STDOUT;

const ENDED: &str = "the interpreter ended, and its variables are gone";

/// Runs one cell in the interpreter of the call's conversation.
pub(super) async fn run(
    sandbox: &Sandbox,
    sessions: &Sessions,
    files: &ConversationFiles,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let Some(conversation) = &resolved.conversation else {
        let message = "a cell belongs to a conversation, and the call names none; use \
                       CodeInterpreter:execute";
        let failure = Failure::new(Category::Validation, "conversation_required", message);
        return CallOutcome::Rejected(failure);
    };
    let (language, code) = match asked(resolved) {
        Ok(asked) => asked,
        Err(failure) => return CallOutcome::Failed(failure),
    };
    let runtime = match language {
        "python" => "python3",
        _ => "node",
    };
    let caller = portable(conversation.as_str());
    let named = optional_text(&resolved.arguments, "packages");
    let packages = sandbox.packages().choose(named, runtime).await;
    let place = CellPlace {
        caller: &caller,
        runtime,
        packages: &packages,
    };
    let opened = CodeFiles::open(files, sandbox, &resolved.context, conversation);
    let files = match opened.await {
        Ok(files) => files,
        Err(failure) => return CallOutcome::Failed(failure),
    };
    let ran = match sessions.run_cell(place, code, resolved, &files).await {
        Ok(ran) => ran,
        Err(outcome) => return outcome,
    };
    match (ended(&ran, language, resolved), &ran.cell.error) {
        (CallOutcome::Failed(failure), Some(error)) => {
            let trace = &error.traceback_text;
            let ran = Ran {
                runtime,
                packages: &packages,
                by_definition: false,
            };
            CallOutcome::Failed(sandbox.explained(failure, ran, trace).await)
        }
        (outcome, _) => outcome,
    }
}

fn asked(resolved: &ResolvedCall) -> Result<(&str, &str), Failure> {
    let language = text(&resolved.arguments, "language")?;
    let code = text(&resolved.arguments, "code")?;
    super::code::without_nul(code)?;
    Ok((language, code))
}

fn ended(ran: &CellRun, language: &str, resolved: &ResolvedCall) -> CallOutcome {
    let cell = &ran.cell;
    let mut failure = match (failure_of(cell, language), &ran.left) {
        (Some(failure), _) => failure,
        // The variables are kept, and so are the files in the interpreter.
        (None, Err(failure)) => {
            let written = Written::from_bytes(&cell.stdout, &cell.stderr);
            written.added_to(failure.clone())
        }
        (None, Ok(_)) => return CallOutcome::Succeeded(output_of(ran, resolved)),
    };
    failure.details.extend(place_of(ran));
    failure.details.extend(shown_by(ran));
    CallOutcome::Failed(failure)
}

fn output_of(ran: &CellRun, resolved: &ResolvedCall) -> Value {
    let stdout = shown(&ran.cell.stdout, resolved);
    let mut output = Map::from_iter([(STDOUT.to_owned(), json!(stdout))]);
    output.extend(place_of(ran));
    output.insert(
        "stderr".to_owned(),
        json!(shown(&ran.cell.stderr, resolved)),
    );
    if let Some(value) = &ran.cell.value {
        output.insert("value".to_owned(), json!(value.text));
        if value.truncated_bytes > 0 {
            let cut = format!("{} bytes of the value are not shown", value.truncated_bytes);
            output.insert("value_cut".to_owned(), json!(cut));
        }
    }
    output.extend(shown_by(ran));
    Value::Object(output)
}

/// Says which cell it was, so that a model notices an interpreter that has forgotten.
fn place_of(ran: &CellRun) -> Map<String, Value> {
    let mut place = Map::new();
    place.insert("cell".to_owned(), json!(ran.cell.number));
    if let Some(reason) = &ran.restarted {
        let said = format!("{reason}; its variables are gone, the files are there");
        place.insert("restarted_because".to_owned(), json!(said));
    }
    place
}

/// Returns the results that a cell showed, and the files that it left.
fn shown_by(ran: &CellRun) -> Map<String, Value> {
    let mut shown = Map::new();
    if !ran.results.is_empty() {
        shown.insert("results".to_owned(), Value::Array(ran.results.clone()));
    }
    let dropped = ran.cell.ended.dropped_results;
    if dropped > 0 {
        shown.insert("results_dropped".to_owned(), json!(dropped));
    }
    left_files::name(&mut shown, &ran.left);
    shown
}

/// Returns the failure of a cell; none if it succeeded.
fn failure_of(cell: &Cell, language: &str) -> Option<Failure> {
    let ended = &cell.ended;
    let written = Written::from_bytes(&cell.stdout, &cell.stderr);
    let failure = match ended.outcome() {
        CellOutcome::Succeeded => return None,
        CellOutcome::Raised => raised(cell),
        CellOutcome::SessionEnded => {
            return Some(interpreter_ended(ended, &written, language));
        }
        CellOutcome::WallExceeded
        | CellOutcome::OutputExceeded
        | CellOutcome::Interrupted
        | CellOutcome::Unspecified => interrupted(ended, "its variables are kept"),
    };
    Some(written.added_to(failure))
}

/// The failure of a cell that was interrupted, and the consequence for its interpreter.
fn interrupted(ended: &CellEnded, consequence: &str) -> Failure {
    let (category, code, reason) = match ended.interruption() {
        CellInterruption::Wall => (
            Category::Timeout,
            "wall_limit",
            "the cell ran too long and was interrupted",
        ),
        CellInterruption::Output => (
            Category::Limit,
            "output_limit",
            "the cell wrote too much and was interrupted",
        ),
        CellInterruption::Asked | CellInterruption::Unspecified => (
            Category::Timeout,
            "deadline_exceeded",
            "the cell was interrupted before its end",
        ),
    };
    Failure::new(category, code, format!("{reason}; {consequence}"))
}

fn raised(cell: &Cell) -> Failure {
    let error = cell.error.clone().unwrap_or_default();
    let message = format!(
        "the code failed: {}: {}\n{}",
        error.r#type, error.message, error.traceback_text
    );
    Failure::new(Category::Runtime, "code_failed", message.trim_end())
}

fn interpreter_ended(ended: &CellEnded, written: &Written<'_>, language: &str) -> Failure {
    let end = ended.session_end.clone().unwrap_or_default();
    let failure = match end.reason() {
        SessionEndReason::Interpreter | SessionEndReason::Unspecified => {
            let verdict = end.verdict.as_ref();
            let mut failure = call_wire::script_failure(verdict, language, written);
            failure.message = format!("{ENDED}: {}", failure.message);
            return failure;
        }
        SessionEndReason::NotInterrupted => {
            interrupted(ended, &format!("it did not obey, so {ENDED}"))
        }
        _ => {
            let message = format!("{ENDED}: {}", end.message);
            Failure::new(Category::Dependency, "interpreter_ended", message)
        }
    };
    written.added_to(failure)
}
