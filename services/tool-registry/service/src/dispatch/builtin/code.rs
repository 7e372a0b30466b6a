//! `CodeInterpreter:execute`: code that a model wrote, in the sandbox.

use call_outcome::code_error;
use call_outcome::{CallOutcome, Category, Failure, Written};
use contracts::tavern::sandbox::v1::{
    Collect, CollectedFiles, ExecuteRequest, ExecuteResponse, RefusedFile, ResultState,
    execute_request,
};
use serde_json::{Map, Value, json};

use super::{left_files, optional_text, text};
use crate::conversation_files::ConversationFiles;
use crate::dispatch::{
    ResolvedCall,
    sandbox::{
        CodeFiles, LeftFiles, ProgramFiles, Ran, Sandbox, failed_verdict, has_exited, reason_of,
    },
};
use crate::in_flight::STDOUT;

/// The most of each output stream that a call gives by whose handle no more could be read.
const MAX_OUTPUT_CHARS: usize = 64 << 10;

/// The most files that are named; code that leaves more has lost its way.
const MAX_FILES: u32 = 64;

/// The most refused files that are named.
const MAX_REFUSED: usize = 16;

/// Runs code and returns its output and the files that it left.
pub(super) async fn execute(
    sandbox: &Sandbox,
    files: &ConversationFiles,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let (language, mut request) = match request_of(resolved) {
        Ok(asked) => asked,
        Err(failure) => return CallOutcome::Failed(failure),
    };
    let named = optional_text(&resolved.arguments, "packages");
    let packages = sandbox.packages().choose(named, &language).await;
    request.packages.clone_from(&packages);
    let files = match &resolved.conversation {
        None => ProgramFiles::default(),
        Some(conversation) => {
            request.collect = None;
            let opened = CodeFiles::open(files, sandbox, &resolved.context, conversation);
            match opened.await {
                Ok(files) => files.into(),
                Err(failure) => return CallOutcome::Failed(failure),
            }
        }
    };
    let ran = sandbox.execute_on(request, resolved, &files);
    let mut response = match ran.await {
        Ok(response) => response,
        Err(outcome) => return outcome,
    };
    let left = match response.workspace.take() {
        Some(changes) => files.take(changes, "code").await,
        None => Ok(LeftFiles::default()),
    };
    let Some(failure) = failed_verdict(&response, &language) else {
        if let Err(failure) = left {
            let written = Written::from_bytes(&response.stdout, &response.stderr);
            return CallOutcome::Failed(written.added_to(failure));
        }
        let mut output = output_of(&response, resolved);
        left_files::name(&mut output, &left);
        return CallOutcome::Succeeded(Value::Object(output));
    };
    let failure = match has_exited(&response) {
        true => {
            let failure = with_trace(failure, &language, &response);
            let stderr = String::from_utf8_lossy(&response.stderr);
            let ran = Ran {
                runtime: &language,
                packages: &packages,
                by_definition: false,
            };
            sandbox.explained(failure, ran, &stderr).await
        }
        false => failure,
    };
    let mut failure = with_files(failure, &response);
    left_files::name(&mut failure.details, &left);
    CallOutcome::Failed(failure)
}

fn request_of(resolved: &ResolvedCall) -> Result<(String, ExecuteRequest), Failure> {
    let code = text(&resolved.arguments, "code")?;
    without_nul(code)?;
    let language = text(&resolved.arguments, "language")?.to_owned();
    let request = ExecuteRequest {
        runtime: language.clone(),
        program: Some(execute_request::Program::SourceText(code.to_owned())),
        collect: Some(Collect {
            max_files: Some(MAX_FILES),
            as_blobs: true,
            ..Collect::default()
        }),
        ..ExecuteRequest::default()
    };
    Ok((language, request))
}

/// Refuses code that no file can hold.
pub(super) fn without_nul(code: &str) -> Result<(), Failure> {
    if code.contains('\0') {
        let message = "the code contains a NUL character; remove it";
        return Err(Failure::new(Category::Validation, "invalid_code", message));
    }
    Ok(())
}

/// Returns as much of an output stream as the call gives; the sandbox bounds it.
pub(super) fn shown(bytes: &[u8], resolved: &ResolvedCall) -> String {
    let text = String::from_utf8_lossy(bytes);
    match resolved.effect_id {
        Some(_) => text.into_owned(),
        None => text.chars().take(MAX_OUTPUT_CHARS).collect(),
    }
}

fn output_of(response: &ExecuteResponse, resolved: &ResolvedCall) -> Map<String, Value> {
    let mut output = Map::new();
    let mut show = |stream: &str, bytes: &[u8]| {
        output.insert(stream.to_owned(), json!(shown(bytes, resolved)));
    };
    show(STDOUT, &response.stdout);
    show("stderr", &response.stderr);
    let dropped = |problem: &str| ("result_dropped", json!(problem));
    let result = match response.result_state() {
        ResultState::Json => Some(
            match json_schema::parse_json_strict(&response.result_json) {
                Ok(result) => ("result", result),
                Err(error) => dropped(&error.to_string()),
            },
        ),
        ResultState::Malformed => Some(dropped("it is not one JSON value in UTF-8")),
        ResultState::TooLarge => Some(dropped("it has more bytes than the limit")),
        ResultState::None | ResultState::Unspecified => None,
    };
    output.extend(result.map(|(key, value)| (key.to_owned(), value)));
    if let Some(collected) = &response.collected {
        add_files(&mut output, collected);
    }
    output
}

/// Replaces standard error in the message by the trace, which a model needs to correct its code.
fn with_trace(mut failure: Failure, language: &str, response: &ExecuteResponse) -> Failure {
    let stderr = String::from_utf8_lossy(&response.stderr);
    let Some(error) = code_error::read(language, &stderr) else {
        return failure;
    };
    failure.message = format!("the code failed: {}\n{}", error.headline(), error.trace);
    Written::from_bytes(&response.stdout, b"").added_to(failure)
}

/// Adds to the details the files that the code left before it failed.
fn with_files(mut failure: Failure, response: &ExecuteResponse) -> Failure {
    if let Some(collected) = &response.collected {
        add_files(&mut failure.details, collected);
    }
    failure
}

/// Names the files that the code left, and those that could not be taken. Nothing is said where
/// there are none.
fn add_files(output: &mut Map<String, Value>, collected: &CollectedFiles) {
    let files: Vec<Value> = collected
        .files
        .iter()
        .map(|file| json!({"path": file.path, "bytes": file.size_bytes, "sha256": file.sha256}))
        .collect();
    if !files.is_empty() {
        output.insert("files".to_owned(), Value::Array(files));
    }
    if collected.partial {
        let refused = collected.refused.iter().take(MAX_REFUSED);
        let refused: Vec<Value> = refused.map(refusal).collect();
        output.insert("files_not_kept".to_owned(), Value::Array(refused));
        output.insert(
            "files_not_kept_count".to_owned(),
            json!(collected.refused_count),
        );
    }
}

fn refusal(file: &RefusedFile) -> Value {
    json!({"path": file.path, "reason": reason_of(file)})
}
