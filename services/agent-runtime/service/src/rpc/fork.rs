//! ForkTurn: reading and checking the request.

use agent_store::conversations::branch_key;
use contracts::tavern::agent::v1::{ForkTurnRequest, fork_turn_request::Edit as Written};
use core_types::IdSource;
use grpc_kit::{CallContext, Failure};
use run_events::request_hash;

use super::{check_request_id, start};
use crate::runner::turns::NewFork;
use turn_log::fork::Edit;

/// Reads a request.
pub(super) fn read(
    context: &CallContext,
    request: ForkTurnRequest,
    ids: &dyn IdSource,
) -> Result<NewFork, Failure> {
    check_request_id(&request.request_id)?;
    let mut failure = Failure::invalid_fields();
    let body_hash = request_hash(context, &request);
    let edit = request.edit.map(|edit| match edit {
        Written::AnswerText(text) => Edit::Answer(checked("answer_text", text, &mut failure)),
        Written::FailureMessage(text) => {
            Edit::Failure(checked("failure_message", text, &mut failure))
        }
        Written::Message(text) => Edit::Message(checked("message", text, &mut failure)),
        Written::OutputJson(text) => match json_schema::parse_json_strict(&text) {
            Ok(value) => Edit::Output(value),
            Err(error) => {
                failure.add_violation("output_json", error.to_string());
                Edit::Output(serde_json::Value::Null)
            }
        },
    });
    if !failure.is_empty() {
        return Err(failure);
    }
    Ok(NewFork {
        key: branch_key(ids, &request.run_id, &request.request_id),
        run_id: request.run_id,
        sequence: request.sequence,
        edit,
        request_id: request.request_id,
        body_hash,
        options: request.options,
    })
}

fn checked(field: &str, text: String, failure: &mut Failure) -> String {
    start::check_text(field, &text, failure);
    text
}
