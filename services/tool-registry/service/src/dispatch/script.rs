//! Programs of plugins: JSON in on standard input, JSON out on standard output.

use call_outcome::{CallOutcome, Category, Failure};

use contracts::tavern::{
    common::v1::OutputStream,
    sandbox::v1::{ExecuteRequest, ExecuteResponse, InputFile, execute_request},
};
use json_schema::JsonLimits;
use serde_json::Value;

use super::{
    ResolvedCall,
    sandbox::{Ran, Sandbox, failed_verdict, has_exited, tail},
};
use tool_domain::{package::PackageFile, program::Program, script_output};

const MAX_LOG_CHARS: usize = 64 << 10;
/// The longest answer that is read, in bytes. The sandbox bounds the output of a program, by
/// default to less.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Runs the programs of plugins.
#[derive(Clone, Debug)]
pub struct Scripts {
    sandbox: Sandbox,
}

impl Scripts {
    /// Takes the sandbox that runs them.
    pub fn new(sandbox: Sandbox) -> Self {
        Self { sandbox }
    }

    /// Runs one program with the call's arguments.
    pub(super) async fn execute(&self, program: &Program, resolved: &ResolvedCall) -> CallOutcome {
        let package = resolved.tool.definition().package.as_ref();
        let files = package.map_or(&[][..], |package| package.files());
        let terms = &resolved.terms;
        let request = ExecuteRequest {
            runtime: program.runtime.clone(),
            packages: program.packages.clone(),
            program: Some(execute_request::Program::EntryPath(program.entry.clone())),
            files: files.iter().map(input_file).collect(),
            arguments: program.arguments.clone(),
            options_json: terms.options.as_deref().unwrap_or_default().to_owned(),
            limits: terms.limits(),
            stdin: resolved.arguments.text().as_bytes().to_vec(),
            ..ExecuteRequest::default()
        };
        let answer = Some(OutputStream::Out);
        match self.sandbox.execute(request, resolved, answer).await {
            Ok(response) => match ending_of(&response, &program.runtime, resolved) {
                CallOutcome::Failed(failure) if has_exited(&response) => {
                    let stderr = String::from_utf8_lossy(&response.stderr);
                    let ran = Ran {
                        runtime: &program.runtime,
                        packages: &program.packages,
                        by_definition: true,
                    };
                    CallOutcome::Failed(self.sandbox.explained(failure, ran, &stderr).await)
                }
                outcome => outcome,
            },
            Err(outcome) => outcome,
        }
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

fn ending_of(response: &ExecuteResponse, runtime: &str, resolved: &ResolvedCall) -> CallOutcome {
    let failure = failed_verdict(response, runtime);
    if let Some(failure) = failure.clone().filter(|_| !has_exited(response)) {
        return CallOutcome::Failed(failure);
    }
    let answer = answer_of(response);
    if let Ok(answer) = &answer {
        let logs = script_output::logs_of(answer);
        if !logs.is_empty() {
            resolved
                .in_flight
                .output(OutputStream::Err, tail(&logs, MAX_LOG_CHARS));
        }
    }
    match (failure, answer) {
        (None, Ok(answer)) => script_output::read(answer),
        (None, Err(failure)) => CallOutcome::Failed(failure),
        // A failure in the script's own words says more than its exit code.
        (Some(failure), Ok(answer)) => {
            CallOutcome::Failed(script_output::read_failure(answer).unwrap_or(failure))
        }
        (Some(failure), Err(_)) => CallOutcome::Failed(failure),
    }
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
        Failure::new(Category::Runtime, "script_output_malformed", message)
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
