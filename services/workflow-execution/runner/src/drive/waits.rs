//! Nodes that wait. They hold no place among the effects of the run, however many they are.

use call_outcome::Failure;
use contracts::tavern::common::v1::{self as common, WakeCause};
use core_types::Timestamp;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use run_events::{Waits, Woken};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

use crate::wire;
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::node_type::Settled;
use workflow_domain::plan::NodeIndex;
use workflow_domain::size::weight;
use workflow_domain::wait::{Due, WaitKind, WaitRequest, Wake};

use super::super::RunPlace;
use super::super::activity::{Active, Activity};
use super::super::checkpoints::Checkpoints;
use super::super::handled::HandledFailures;
use super::{Drive, EffectOutcome, Running};

/// What the loops of a run share: that of the run itself and those of iterations in it.
#[derive(Clone)]
pub(super) struct RunWaits {
    waits: Waits,
    /// The loops that have something else under way than waits.
    activity: Activity,
    place: Arc<RunPlace>,
    handled: HandledFailures,
    checkpoints: Checkpoints,
}

impl RunWaits {
    pub(super) fn new(
        waits: Waits,
        checkpoints: Checkpoints,
        place: RunPlace,
        handled: HandledFailures,
    ) -> Self {
        Self {
            waits,
            activity: Activity::default(),
            place: Arc::new(place),
            handled,
            checkpoints,
        }
    }
}

/// The waits of the nodes of a run, or of an iteration in it.
pub(super) struct NodeWaits {
    of_run: RunWaits,
    /// Counts this loop as busy.
    busy: Option<Active>,
    /// What is to begin once all that happened before is handed to the log.
    beginning: Vec<(NodeIndex, WaitRequest)>,
    running: Running,
}

impl NodeWaits {
    pub(super) fn new(of_run: RunWaits) -> Self {
        Self {
            busy: Some(of_run.activity.begin()),
            of_run,
            beginning: Vec::new(),
            running: FuturesUnordered::new(),
        }
    }

    /// Returns the priority of the run.
    pub(super) fn run_priority(&self) -> u32 {
        self.of_run.place.priority()
    }

    /// Returns the waits of the whole run.
    pub(super) fn of_run(&self) -> RunWaits {
        self.of_run.clone()
    }

    /// Returns what is under way in the whole run.
    pub(super) fn activity(&self) -> Activity {
        self.of_run.activity.clone()
    }

    /// Returns the failures of the whole run that were handled.
    pub(super) fn handled(&self) -> &HandledFailures {
        &self.of_run.handled
    }

    /// Returns the checkpoints of the run, if it is time for one.
    pub(super) fn checkpoint_due(&self) -> Option<Checkpoints> {
        let checkpoints = &self.of_run.checkpoints;
        checkpoints.is_due().then(|| checkpoints.clone())
    }

    /// Notes that this loop has nothing but waits under way; returns whether no other has.
    fn rest(&mut self) -> bool {
        self.busy.take().is_some() && self.of_run.activity.is_quiet()
    }

    /// Notes that this loop continues.
    pub(super) fn awake(&mut self) {
        self.busy
            .get_or_insert_with(|| self.of_run.activity.begin());
    }

    /// Returns the next node that was woken; nothing if none waits.
    pub(super) async fn next(&mut self) -> Option<(NodeIndex, EffectOutcome)> {
        self.running.next().await
    }
}

impl Drive {
    /// Notes, if it is so, that nothing of the run is under way but waits. The run then gives its place
    /// among those that continue to another (rule W8).
    pub(super) async fn rest(&mut self) -> Result<(), run_log::AppendError> {
        let zones = self.started.iter();
        let zones = zones.filter(|(node, _)| self.engine.node(*node).repeats_effects());
        let is_busy = self.admissions.is_waiting()
            || !self.caches.is_idle()
            || self.running.len() > zones.count();
        if self.held || is_busy || !self.waits.rest() {
            return Ok(());
        }
        self.waits.of_run.place.rest();
        let not_paused = self.control.admit_start().await;
        self.recorder
            .note_only_waits(not_paused.as_ref(), true)
            .await
    }

    /// Notes that a node is to wait.
    pub(super) fn enqueue_wait(&mut self, node: NodeIndex, request: WaitRequest) {
        match &request.kind {
            WaitKind::HumanInput { context, .. } if weight(context) > MAX_VALUE_BYTES => {
                let message = format!("the context has more than {MAX_VALUE_BYTES} bytes");
                let failure = Failure::limit("context_too_large", message);
                self.finish(node, Err(failure), std::time::Duration::ZERO);
            }
            _ => self.waits.beginning.push((node, request)),
        }
    }

    /// Whether nodes wait whose waking the run has to see. One whose calls are in doubt starts nothing
    /// more, so it does not wait for them.
    pub(super) fn is_waiting(&self) -> bool {
        self.unknown.is_empty() && !self.waits.running.is_empty()
    }

    /// Begins the waits of the nodes that have come to them. A paused run begins none.
    pub(super) async fn begin_waits(&mut self) -> Result<(), run_log::AppendError> {
        if self.waits.beginning.is_empty() || !self.unknown.is_empty() {
            return Ok(());
        }
        let control = self.control.clone();
        let Some(_not_paused) = control.admit_start().await else {
            self.held = true;
            return Ok(());
        };
        self.hand_over().await?;
        for (node, request) in std::mem::take(&mut self.waits.beginning) {
            let due = match request.due {
                Due::Never => None,
                Due::After(duration) => Some(self.recorder.now().plus(duration)),
                Due::At(seconds, nanos) => Some(point(seconds, nanos)),
            };
            let waits = self.waits.of_run.waits.clone();
            let retries = request.kind == WaitKind::Retry;
            let begun = waits.begin(self.wait(node, request.kind), due).await?;
            // It may have begun before the run left memory.
            let waited = self.recorder.now().since(begun.begun());
            let now = Instant::now();
            self.started
                .push((node, now.checked_sub(waited).unwrap_or(now)));
            let woken = async move {
                let outcome = match waits.woken(begun).await {
                    Ok(_) if retries => EffectOutcome::RetryDue,
                    Ok(woken) => EffectOutcome::Answered(settled(woken)),
                    Err(error) => EffectOutcome::LogFailed(error),
                };
                (node, outcome)
            };
            self.waits.running.push(woken.boxed());
        }
        Ok(())
    }

    /// Writes what a node waits for. Each attempt of the node is a wait of its own.
    fn wait(&self, node: NodeIndex, kind: WaitKind) -> common::Wait {
        let wait = common::Wait {
            wait_id: self.effect_id(node, self.attempt(node) as usize - 1),
            node_id: self.path_of(node),
            ..common::Wait::default()
        };
        match kind {
            WaitKind::Retry => common::Wait {
                kind: common::WaitKind::Retry.into(),
                wait_id: self.retry_id(node),
                ..wait
            },
            WaitKind::Timer => common::Wait {
                kind: common::WaitKind::Timer.into(),
                ..wait
            },
            WaitKind::Signal { name, schema } => common::Wait {
                kind: common::WaitKind::Signal.into(),
                name,
                schema_json: text_unless_null(&schema),
                ..wait
            },
            WaitKind::HumanInput {
                title,
                form,
                choices,
                assignees,
                context,
            } => common::Wait {
                kind: common::WaitKind::HumanInput.into(),
                name: title,
                schema_json: text_unless_null(&form),
                choices: choices
                    .into_iter()
                    .map(|(value, label)| common::WaitChoice { value, label })
                    .collect(),
                assignees,
                context_json: text_unless_null(&context),
                ..wait
            },
        }
    }
}

/// Makes of what woke a node what the node gets.
fn settled(woken: Woken) -> Result<Settled, Failure> {
    let payload = || {
        wire::read_value(&woken.payload_json).map_err(|problem| {
            let message = format!("what woke the node is not usable: {problem}");
            Failure::invalid("payload_malformed", message)
        })
    };
    let wake = match woken.cause {
        WakeCause::Signal => Wake::Signal(payload()?),
        WakeCause::Answer => Wake::Answer {
            answer: payload()?,
            by: woken.answered_by,
        },
        WakeCause::Due | WakeCause::Unspecified => Wake::Due,
    };
    let due = woken.due.map(|due| due.to_string()).unwrap_or_default();
    Ok(Settled::Woken { wake, due })
}

fn point(seconds: i64, nanos: i32) -> Timestamp {
    let point = prost_types::Timestamp { seconds, nanos };
    // A time beyond what the clock can show is held at its end.
    let known = grpc_kit::run_list::timestamp_from_proto(point);
    known.unwrap_or(Timestamp::from_unix_nanos(match seconds {
        ..0 => 0,
        _ => i64::MAX,
    }))
}

fn text_unless_null(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}
