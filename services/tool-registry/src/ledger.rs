//! The ledger of effects: what was dispatched, and how it ended.
//!
//! Each call with an effect id is a small run in a run log of its own. Its first event,
//! `CallDispatched`, is durable before the tool is started; its last is `CallSettled`. A call whose
//! entry is open and that no task of this process carries out was cut off by a crash: the ledger
//! keeps what is needed to decide whether it may be dispatched again.
//!
//! A later attempt at an effect is an entry of its own; the last one says what is known of the
//! effect.

use std::{sync::Arc, time::Duration};

use contracts::tavern::common::v1::{
    CallDispatched, CallResult, CallSettled, ErrorReason, RunEvent, run_event::Kind,
};
use core_types::{Clock, Durability, EffectId, IdSource, RequestId, RunOwner, Timestamp};
use grpc_kit::Failure;
use prost::Message;
use run_log::{
    AppendError, CreateError, Created, Hash, NewEvent, NewRun, Order, ReopenError, RequestKey,
    RunFilter, RunLog, RunLogs, RunState, RunSummary, RunWriter, StateFilter, StorageError,
};
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};

const SCOPE: &str = "effect";
const KIND: &str = "effect";
/// The most attempts at one effect.
pub const MAX_ATTEMPTS: u32 = 32;
const SETTLED: i32 = 1;
const MAX_EVENTS: usize = 1_000;
const SETTLE_TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// What the ledger keeps beside the events, to dispatch a call again as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The tool's id.
    pub tool_id: String,
    /// The tool was declared safe to dispatch again when it was dispatched.
    pub may_repeat: bool,
    /// The call is carried out by a run of the workflow service.
    pub is_run: bool,
    /// Which attempt at the effect it is, from 1.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// The conversation; empty if there is none.
    pub conversation_id: String,
    /// How long the call may take, in milliseconds.
    pub timeout_ms: u64,
}

fn first_attempt() -> u32 {
    1
}

/// What the ledger knows of an effect, by the last of its attempts.
#[derive(Debug)]
pub enum Past {
    /// Nothing.
    Nothing,
    /// It ended.
    Settled(Settled),
    /// It was dispatched and nobody recorded its end.
    Open(Open),
}

/// An attempt that ended.
#[derive(Debug)]
pub struct Settled {
    /// How.
    pub result: CallResult,
    /// What was known of it when it was dispatched.
    pub record: Record,
}

/// An effect that was dispatched and whose end is not recorded.
#[derive(Debug)]
pub struct Open {
    summary: RunSummary,
    /// What is needed to dispatch it again.
    pub record: Record,
    /// The arguments as they left.
    pub arguments_json: String,
    /// When it was dispatched.
    pub dispatched: Timestamp,
    /// The run that carries it out, if one was noted.
    pub child_run_id: Option<String>,
}

impl Open {
    /// Returns the durability of the entry.
    pub fn durability(&self) -> Durability {
        self.summary.durability
    }

    /// Returns the effect id.
    pub fn effect_id(&self) -> &str {
        self.summary
            .request
            .as_ref()
            .map_or("", |request| request.request_id.as_str())
    }
}

/// The ledger.
#[derive(Clone)]
pub struct Ledger {
    logs: RunLogs,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Ledger")
    }
}

/// Writes an event of the contract as a payload of the log.
pub fn encode(event: &RunEvent, time: Timestamp) -> NewEvent {
    let number = match &event.kind {
        Some(Kind::RunStarted(_)) => 10,
        Some(Kind::CallDispatched(_)) => 18,
        Some(Kind::CallSettled(_)) => 20,
        _ => 0,
    };
    NewEvent::new(time, number, event.encode_to_vec())
}

impl Ledger {
    /// Takes the run log.
    pub fn new(logs: RunLogs, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self { logs, clock, ids }
    }

    /// Looks an effect up: the last of its attempts up to `attempt`.
    ///
    /// # Errors
    /// A failure when the effect id was used with another body, or the log cannot be read.
    pub async fn look_up(
        &self,
        effect: &EffectId,
        attempt: u32,
        body: Option<Hash>,
    ) -> Result<Past, Status> {
        let request_id = request_id_of(effect)?;
        let mut last = None;
        for attempt in (1..=attempt.min(MAX_ATTEMPTS)).rev() {
            let found = self.logs.by_request(&scope_of(attempt), &request_id).await;
            last = found.map_err(|error| storage_failure(&error))?;
            if last.is_some() {
                break;
            }
        }
        let Some(summary) = last else {
            return Ok(Past::Nothing);
        };
        let same_body = summary
            .request
            .as_ref()
            .is_some_and(|request| Some(request.body_hash) == body);
        if body.is_some() && !same_body {
            return Err(reused(effect));
        }
        self.past_of(summary).await
    }

    /// Records that a call is about to leave, durably. `is_first` says that nobody can have asked
    /// for the effect before.
    ///
    /// # Errors
    /// A failure when it cannot be recorded; the call must not leave then.
    pub async fn begin(
        &self,
        effect: &EffectId,
        body: Hash,
        record: &Record,
        (durability, is_first): (Durability, bool),
        dispatched: CallDispatched,
    ) -> Result<RunWriter, Status> {
        let now = self.clock.now();
        let mut run = NewRun::new(self.ids.next_run(RunOwner::Registry), KIND, now);
        run.subject = record.tool_id.clone();
        run.request = Some(RequestKey {
            scope: scope_of(record.attempt),
            request_id: request_id_of(effect)?,
            body_hash: body,
        });
        run.durability = durability;
        run.meta = serde_json::to_vec(record)
            .expect("a record has text keys only")
            .into();
        let first = encode(&self.event(Kind::CallDispatched(dispatched)), now);
        let created = match is_first {
            true => self.logs.create_first(run, vec![first]).await,
            false => self.logs.create(run, vec![first]).await,
        };
        match created {
            Ok(Created::New(writer)) => Ok(writer),
            // One task of this process carries an effect at a time and looks it up first.
            Ok(Created::Replayed(_)) | Err(CreateError::RequestIdConflict { .. }) => {
                Err(reused(effect))
            }
            Err(CreateError::Storage(error)) => Err(storage_failure(&error)),
            Err(error) => Err(grpc_kit::internal(&error)),
        }
    }

    /// Takes an open entry over; whoever wrote to it before can do so no longer.
    ///
    /// # Errors
    /// A failure when the log cannot be written; ABORTED when the effect was settled meanwhile.
    pub async fn reopen(&self, open: &Open) -> Result<RunWriter, Status> {
        self.logs
            .reopen(open.summary.id)
            .await
            .map_err(|error| match error {
                ReopenError::Storage(error) => storage_failure(&error),
                ReopenError::Finished | ReopenError::Fenced => taken_over(),
                other => grpc_kit::internal(&other),
            })
    }

    /// Records how a call ended, durably.
    ///
    /// # Errors
    /// A failure when it cannot be recorded. The entry stays open then; ABORTED says that somebody
    /// else took it over.
    pub async fn settle(&self, writer: &RunWriter, result: &CallResult) -> Result<(), Status> {
        let settled = Kind::CallSettled(CallSettled {
            result: Some(result.clone()),
        });
        let event = self.event(settled);
        let mut wait = FIRST_WAIT;
        let mut tries = 1;
        loop {
            match writer
                .finish(SETTLED, vec![encode(&event, self.clock.now())])
                .await
            {
                Ok(_) | Err(AppendError::Finished) => return Ok(()),
                Err(AppendError::Storage(error)) if tries < SETTLE_TRIES => {
                    tracing::warn!(error = %error, "the end of a call could not be stored yet");
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    tries += 1;
                }
                Err(AppendError::Storage(error)) => return Err(storage_failure(&error)),
                Err(AppendError::Fenced) => return Err(taken_over()),
                Err(error) => return Err(grpc_kit::internal(&error)),
            }
        }
    }

    /// Returns every effect that is open, oldest first, a page at a time. `seen` gets each.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn open_effects(&self) -> Result<Vec<Open>, Status> {
        let filter = RunFilter {
            state: StateFilter::Open,
            ..RunFilter::default()
        };
        let mut effects = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .logs
                .list(&filter, Order::OldestFirst, after.as_ref(), 500)
                .await;
            let page = page.map_err(|error| storage_failure(&error))?;
            for summary in page.runs {
                if let Past::Open(open) = self.past_of(summary).await? {
                    effects.push(open);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(effects),
            }
        }
    }

    async fn past_of(&self, summary: RunSummary) -> Result<Past, Status> {
        let stored = self.logs.read(summary.id, 0, MAX_EVENTS).await;
        let stored = stored.map_err(|error| grpc_kit::internal(&error))?;
        let record =
            serde_json::from_slice(&summary.meta).map_err(|error| grpc_kit::internal(&error))?;
        let mut dispatched = None;
        let mut child_run_id = None;
        for payload in stored {
            let event =
                RunEvent::decode(payload.payload).map_err(|error| grpc_kit::internal(&error))?;
            match event.kind {
                Some(Kind::CallDispatched(call)) => dispatched = Some((call, payload.time)),
                Some(Kind::RunStarted(_)) => child_run_id = Some(event.run_id),
                Some(Kind::CallSettled(CallSettled {
                    result: Some(result),
                })) => {
                    return Ok(Past::Settled(Settled { result, record }));
                }
                _ => {}
            }
        }
        match (summary.state, dispatched) {
            (RunState::Open, Some((call, time))) => Ok(Past::Open(Open {
                summary,
                record,
                arguments_json: call.arguments_json,
                dispatched: time,
                child_run_id,
            })),
            _ => Err(grpc_kit::internal(&Damaged {
                run: summary.id.to_string(),
            })),
        }
    }

    fn event(&self, kind: Kind) -> RunEvent {
        let (trace_id, span_id) = telemetry::context::current_ids();
        RunEvent {
            time: Some(run_events::timestamp_to_proto(self.clock.now())),
            trace_id,
            span_id,
            kind: Some(kind),
            ..RunEvent::default()
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the ledger's entry {run} has no dispatch or no end")]
struct Damaged {
    run: String,
}

/// Returns the scope under which the request id of an attempt is unique.
fn scope_of(attempt: u32) -> String {
    match attempt {
        1 => SCOPE.to_owned(),
        later => format!("{SCOPE}#{later}"),
    }
}

fn request_id_of(effect: &EffectId) -> Result<RequestId, Status> {
    RequestId::new(effect.as_str()).map_err(|error| {
        Failure::invalid_fields()
            .violation("effect_id", error.to_string())
            .into_status()
    })
}

fn reused(effect: &EffectId) -> Status {
    let message =
        format!("the effect id '{effect}' was used before with another tool or other arguments");
    Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
        .metadata("request_id", effect.as_str())
        .into_status()
}

/// Says that somebody else of this process settles, or has settled, the same effect.
fn taken_over() -> Status {
    Status::aborted("the effect is settled by another request; ask again")
}

fn storage_failure(error: &StorageError) -> Status {
    run_events::storage_failure(error).into_status()
}
