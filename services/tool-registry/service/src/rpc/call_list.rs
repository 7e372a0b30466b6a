//! Listing the calls that a caller can see, a page at a time.

use contracts::tavern::{
    common::v1::CallStatus,
    registry::v1::{CallState, ListCallsRequest, ListCallsResponse},
};
use core_types::{PageToken, RunCursor, RunId, Timestamp, page::page_size};
use grpc_kit::{CallContext, Failure, list_of, run_list::timestamp_from_proto};
use run_events::seen_by;
use run_log::{RunFilter, StateFilter};
use tonic::Status;

use super::call_resource::{View, entry_to_proto};
use crate::runner::calls::Calls;

/// Lists calls.
pub(super) async fn list(
    calls: &Calls,
    context: &CallContext,
    request: &ListCallsRequest,
) -> Result<ListCallsResponse, Status> {
    let mut failure = Failure::invalid_fields();
    let filter = RunFilter {
        owners: seen_by(context),
        ..filter_of(request, &mut failure)
    };
    let list = list_name(request);
    let list = list_of(context, &list);
    let after = place_of(&list, &request.page_token).unwrap_or_else(|problem| {
        failure.add_violation("page_token", problem);
        None
    });
    failure.refuse_if_any()?;
    let size = page_size(request.page_size);
    let page = calls.ledger().list(&filter, after, size).await?;
    let next = page.next.map(|next| PageToken::after(next.to_string()));
    Ok(ListCallsResponse {
        calls: page
            .calls
            .iter()
            .filter_map(|entry| entry_to_proto(entry, View::Brief))
            .collect(),
        next_page_token: next.map_or_else(String::new, |next| next.encode(&list)),
    })
}

fn filter_of(request: &ListCallsRequest, failure: &mut Failure) -> RunFilter {
    let mut time = |field: &str, time: Option<prost_types::Timestamp>| -> Option<Timestamp> {
        let read = time.map(timestamp_from_proto)?;
        if read.is_none() {
            failure.add_violation(field, "is not a valid time between the years 1678 and 2262");
        }
        read
    };
    let created_since = time("dispatched_since", request.dispatched_since);
    let created_before = time("dispatched_before", request.dispatched_before);
    let parent: Option<RunId> = match request.run_id.as_str() {
        "" => None,
        run_id => run_id
            .parse()
            .map_err(|_| failure.add_violation("run_id", "is not the id of a run"))
            .ok(),
    };
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    RunFilter {
        subject: text(&request.tool_id),
        conversation: text(&request.conversation_id),
        parent,
        state: state_filter(request.state()),
        created_since,
        created_before,
        ..RunFilter::default()
    }
}

/// The ledger ends an entry with the status of its result.
fn state_filter(state: CallState) -> StateFilter {
    let status = match state {
        CallState::Unspecified => return StateFilter::Any,
        CallState::Running => return StateFilter::Open,
        // Calls that wait for people are not in the ledger; no entry ends without a status.
        CallState::Waiting => CallStatus::Unspecified,
        CallState::Succeeded => CallStatus::Succeeded,
        CallState::Failed => CallStatus::Failed,
        CallState::Rejected => CallStatus::Rejected,
        CallState::Cancelled => CallStatus::Cancelled,
        CallState::InDoubt => CallStatus::InDoubt,
    };
    StateFilter::FinishedAs(status.into())
}

/// Returns the name of the list: its conditions, without what changes from page to page.
fn list_name(request: &ListCallsRequest) -> String {
    let conditions = ListCallsRequest {
        page_size: 0,
        page_token: String::new(),
        ..request.clone()
    };
    format!("calls {conditions:?}")
}

fn place_of(list: &str, token: &str) -> Result<Option<RunCursor>, String> {
    let token = PageToken::decode(list, token).map_err(|error| error.to_string())?;
    token
        .map(|token| token.last_key().parse())
        .transpose()
        .map_err(|error: core_types::RunCursorError| error.to_string())
}
