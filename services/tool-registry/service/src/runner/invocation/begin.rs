//! Starting an invocation: its run and everything that is known before the first call.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contracts::tavern::{
    common::v1::{
        Diagnosed, Observation, ParsedText, TextDelta, ToolCall, ToolSelected, run_event::Kind,
    },
    registry::v1::InvokeCallsRequest,
};
use core_types::{CONVERSATION_OF_TEXT, ConversationId, IdSource};
use grpc_kit::{CallContext, Failure};
use prost::Message;
use run_events::{Runs, StartRun, Started, request_hash, to_its_end};
use run_log::Hash;
use serde_json::json;
use tonic::Status;

use super::Invocation;
use crate::runner::calls::Calls;

/// The kind of these runs.
pub const KIND: &str = "invocation";
const SCOPE: &str = "InvokeCalls";
/// The most calls of one text.
const MAX_CALLS: usize = 256;
/// The most remarks that are recorded.
const MAX_DIAGNOSTICS: usize = 512;
/// The most of a text that one event holds, in bytes; JSON may write it six times as long.
const MAX_INPUT_BYTES: usize = 150 << 10;
const TEXT_PIECE_BYTES: usize = 256 << 10;
/// The most of the parser's observation that is kept beside the run, in bytes.
const MAX_OBSERVATION_BYTES: usize = 16 << 10;

/// Starts and resumes invocations.
#[derive(Clone)]
pub struct Invocations {
    pub(super) runs: Runs,
    pub(super) calls: Calls,
    ids: Arc<dyn IdSource>,
}

impl std::fmt::Debug for Invocations {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Invocations")
    }
}

impl Invocations {
    /// Takes the runs of this service and its calls.
    pub fn new(runs: Runs, calls: Calls, ids: Arc<dyn IdSource>) -> Self {
        Self { runs, calls, ids }
    }

    /// Returns the runs of this service.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Starts a run for a parsed text. Returns its id, and whether it was started before.
    ///
    /// # Errors
    /// A status when the request is wrong or cannot be stored.
    pub async fn start(
        &self,
        context: CallContext,
        request: InvokeCallsRequest,
    ) -> Result<(String, bool), Status> {
        let invocations = self.clone();
        to_its_end(async move { invocations.begin(&context, request).await }).await
    }

    async fn begin(
        &self,
        context: &CallContext,
        request: InvokeCallsRequest,
    ) -> Result<(String, bool), Status> {
        let body_hash = body_hash(context, &request);
        let conversation = self.check(&request)?;
        let parsed = request.parsed.unwrap_or_default();
        let start = StartRun {
            kind: KIND,
            owner: None,
            subject: String::new(),
            conversation_id: conversation.to_string(),
            request_id: request.request_id,
            scope: SCOPE,
            body_hash,
            input_json: json!(cut(&request.text, MAX_INPUT_BYTES)).to_string(),
            input_is_model_text: true,
            options: request.options,
            can_wait: false,
            concurrency_key: String::new(),
            priority: 0,
            deadline_cap: None,
            grant: None,
            // Everything that `resume` reads to continue the run.
            owner_data: json!({
                "malformed": cut(&parsed.observation, MAX_OBSERVATION_BYTES),
                "left_out": cut(&parsed.left_out, MAX_OBSERVATION_BYTES),
                "profile": request.profile_id,
            }),
            first_events: parsed_events(&parsed),
            forks: None,
        };
        let recorder = match self.runs.start(context, start).await? {
            Started::Replayed(run) => return Ok((run.run_id, true)),
            Started::New(recorder, _) => recorder,
        };
        let run_id = recorder.run_id().to_string();
        let invocation = Invocation {
            calls: self.calls.clone(),
            recorder: recorder.clone(),
            selected: parsed.calls.into(),
            malformed: parsed.observation,
            left_out: cut(&parsed.left_out, MAX_OBSERVATION_BYTES).to_owned(),
            conversation: Some(conversation),
            profile_id: request.profile_id,
            settled: BTreeMap::new(),
            dispatched: BTreeSet::new(),
        };
        self.runs
            .execute(recorder, |control| invocation.work(control));
        Ok((run_id, false))
    }

    fn check(&self, request: &InvokeCallsRequest) -> Result<ConversationId, Status> {
        let mut failure = Failure::invalid_fields();
        match &request.parsed {
            None => failure.add_violation("parsed", "is missing"),
            Some(parsed) if parsed.calls.len() > MAX_CALLS => {
                let problem = format!("has {} calls; at most {MAX_CALLS}", parsed.calls.len());
                failure.add_violation("parsed.calls", problem);
            }
            Some(parsed) => check_calls(parsed, &mut failure),
        }
        let name = match request.conversation_id.as_str() {
            "" => format!("{CONVERSATION_OF_TEXT}{}", self.ids.next_uuid().simple()),
            given => given.to_owned(),
        };
        let conversation = ConversationId::new(name);
        match &conversation {
            Err(error) => failure.add_violation("conversation_id", error.to_string()),
            Ok(conversation) => {
                if let Err(problem) = workspace_store::check_conversation(conversation) {
                    failure.add_violation("conversation_id", problem.message.clone());
                }
            }
        }
        match conversation {
            Ok(conversation) if failure.is_empty() => Ok(conversation),
            _ => Err(failure.into_status()),
        }
    }
}

/// Returns the digest of a request. If it has a text, the result of parsing it does not count: the
/// same text may be parsed otherwise when it is repeated after a tool was added.
fn body_hash(context: &CallContext, request: &InvokeCallsRequest) -> Hash {
    let mut body = request.clone();
    if !body.text.is_empty() {
        body.parsed = None;
    }
    request_hash(context, &body)
}

/// Returns everything that was read from the text, as events.
fn parsed_events(parsed: &ParsedText) -> Vec<Kind> {
    let mut events: Vec<Kind> = pieces(&parsed.response_text)
        .map(|text| {
            Kind::Text(TextDelta {
                text: text.to_owned(),
            })
        })
        .collect();
    events.extend(
        parsed
            .diagnostics
            .iter()
            .take(MAX_DIAGNOSTICS)
            .cloned()
            .map(|diagnostic| {
                Kind::Diagnosed(Diagnosed {
                    diagnostic: Some(diagnostic),
                })
            }),
    );
    let calls = parsed.calls.iter().map(recordable);
    events.extend(calls.map(|call| Kind::ToolSelected(ToolSelected { call: Some(call) })));
    if !parsed.observation.is_empty() {
        let text = cut(&parsed.observation, MAX_INPUT_BYTES).to_owned();
        events.push(Kind::Observation(Observation { text, index: None }));
    }
    events
}

/// Returns the call as an event holds it: its sources are left out where they would not fit, as the
/// text is on the record anyway.
fn recordable(call: &ToolCall) -> ToolCall {
    let mut call = call.clone();
    if call.encoded_len() > MAX_CALL_BYTES {
        call.raw_arguments.clear();
    }
    call
}

fn check_calls(parsed: &ParsedText, failure: &mut Failure) {
    for (place, call) in parsed.calls.iter().enumerate() {
        if usize::try_from(call.index) != Ok(place) {
            let problem = format!("is {}; calls count from 0 in their order", call.index);
            failure.add_violation(format!("parsed.calls[{place}].index"), problem);
        }
        if call.tool_id.is_empty() && call.problems.is_empty() {
            failure.add_violation(format!("parsed.calls[{place}].tool_id"), "is empty");
        }
        if recordable(call).encoded_len() > MAX_CALL_BYTES {
            let problem = format!("has more than {MAX_CALL_BYTES} bytes without its raw arguments");
            failure.add_violation(format!("parsed.calls[{place}]"), problem);
        }
    }
}

/// The most of a call that an event holds beside the rest, in bytes.
const MAX_CALL_BYTES: usize = 1_000 << 10;

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(TEXT_PIECE_BYTES));
        rest = after;
        Some(piece)
    })
}
