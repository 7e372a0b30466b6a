//! `CodeInterpreter:execute`: code that a model wrote, in the sandbox.

use contracts::tavern::sandbox::v1::{ExecuteRequest, execute_request};
use serde_json::{Map, Value, json};

use super::text;
use crate::{
    dispatch::{
        Order,
        sandbox::{Ended, Sandbox, exited, read_verdict},
    },
    domain::ending::{Category, Ending, Failure},
};

/// The most of each output stream that is given to the model.
const MAX_OUTPUT_CHARS: usize = 64 << 10;

/// Runs code and gives what it wrote.
pub(super) async fn execute(sandbox: &Sandbox, order: &Order) -> Ending {
    let request = match request_of(&order.arguments) {
        Ok(request) => request,
        Err(failure) => return Ending::Failed(failure),
    };
    let response = match sandbox.execute(request, order).await {
        Ok(response) => response,
        Err(ending) => return ending,
    };
    match read_verdict(&response) {
        Ended::WithCode(0) => {}
        Ended::WithCode(code) => return Ending::Failed(exited(&response, code)),
        Ended::Failed(failure) => return Ending::Failed(failure),
    }
    let shown = |bytes: &[u8]| -> String {
        String::from_utf8_lossy(bytes)
            .chars()
            .take(MAX_OUTPUT_CHARS)
            .collect()
    };
    let mut output = Map::new();
    output.insert("stdout".to_owned(), json!(shown(&response.stdout)));
    output.insert("stderr".to_owned(), json!(shown(&response.stderr)));
    if !response.result_json.is_empty()
        && let Ok(result) = json_schema::parse_json_strict(&response.result_json)
    {
        output.insert("result".to_owned(), result);
    }
    Ending::Succeeded(Value::Object(output))
}

fn request_of(arguments: &Value) -> Result<ExecuteRequest, Failure> {
    let code = text(arguments, "code")?;
    if code.contains('\0') {
        let message = "the code contains a NUL character; remove it";
        return Err(Failure::new(Category::Validation, "invalid_code", message));
    }
    Ok(ExecuteRequest {
        runtime: text(arguments, "language")?.to_owned(),
        program: Some(execute_request::Program::SourceText(code.to_owned())),
        ..ExecuteRequest::default()
    })
}
