//! Programs of plugins: JSON in on standard input, JSON out on standard output.

use call_outcome::{CallOutcome, Category, Failure};

use contracts::tavern::{
    common::v1::OutputStream,
    sandbox::v1::{
        ExecuteRequest, ExecuteResponse, InputFile, ResultState, WorkspaceChanges, execute_request,
    },
};
use grpc_kit::CallContext;
use json_schema::JsonLimits;
use plugin_package::PluginSet;
use serde_json::{Map, Value};

use super::{
    ResolvedCall, ScriptTerms,
    sandbox::{
        CodeFiles, ProgramFiles, Ran, Sandbox, UNKNOWN_PACKAGE_SET, failed_verdict, has_exited,
        portable, tail,
    },
};
use crate::conversation_files::{ConversationFiles, blocking};
use tool_domain::{
    package::{Package, PackageFile},
    permissions::WorkspaceAccess,
    program::{Program, StreamedOutput},
    script_output,
    tool::Origin,
};

const MAX_LOG_CHARS: usize = 64 << 10;
/// The longest answer that is read, in bytes. The sandbox bounds the output of a program, by
/// default to less.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The directory with the files of the conversation, and that of the files that the plugin keeps.
const WORKSPACE: &str = plugin_package::WORKSPACE_DIRECTORY;
const STORAGE: &str = plugin_package::STORAGE_DIRECTORY;

/// The most entries that no workspace can hold of which a script's output has a line.
const MAX_NAMED: usize = 16;

/// Runs the programs of plugins.
#[derive(Clone, Debug)]
pub struct Scripts {
    sandbox: Sandbox,
    files: ConversationFiles,
}

impl Scripts {
    /// Takes the sandbox that runs them, and the files that they may work on.
    pub fn new(sandbox: Sandbox, files: ConversationFiles) -> Self {
        Self { sandbox, files }
    }

    /// Runs one program with the call's arguments.
    pub(super) async fn execute(&self, program: &Program, resolved: &ResolvedCall) -> CallOutcome {
        let package = resolved.tool.definition().package.as_ref();
        let files = package.map_or(&[][..], |package| package.files());
        let input = resolved.arguments.text().as_bytes().to_vec();
        let own_set = own_set(program, &resolved.terms);
        let request = request_of(program, (files, &resolved.terms), input);
        let packages = request.packages.clone();
        let storage = match self.storage(resolved).await {
            Ok(storage) => storage,
            Err(failure) => return CallOutcome::Failed(failure),
        };
        // Calls of a plugin that keeps files run one at a time.
        let _turn = match &storage {
            Some(storage) => Some(storage.workspace().turn().await),
            None => None,
        };
        let files = match self.program_files(storage, resolved).await {
            Ok(files) => files,
            Err(failure) => return CallOutcome::Failed(failure),
        };
        let answer = program.streamed.is_none().then_some(OutputStream::Out);
        let ran = self.sandbox.execute(request, resolved, answer, &files);
        match ran.await {
            Ok(mut response) => match ending_of(&response, program, resolved) {
                CallOutcome::Failed(failure) if has_exited(&response) => {
                    let stderr = String::from_utf8_lossy(&response.stderr);
                    let ran = Ran {
                        runtime: &program.runtime,
                        packages: &packages,
                        by_definition: true,
                    };
                    CallOutcome::Failed(self.sandbox.explained(failure, ran, &stderr).await)
                }
                CallOutcome::Succeeded(output) => {
                    let changes = response.workspace.take().unwrap_or_default();
                    match take(&files, changes, resolved).await {
                        Ok(()) => CallOutcome::Succeeded(output),
                        Err(failure) => CallOutcome::Failed(failure),
                    }
                }
                outcome => outcome,
            },
            Err(CallOutcome::Failed(failure))
                if own_set.is_some() && failure.code == UNKNOWN_PACKAGE_SET =>
            {
                CallOutcome::Failed(packages_missing(resolved))
            }
            Err(outcome) => outcome,
        }
    }

    /// Runs a program of a plugin with an input until the deadline of the context, and returns the JSON that it answers.
    /// It has no files but its package.
    ///
    /// # Errors
    /// It did not answer.
    pub(crate) async fn ask(
        &self,
        program: &Program,
        (package, terms): (&Package, &ScriptTerms),
        input: String,
        context: &CallContext,
    ) -> Result<Value, Failure> {
        let mut request = request_of(program, (package.files(), terms), input.into_bytes());
        let limits = request.limits.get_or_insert_default();
        limits.wall_time = context
            .remaining()
            .and_then(|left| prost_types::Duration::try_from(left).ok());
        let response = self.sandbox.ask(request, context).await?;
        match failed_verdict(&response, &program.runtime) {
            Some(failure) => Err(failure),
            None => answer_of(&response),
        }
    }

    /// Opens the files that the plugin keeps, if it may keep any.
    async fn storage(&self, resolved: &ResolvedCall) -> Result<Option<CodeFiles>, Failure> {
        let (Some(bytes), Origin::Plugin(plugin)) =
            (resolved.terms.storage, resolved.tool.origin().clone())
        else {
            return Ok(None);
        };
        let (workspaces, tenant) = (self.files.all().clone(), resolved.context.tenant());
        let caller = format!("plugin:{plugin}");
        let opened = blocking(move || workspaces.of_plugin(tenant, &plugin, bytes)).await?;
        let place = (self.files.all(), opened);
        let files = CodeFiles::of(place, &self.sandbox, &resolved.context, caller);
        Ok(Some(files))
    }

    /// Returns the files that a program may read, and of which it may change some.
    async fn program_files(
        &self,
        storage: Option<CodeFiles>,
        resolved: &ResolvedCall,
    ) -> Result<ProgramFiles, Failure> {
        let mut all = ProgramFiles::default();
        let caller = storage.as_ref().map(|storage| storage.caller().to_owned());
        if let Some(storage) = storage {
            all.add(STORAGE, Some(storage), true);
        }
        if let Some(access) = resolved.terms.workspace {
            let context = &resolved.context;
            let files = match &resolved.conversation {
                None => None,
                Some(conversation) => {
                    let workspace = self.files.open(context, conversation).await?;
                    let caller = caller.unwrap_or_else(|| portable(conversation.as_str()));
                    let place = (self.files.all(), workspace);
                    Some(CodeFiles::of(place, &self.sandbox, context, caller))
                }
            };
            all.add(WORKSPACE, files, access == WorkspaceAccess::Write);
        }
        Ok(all)
    }
}

/// Makes the failure of a script whose plugin has dependencies that are not built.
fn packages_missing(resolved: &ResolvedCall) -> Failure {
    let plugin = match resolved.tool.origin() {
        Origin::Plugin(plugin) => plugin,
        _ => resolved.tool.id(),
    };
    let message = format!(
        "the libraries of the plugin '{plugin}' are not built here; the operator builds them from its directory or \
         .zip, as with `tavern packages build --plugin {plugin}`"
    );
    Failure::new(Category::Dependency, "packages_missing", message).detail("plugin", plugin)
}

/// Takes the changes of a script that succeeded; one that fails changes nothing.
async fn take(
    files: &ProgramFiles,
    changes: WorkspaceChanges,
    resolved: &ResolvedCall,
) -> Result<(), Failure> {
    let left = files.take(changes, resolved.tool.id()).await?;
    for (path, reason) in left.refused.iter().take(MAX_NAMED) {
        let line = format!("'{path}' is not kept: {reason}\n");
        resolved.in_flight.output(OutputStream::Err, line);
    }
    Ok(())
}

/// Returns the package set of a program that names none: that of its plugin, if it is of the same runtime.
fn own_set<'a>(program: &Program, terms: &'a ScriptTerms) -> Option<&'a PluginSet> {
    let set = terms.package_set.as_deref();
    set.filter(|set| program.packages.is_empty() && set.runtime.is_of(&program.runtime))
}

/// Makes the request for a program with the files and the terms of its plugin.
fn request_of(
    program: &Program,
    (files, terms): (&[PackageFile], &ScriptTerms),
    input: Vec<u8>,
) -> ExecuteRequest {
    let own_set = own_set(program, terms);
    ExecuteRequest {
        runtime: program.runtime.clone(),
        packages: own_set.map_or(&program.packages, |set| &set.name).clone(),
        program: Some(execute_request::Program::EntryPath(program.entry.clone())),
        files: files.iter().map(input_file).collect(),
        arguments: program.arguments.clone(),
        options_json: terms.options.as_deref().unwrap_or_default().to_owned(),
        limits: terms.limits(),
        stdin: input,
        ..ExecuteRequest::default()
    }
}

fn input_file(file: &PackageFile) -> InputFile {
    InputFile {
        path: file.path.clone(),
        content: file.content.clone(),
        executable: false,
        ..InputFile::default()
    }
}

fn ending_of(
    response: &ExecuteResponse,
    program: &Program,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let failure = failed_verdict(response, &program.runtime);
    if let Some(failure) = failure.clone().filter(|_| !has_exited(response)) {
        return CallOutcome::Failed(failure);
    }
    let answer = match &program.streamed {
        Some(_) => answer_beside_output(response),
        None => answer_of(response),
    };
    if let Ok(answer) = &answer {
        let logs = script_output::logs_of(answer);
        if !logs.is_empty() {
            resolved
                .in_flight
                .output(OutputStream::Err, tail(&logs, MAX_LOG_CHARS));
        }
    }
    match (failure, answer) {
        (None, Ok(answer)) => match (script_output::read(answer), &program.streamed) {
            (CallOutcome::Succeeded(result), Some(streamed)) => {
                let whole = with_output(result, streamed, response);
                whole.map_or_else(CallOutcome::Failed, CallOutcome::Succeeded)
            }
            (outcome, _) => outcome,
        },
        (None, Err(failure)) => CallOutcome::Failed(failure),
        // A failure in the script's own words says more than its exit code.
        (Some(failure), Ok(answer)) => {
            CallOutcome::Failed(script_output::read_failure(answer).unwrap_or(failure))
        }
        (Some(failure), Err(_)) => CallOutcome::Failed(failure),
    }
}

/// Makes the failure of a script whose output is not of its form.
fn malformed(message: impl Into<String>) -> Failure {
    Failure::new(Category::Runtime, "script_output_malformed", message)
}

/// Returns the answer of a script whose standard output is one of its outputs: the JSON on its result channel, or an
/// empty object.
fn answer_beside_output(response: &ExecuteResponse) -> Result<Value, Failure> {
    match response.result_state() {
        ResultState::Json => answer_of(response),
        ResultState::None | ResultState::Unspecified => Ok(Value::Object(Map::new())),
        ResultState::Malformed => Err(malformed(
            "the script's result channel must have one JSON value, and has other bytes",
        )),
        ResultState::TooLarge => {
            let message = "the script's result is larger than the sandbox takes; answer less";
            Err(Failure::limit("output_limit", message))
        }
    }
}

/// Returns the result of a script with its standard output as one of its members, unless the script stated it.
fn with_output(
    mut result: Value,
    streamed: &StreamedOutput,
    response: &ExecuteResponse,
) -> Result<Value, Failure> {
    let Value::Object(members) = &mut result else {
        return Ok(result);
    };
    let key = &streamed.key;
    if response.stdout.is_empty() || members.contains_key(key) {
        return Ok(result);
    }
    if script_client::is_cut(response) {
        let message = format!("the output '{key}' is longer than the sandbox takes; write less");
        return Err(Failure::limit("output_limit", message));
    }
    let text = String::from_utf8_lossy(&response.stdout);
    let whole = match streamed.is_text {
        true => Value::String(text.into_owned()),
        false => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let values = lines.map(|line| {
                let read = json_schema::parse_json_strict(line);
                read.map_err(|error| {
                    malformed(format!("a line of the output '{key}' is not JSON: {error}"))
                })
            });
            Value::Array(values.collect::<Result<_, _>>()?)
        }
    };
    members.insert(key.clone(), whole);
    Ok(result)
}

/// Returns the JSON that a script answered: from its result channel, or else its standard output.
fn answer_of(response: &ExecuteResponse) -> Result<Value, Failure> {
    let text = if response.result_json.is_empty() {
        std::str::from_utf8(&response.stdout)
            .unwrap_or_default()
            .trim()
    } else {
        response.result_json.as_str()
    };
    let limits = JsonLimits {
        max_bytes: MAX_ANSWER_BYTES,
        ..JsonLimits::default()
    };
    json_schema::parse_json_strict_with(text, &limits).map_err(|error| {
        if response.result_json.is_empty() && script_client::is_cut(response) {
            let message = format!(
                "the script's answer has more than {} bytes, which is more than is kept of standard \
                 output; answer less, and write everything else to standard error",
                response.stdout_bytes
            );
            return Failure::limit("output_limit", message);
        }
        let begin: String = text.chars().take(120).collect();
        let message = if begin.is_empty() {
            "the script answered nothing; it must write one JSON value to standard output"
                .to_owned()
        } else {
            format!(
                "the script's standard output must be one JSON value, and it begins with '{begin}' \
                 ({error}); write everything else to standard error"
            )
        };
        malformed(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_which_a_part_was_cut_is_a_reached_limit() {
        let cut = ExecuteResponse {
            stdout: b"\"xxxx".to_vec(),
            stdout_bytes: 2_000_002,
            stdout_truncated_bytes: 1_999_997,
            ..ExecuteResponse::default()
        };
        let failure = answer_of(&cut).unwrap_err();
        assert_eq!(
            (failure.category, failure.code.as_str()),
            (Category::Limit, "output_limit")
        );
        let whole = ExecuteResponse {
            stdout: b"\"xxxx".to_vec(),
            stdout_bytes: 5,
            ..ExecuteResponse::default()
        };
        assert_eq!(
            answer_of(&whole).unwrap_err().code,
            "script_output_malformed"
        );
    }
}
