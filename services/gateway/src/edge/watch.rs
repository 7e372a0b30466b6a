//! Following a run by the watch convention, as JSON.

use axum::body::Bytes;
use grpc_kit::Calls;
use http::HeaderMap;
use prost::Message;
use prost_reflect::DynamicMessage;
use tonic::Status;
use tonic::body::Body;

use contracts::tavern::run::v1::WatchRunRequest;

use super::call::Answer;
use super::{contract, frames};

/// The method that follows a run.
pub(super) const METHOD: &str = "/tavern.run.v1.RunService/WatchRun";
const RESPONSE: &str = "tavern.run.v1.WatchRunResponse";

/// The end of an id that marks the end of a run: a client that returns with it has received
/// everything.
pub(super) const END: &str = ".end";

/// The run that a client follows, and the position from which it does.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) calls: Calls,
    pub(super) metadata: HeaderMap,
    pub(super) run_id: String,
    pub(super) after: u64,
}

/// The records of a run.
#[derive(Debug)]
pub(super) struct Watch {
    answer: Answer,
    form: Form,
}

/// The part of a record that its text holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// An object whose key is the kind of the record.
    Whole,
    /// The content of the record, without its kind.
    Content,
}

/// A record of a watch.
#[derive(Debug)]
pub(super) struct Record {
    /// The name of its kind in the contract.
    pub(super) kind: String,
    /// The sequence to resume after, of an event or a gap.
    pub(super) sequence: Option<u64>,
    /// The record as JSON.
    pub(super) text: String,
    /// The message, whose bytes count against the share of the peer for as long as this is kept: until
    /// the text is sent.
    pub(super) bounded: Bytes,
}

impl Watch {
    /// Follows a run after the sequence `after`.
    ///
    /// # Errors
    /// A fault that is known before the first record.
    pub(super) async fn start(
        calls: Calls,
        metadata: HeaderMap,
        run_id: String,
        after: u64,
        form: Form,
    ) -> Result<Self, Status> {
        let request = WatchRunRequest {
            run_id,
            after_sequence: after,
        };
        let body = frames::frame(0, &request.encode_to_vec())?;
        let body = Body::new(http_body_util::Full::new(body));
        let mut answer = Answer::of(calls, METHOD, metadata, body).await;
        match answer.refusal() {
            Some(status) => Err(status),
            None => Ok(Self { answer, form }),
        }
    }

    /// Returns the next record; `None` at the end. Safe to cancel.
    ///
    /// # Errors
    /// The failure that ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Record>, Status> {
        loop {
            let Some(bytes) = self.answer.next().await? else {
                return Ok(None);
            };
            let Some(descriptor) = contract::message(RESPONSE) else {
                return Ok(None);
            };
            let response = DynamicMessage::decode(descriptor, bytes.clone());
            let response = response.map_err(|error| grpc_kit::internal(&error))?;
            // A kind of a newer server cannot be shown.
            if let Some(record) = Record::of(&response, self.form, bytes) {
                return Ok(Some(record));
            }
        }
    }
}

impl Record {
    fn of(response: &DynamicMessage, form: Form, bounded: Bytes) -> Option<Self> {
        let record = response.get_field_by_name("record")?;
        let whole = record.as_message()?;
        let (field, content) = whole.fields().next()?;
        let (kind, content) = (field.name().to_owned(), content.as_message()?);
        let sequence = match kind.as_str() {
            "event" => "sequence",
            "gap" => "last_sequence",
            _ => "",
        };
        let sequence = content.get_field_by_name(sequence);
        Some(Self {
            sequence: sequence.and_then(|sequence| sequence.as_u64()),
            kind,
            text: write(match form {
                Form::Whole => whole,
                Form::Content => content,
            }),
            bounded,
        })
    }
}

fn write(message: &DynamicMessage) -> String {
    // JSON can express every value of the contract except times beyond its years.
    proto_json::to_text(message).unwrap_or_else(|_| "{}".to_owned())
}
