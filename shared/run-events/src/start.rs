//! Starting a run, once per request id.

use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::{CallPath, Durability, RequestId, RunId, RunOwner, Timestamp};
use grpc_kit::{CallContext, Failure};
use prost::Message;
use run_log::{CreateError, Created, NewRun, RequestKey};
use tonic::Code;

use crate::codec::{durability_from_proto, durability_to_proto, timestamp_to_proto};
use crate::failure::{create_failure, storage_failure};
use crate::meta::RunMeta;
use crate::phase;
use crate::recorder::{Recorder, Stamp};
use crate::runs::Runs;

/// The default timeout of a run.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The longest timeout that a caller may request.
const MAX_TIMEOUT: Duration = DAY;

/// The default timeout of a run that can wait.
const DEFAULT_WAITING_TIMEOUT: Duration = DAY.saturating_mul(30);

/// The longest timeout that a caller may request for a run that can wait.
const MAX_WAITING_TIMEOUT: Duration = DAY.saturating_mul(366);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The parameters of a run to start.
#[derive(Clone, Debug)]
pub struct StartRun {
    /// The kind, by which the owner distinguishes its runs, such as `turn`.
    pub kind: &'static str,
    /// The owner of the run; none for the owner of most runs of the service.
    pub owner: Option<RunOwner>,
    /// The id of the executed profile, workflow or tool; may be empty.
    pub subject: String,
    /// The conversation that the run belongs to and whose workspace it uses; may be empty.
    pub conversation_id: String,
    /// The caller's request id; empty if the request is never repeated.
    pub request_id: String,
    /// The scope in which request ids of a tenant count, such as the name of the method.
    pub scope: &'static str,
    /// The digest of the request, by which a repeat with another body is recognised.
    pub body_hash: run_log::Hash,
    /// The input of the run, as JSON, for the record.
    pub input_json: String,
    /// Whether the input is text that a model wrote.
    pub input_is_model_text: bool,
    /// The caller's options of durability and time.
    pub options: Option<common::RunOptions>,
    /// Whether the run can wait for a time, a signal or a person, for which it gets more time.
    pub can_wait: bool,
    /// A point that the deadline may not pass, such as the parent's deadline.
    pub deadline_cap: Option<Timestamp>,
    /// The data that the owner needs to resume the run.
    pub owner_data: serde_json::Value,
    /// Events that are recorded together with the start: after a crash either all of them are
    /// stored, or the run does not exist.
    pub first_events: Vec<Kind>,
    /// The key under which the run continues alone; empty for none.
    pub concurrency_key: String,
    /// Its priority, 0 to 9.
    pub priority: u32,
    /// The grant of a run that works for an agent.
    pub grant: Option<common::CallGrant>,
    /// The run of which this one is a fork.
    pub forks: Option<RunId>,
}

/// A run that was started, now or before.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per request, and it is moved once"
)]
pub enum Started {
    /// The run is new: the caller executes it.
    New(Recorder, RunMeta),
    /// The request id was seen before: this is the run that it started.
    Replayed(common::Run),
}

/// Returns the digest of a request, by which a repeat with another body, or by another principal, is
/// recognised.
pub fn request_hash(context: &CallContext, message: &impl Message) -> run_log::Hash {
    run_log::Hash::of(&message.encode_to_vec()).by(context.principal())
}

impl Runs {
    /// Returns the run that the same request of the caller's tenant started before; none if it is new or has no id.
    ///
    /// # Errors
    /// REQUEST_ID_REUSED for another body or another principal, or a storage that does not work.
    pub async fn started_before(
        &self,
        context: &CallContext,
        scope: &str,
        request_id: &str,
        body_hash: run_log::Hash,
    ) -> Result<Option<common::Run>, Failure> {
        // A wrong id is reported where a run is started with it.
        let Ok(id) = RequestId::new(request_id) else {
            return Ok(None);
        };
        let logs = &self.store().logs;
        let found = logs.by_request(context.tenant(), scope, &id).await;
        let Some(summary) = found.map_err(|error| storage_failure(&error))? else {
            return Ok(None);
        };
        let key = summary.request.as_ref();
        if key.is_some_and(|key| key.body_hash != body_hash) {
            let (run, owner) = (summary.id, summary.owner);
            let reused = CreateError::RequestIdConflict { run, owner };
            return Err(create_failure(&reused, context, request_id));
        }
        self.store().resource(summary).await.map(Some)
    }

    /// Creates a run with its first event below the runs of `context`, or finds the run that the same
    /// request started before.
    ///
    /// # Errors
    /// TENANT_CLOSED or TENANT_LIMIT unless the request started its run before, wrong options, a request id used with
    /// another body, or a storage that does not work.
    pub async fn start(&self, context: &CallContext, start: StartRun) -> Result<Started, Failure> {
        let _admission = match self.admit(context).await {
            Ok(admission) => admission,
            Err(refused) => {
                let before = self
                    .started_before(context, start.scope, &start.request_id, start.body_hash)
                    .await?;
                return before.map(Started::Replayed).ok_or(refused);
            }
        };
        let now = self.clock().now();
        let timeout = checked_timeout(start.options.as_ref(), start.can_wait)?;
        let deadline = start
            .deadline_cap
            .map_or(now.plus(timeout), |cap| cap.min(now.plus(timeout)));
        let durability = durability_from_proto(start.options.map_or(0, |o| o.durability));
        let durability = match (durability, self.store().owner) {
            (Durability::Batched, RunOwner::Agent | RunOwner::Registry | RunOwner::Scene) => {
                Durability::Sync
            }
            (durability, _) => durability,
        };
        let run = self
            .ids()
            .next_run(start.owner.unwrap_or(self.store().owner));
        let path = context.path().steps().to_vec();
        check_depth(&path, &run)?;
        let meta = RunMeta {
            subject: start.subject.clone(),
            conversation_id: start.conversation_id.clone(),
            path,
            principal: context.principal().clone(),
            reach: context.stored_reach(),
            traceparent: telemetry::context::current_traceparent().unwrap_or_default(),
            data: start.owner_data,
        };
        let stamp = Stamp::new(run, meta.starter(), self.clock().clone());
        let first = Kind::RunStarted(common::RunStarted {
            subject: start.subject.clone(),
            conversation_id: start.conversation_id.clone(),
            input_json: start.input_json,
            deadline: Some(timestamp_to_proto(deadline)),
            durability: durability_to_proto(durability).into(),
            input_is_model_text: start.input_is_model_text,
            concurrency_key: start.concurrency_key,
            priority: start.priority,
            grant: start.grant,
        });
        let mut run = NewRun::new(stamp.run, start.kind, now);
        run.owner = meta.principal.clone();
        run.subject = start.subject;
        run.conversation = start.conversation_id;
        run.request = request_key(start.scope, &start.request_id, start.body_hash)?;
        run.parent = meta.path.last().and_then(|above| above.parse().ok());
        run.forks = start.forks;
        run.deadline = Some(deadline);
        run.durability = durability;
        run.meta = meta.encode()?;
        let events = stamp.encode(std::iter::once(first).chain(start.first_events));
        self.executor().active().begin(stamp.run);
        let created = self.store().logs.create(run, events).await;
        match &created {
            Ok(Created::New(_)) => self.executor().active().begin(stamp.run),
            created => {
                self.executor().active().remove(stamp.run);
                if created.is_err() {
                    // It may be in the log all the same.
                    self.leave_open();
                }
            }
        }
        match created.map_err(|error| create_failure(&error, context, &start.request_id))? {
            Created::New(writer) => Ok(Started::New(
                Recorder::new(writer, stamp, durability, deadline, phase::RUNNING),
                meta,
            )),
            Created::Replayed(summary) => {
                Ok(Started::Replayed(self.store().resource(summary).await?))
            }
        }
    }
}

/// Refuses a run whose children could not name it in their path.
fn check_depth(path: &[String], run: &RunId) -> Result<(), Failure> {
    let below = CallPath::from_steps(path.to_vec()).and_then(|path| path.enter(run.to_string()));
    below.map(drop).map_err(|error| {
        Failure::new(
            Code::FailedPrecondition,
            common::ErrorReason::DepthExceeded,
            error.to_string(),
        )
        .metadata("path", error.path)
    })
}

fn request_key(
    scope: &str,
    request_id: &str,
    body_hash: run_log::Hash,
) -> Result<Option<RequestKey>, Failure> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let request_id = RequestId::new(request_id)
        .map_err(|error| Failure::invalid_fields().violation("request_id", error.to_string()))?;
    Ok(Some(RequestKey {
        scope: scope.to_owned(),
        request_id,
        body_hash,
    }))
}

fn checked_timeout(
    options: Option<&common::RunOptions>,
    can_wait: bool,
) -> Result<Duration, Failure> {
    let (default, maximum) = match can_wait {
        true => (DEFAULT_WAITING_TIMEOUT, MAX_WAITING_TIMEOUT),
        false => (DEFAULT_TIMEOUT, MAX_TIMEOUT),
    };
    let Some(timeout) = options.and_then(|options| options.timeout) else {
        return Ok(default);
    };
    let refused = |problem: &str| Failure::invalid_fields().violation("options.timeout", problem);
    match Duration::try_from(timeout) {
        Ok(Duration::ZERO) => Ok(default),
        Ok(timeout) if timeout > maximum => {
            let hours = maximum.as_secs() / (60 * 60);
            Err(refused(&format!("is longer than {hours} h")))
        }
        Ok(timeout) => Ok(timeout),
        Err(_) => Err(refused("is negative or no duration")),
    }
}
