//! Effects that wait for their permits. A node starts once it has all of them (rule W50).

use std::collections::VecDeque;

use call_outcome::Failure;
use core_types::{Durability, Timestamp};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use run_log::AppendError;

use workflow_domain::node_definition::NodeEffects;
use workflow_domain::node_type::Effect;
use workflow_domain::plan::NodeIndex;

use super::super::effect_permits::Key;
use super::super::overdue;
use super::super::permits::{Admission, Permit, QueuePlace};
use super::{Drive, EffectOutcome};

/// An effect that is to start.
pub(super) struct WaitingEffect {
    pub(super) node: NodeIndex,
    pub(super) effect: Effect,
    key: Option<Key>,
    /// Since when it waits.
    since: Timestamp,
}

/// The turn of an effect came, or its time is over.
pub(super) type AdmittedEffect = (WaitingEffect, Option<Permit>);

/// The effects that are to start.
#[derive(Default)]
pub(super) struct Admissions {
    /// Those that have not asked for their permits.
    waiting: VecDeque<WaitingEffect>,
    turns: FuturesUnordered<BoxFuture<'static, AdmittedEffect>>,
    /// Those whose turn came.
    admitted: Vec<(WaitingEffect, Permit)>,
}

impl Admissions {
    pub(super) fn is_waiting(&self) -> bool {
        !(self.waiting.is_empty() && self.turns.is_empty() && self.admitted.is_empty())
    }

    /// Returns the next turn that came; nothing if no effect waits for one.
    pub(super) async fn next(&mut self) -> Option<AdmittedEffect> {
        self.turns.next().await
    }
}

impl Drive {
    /// Returns the key of a node's effect, and how many may hold it.
    pub(super) fn key_of(&self, node: NodeIndex) -> Result<Option<Key>, Failure> {
        let planned = self.engine.node(node);
        let execution = planned.execution.as_ref();
        let concurrency = execution.and_then(|execution| execution.concurrency.as_ref());
        let Some(concurrency) = concurrency.filter(|_| !planned.repeats_effects()) else {
            return Ok(None);
        };
        let inputs = self.engine.inputs_of(node)?;
        let key = concurrency.evaluate(&planned.call(&inputs).inputs_by_name())?;
        Ok(Some((key, concurrency.limit)))
    }

    /// Notes an effect that is to start.
    pub(super) fn enqueue(&mut self, node: NodeIndex, effect: Effect, key: Option<Key>) {
        if self.engine.node(node).execution.is_some() {
            let now = self.recorder.now();
            self.begun.entry(node).or_insert(now);
        }
        self.admissions.waiting.push_back(WaitingEffect {
            node,
            effect,
            key,
            since: self.recorder.now(),
        });
    }

    /// Whether effects wait for their turn.
    pub(super) fn is_queued(&self) -> bool {
        !self.admissions.turns.is_empty()
    }

    /// Returns the effects that may start now. None starts after one of which it is not known whether it
    /// took effect.
    pub(super) fn admit(&mut self) -> Vec<AdmittedEffect> {
        let mut admissions = std::mem::take(&mut self.admissions);
        if !self.unknown.is_empty() {
            return Vec::new();
        }
        let admitted = std::mem::take(&mut admissions.admitted).into_iter();
        let mut starting: Vec<AdmittedEffect> =
            admitted.map(|(one, permit)| (one, Some(permit))).collect();
        let (zones, effects): (VecDeque<_>, VecDeque<_>) = admissions
            .waiting
            .into_iter()
            .partition(|one| self.engine.node(one.node).repeats_effects());
        for waiting in effects {
            match self.ask(&waiting) {
                Admission::Now(permit) => starting.push((waiting, Some(permit))),
                Admission::Later(turn) => {
                    let left = self.time_in_queue(waiting.node);
                    let turn = async move {
                        let permit = match left {
                            Some(left) => tokio::time::timeout(left, turn).await.ok(),
                            None => Some(turn.await),
                        };
                        (waiting, permit)
                    };
                    admissions.turns.push(turn.boxed());
                }
            }
        }
        // The nodes inside a zone have permits; the zone that waits for them has none.
        let under_way = self.running.len() + starting.len();
        let room = self.runner.permits.per_run().saturating_sub(under_way);
        let mut zones = zones.into_iter();
        starting.extend(zones.by_ref().take(room).map(|zone| (zone, None)));
        admissions.waiting = zones.collect();
        self.admissions = admissions;
        starting
    }

    /// Returns the tools that must be read-only or idempotent so that the run may lose the starts of these
    /// effects and repeat them; nothing if it may not lose them. A zone and a list of calls decide for
    /// what is in them.
    pub(super) fn tools_to_repeat(
        &self,
        starting: &[(WaitingEffect, Option<Permit>, bool)],
    ) -> Option<Vec<String>> {
        if self.recorder.durability() != Durability::Batched {
            return None;
        }
        let mut tools = Vec::new();
        for (waiting, ..) in starting {
            let definition = self.engine.node(waiting.node).definition();
            match &waiting.effect {
                Effect::CallTool { tool_id, .. } => tools.push(tool_id.clone()),
                Effect::CallTools(_) | Effect::RunZone { .. } => {}
                _ if definition.effects != NodeEffects::External => {}
                _ => return None,
            }
        }
        Some(tools)
    }

    /// Gives the permits of a paused run back; returns whether effects are left to start.
    pub(super) fn release_permits(&mut self) -> bool {
        let admitted = std::mem::take(&mut self.admissions.admitted);
        let waiting = admitted.into_iter().map(|(waiting, _)| waiting);
        self.admissions.waiting.extend(waiting);
        self.admissions.is_waiting()
    }

    /// Takes a turn. A node whose time was over before has failed.
    pub(super) fn take_turn(&mut self, turn: AdmittedEffect) -> Result<(), AppendError> {
        match turn {
            (waiting, Some(permit)) => {
                self.admissions.admitted.push((waiting, permit));
                Ok(())
            }
            (waiting, None) => {
                let execution = self.engine.node(waiting.node).execution.as_ref();
                let total = execution.and_then(|execution| execution.total_timeout);
                let failure = overdue(total.unwrap_or_default());
                self.settle(waiting.node, EffectOutcome::Answered(Err(failure)))
            }
        }
    }

    fn ask(&self, waiting: &WaitingEffect) -> Admission {
        let planned = self.engine.node(waiting.node);
        let execution = planned.execution.as_ref();
        let priority = execution.and_then(|execution| execution.priority);
        let place = QueuePlace {
            since: waiting.since,
            priority: priority.unwrap_or_else(|| self.waits.run_priority()),
        };
        let full_type = planned.definition().full_type;
        let permits = &self.runner.permits;
        permits.ask(&self.recorder, full_type, waiting.key.clone(), place)
    }

    fn time_in_queue(&self, node: NodeIndex) -> Option<std::time::Duration> {
        self.total_left(node, self.engine.node(node).execution.as_ref()?)
    }
}
