//! Goes through the iterations of a zone whose nodes have effects.
//!
//! Each iteration is driven as a run is, with the zone and its number in front of the ids of its nodes.
//! What an iteration gave is recorded, so after a crash the zone continues with those that had not
//! ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use run_events::{Recorder, RunControl, parts};
use run_log::AppendError;
use serde_json::Value;

use crate::wire;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::Engine;
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_domain::stream_value::to_lines;
use workflow_domain::zone::body::Body;
use workflow_domain::zone::iterations::Iterations;

use super::Prepared;
use super::activity::{Active, Activity};
use super::allowance::Allowance;
use super::history::{ZoneHistory, replay_iteration};
use super::slot_stream::SlotStream;

/// Drives the nodes of an iteration, with what stands in front of their ids. Gives the state in which
/// nothing is left to happen, or what is not known where they stopped before.
pub(super) type IterationDriver =
    Box<dyn Fn(Prepared, String, RunControl) -> BoxFuture<'static, Driven> + Send + Sync>;

/// How the nodes of an iteration ended.
pub(super) type Driven = Result<Result<Engine, Unsettled>, AppendError>;

/// A zone under way.
pub(super) struct Zone {
    pub(super) drive: IterationDriver,
    pub(super) recorder: Recorder,
    pub(super) control: RunControl,
    pub(super) activity: Activity,
    /// Held while the zone has something to do beside its iterations, also before it begins.
    pub(super) busy: Option<Active>,
    pub(super) allowance: Arc<Allowance>,
    pub(super) conversation_id: String,
    pub(super) workflow_id: String,
    /// The plan around the zone.
    pub(super) plan: Arc<Plan>,
    pub(super) node: NodeIndex,
    /// Its id with the iterations around it.
    pub(super) path: String,
    pub(super) seed: u64,
    pub(super) history: ZoneHistory,
    /// The stream of the results of a map; nothing for a loop.
    pub(super) results: Option<SlotStream>,
}

/// How a zone ended.
pub(super) enum ZoneEnd {
    /// It gave its outputs, or failed.
    Ended(Result<Vec<Arc<Value>>, Failure>),
    /// It stopped before its end.
    Stopped(Unsettled),
}

/// What is not known of the calls of nodes that stopped.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// Calls of which it is not known whether they took effect.
    pub(super) unknown: Vec<(String, common::CallError)>,
    /// Calls that had not ended when their nodes were to end.
    pub(super) unended: Vec<String>,
}

/// How an iteration ended.
enum IterationEnd {
    Gave(Result<Values, Failure>),
    Stopped(Unsettled),
}

type Ended = (u64, Duration, Result<IterationEnd, AppendError>);

impl Zone {
    /// Goes through the iterations. A cancel of the run ends it, and so does its time.
    ///
    /// # Errors
    /// The run's log does not take events, so the run cannot continue now.
    pub(super) async fn execute(
        mut self,
        inputs: Values,
        timeout: Option<Duration>,
    ) -> Result<ZoneEnd, AppendError> {
        self.control = self.control.child();
        let control = self.control.clone();
        let work = self.iterate(inputs);
        tokio::pin!(work);
        let Some(timeout) = timeout else {
            return work.await;
        };
        if let Ok(end) = tokio::time::timeout(timeout, &mut work).await {
            return end;
        }
        control.end();
        match work.await? {
            ZoneEnd::Stopped(unsettled) if !unsettled.is_empty() => Ok(ZoneEnd::Stopped(unsettled)),
            _ => Ok(ZoneEnd::Ended(Err(super::overdue(timeout)))),
        }
    }

    async fn iterate(mut self, inputs: Values) -> Result<ZoneEnd, AppendError> {
        let planned = &self.plan.nodes[self.node as usize];
        let (body, mut iterations) = match Body::begin(planned, self.seed, &inputs) {
            Ok(begun) => begun,
            Err(failure) => return Ok(ZoneEnd::Ended(Err(failure))),
        };
        let mut running: FuturesUnordered<BoxFuture<'static, Ended>> = FuturesUnordered::new();
        let mut ended = std::mem::take(&mut self.history.ended);
        let mut begun = match iterations.resume(&mut ended, body.connected()) {
            Ok(begun) => begun,
            Err(failure) => return Ok(ZoneEnd::Ended(Err(failure))),
        };
        let (mut failed, mut stopped) = (None, Unsettled::default());
        let (mut may_begin, mut shown) = (true, 0);
        loop {
            // What was under way before a crash is carried to its end, also behind a failure.
            while (may_begin && failed.is_none() || self.history.is_open_from(begun))
                && !self.control.is_cancelled()
                && ((begun - iterations.index()) as usize) < iterations.concurrency()
            {
                let may_start = may_begin && failed.is_none() || self.history.is_open(begun);
                match iterations.next_values() {
                    Ok(Some(values)) if may_start && !ended.contains_key(&begun) => {
                        running.push(self.iteration(&body, begun, values));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(failure) => {
                        failed = Some(failure);
                        break;
                    }
                }
                begun += 1;
                if failed.is_none() {
                    failed = take_ended(&mut iterations, &mut ended, begun, &body);
                }
                self.show(&iterations, &mut shown).await?;
            }
            self.busy = None;
            let Some((index, took, end)) = running.next().await else {
                break;
            };
            self.busy = Some(self.activity.begin());
            match end? {
                IterationEnd::Gave(gave) => {
                    self.record(&body, index, &gave, took).await?;
                    may_begin &= gave.is_ok() || !iterations.tolerates_none();
                    ended.insert(index, gave);
                    if failed.is_none() {
                        failed = take_ended(&mut iterations, &mut ended, begun, &body);
                        self.show(&iterations, &mut shown).await?;
                    }
                }
                IterationEnd::Stopped(unsettled) => {
                    may_begin = false;
                    stopped.unknown.extend(unsettled.unknown);
                    stopped.unended.extend(unsettled.unended);
                }
            }
        }
        if self.control.is_cancelled() || !stopped.is_empty() {
            return Ok(ZoneEnd::Stopped(stopped));
        }
        Ok(ZoneEnd::Ended(match failed {
            Some(failure) => Err(failure),
            None => Ok(iterations.outputs()),
        }))
    }

    /// Begins an iteration, or continues one that an earlier process began.
    fn iteration(&mut self, body: &Body, index: u64, values: Values) -> BoxFuture<'static, Ended> {
        let path = format!("{}#{index}/", self.path);
        let engine = body.engine(index, values, &mut Vec::new());
        let events = self.history.open.remove(&index).unwrap_or_default();
        let replayed = match replay_iteration(path.clone(), engine, events.iter()) {
            Ok(replayed) => replayed,
            Err(error) => {
                let message = grpc_kit::failure::chain(&error);
                let failure = Failure::new(Category::Internal, "history_diverged", message);
                let end = Ok(IterationEnd::Gave(Err(failure)));
                return std::future::ready((index, Duration::ZERO, end)).boxed();
            }
        };
        let (conversation_id, workflow_id) =
            (self.conversation_id.clone(), self.workflow_id.clone());
        let prepared = Prepared::of(
            replayed,
            Arc::clone(&self.allowance),
            conversation_id,
            workflow_id,
        );
        let (begin, work) = (
            Instant::now(),
            (self.drive)(prepared, path, self.control.clone()),
        );
        work.map(move |driven| {
            let end = driven.map(|driven| match driven {
                Ok(engine) => IterationEnd::Gave(Body::gave(&engine, index)),
                Err(unsettled) => IterationEnd::Stopped(unsettled),
            });
            (index, begin.elapsed(), end)
        })
        .boxed()
    }

    /// Records the results from that of the item `shown` on in their stream. They ride on the next commit.
    async fn show(&self, iterations: &Iterations, shown: &mut usize) -> Result<(), AppendError> {
        let Some(stream) = &self.results else {
            return Ok(());
        };
        let results = iterations.results(*shown);
        *shown += results.len();
        for lines in parts(to_lines(results)) {
            for kind in stream.write(&lines, self.recorder.now()) {
                self.recorder.submit(kind).await?;
            }
        }
        Ok(())
    }

    /// Records what an iteration gave. It rides on the next commit.
    async fn record(
        &self,
        body: &Body,
        index: u64,
        gave: &Result<Values, Failure>,
        took: Duration,
    ) -> Result<(), AppendError> {
        let slots = &body.plan().interface_outputs;
        let finished = common::IterationFinished {
            node_id: self.path.clone(),
            index,
            outputs_json: gave.as_ref().map_or_else(
                |_| String::new(),
                |values| wire::values_to_json(slots, values),
            ),
            error: gave.as_ref().err().map(call_wire::failure_to_proto),
            duration: prost_types::Duration::try_from(took).ok(),
        };
        self.recorder
            .submit(Kind::IterationFinished(finished))
            .await
    }
}

impl Unsettled {
    pub(super) fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.unended.is_empty()
    }
}

/// Takes what the iterations before `begun` gave, in order. Returns why the zone fails, if it does.
fn take_ended(
    iterations: &mut Iterations,
    ended: &mut BTreeMap<u64, Result<Values, Failure>>,
    begun: u64,
    body: &Body,
) -> Option<Failure> {
    while iterations.index() < begun
        && let Some(gave) = ended.remove(&iterations.index())
    {
        if let Err(failure) = iterations.take(gave, body.connected()) {
            return Some(failure);
        }
    }
    None
}
