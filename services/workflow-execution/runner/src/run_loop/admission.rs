//! Effects that wait for their permits. A node starts once it has all of them (rule W50).

use std::collections::{HashMap, VecDeque};

use call_outcome::Failure;
use core_types::Timestamp;

use workflow_domain::node_type::Effect;
use workflow_domain::plan::NodeIndex;

use super::super::effect_permits::Key;
use super::super::overdue;
use super::RunLoop;

/// A request for the permits of an effect.
#[derive(Clone, Debug)]
pub struct PermitRequest {
    /// The node.
    pub node: NodeIndex,
    /// The key of the effect, and how many may hold it.
    pub key: Option<Key>,
    /// Since when the effect waits.
    pub since: Timestamp,
}

/// An effect that is to start.
#[derive(Debug)]
struct WaitingEffect {
    effect: Effect,
    request: PermitRequest,
}

/// The effects that are to start.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// Effects that are to ask for their permits.
    waiting: VecDeque<WaitingEffect>,
    /// Zones, which need room and no permit: the nodes inside have permits.
    zones: VecDeque<(NodeIndex, Effect)>,
    /// Effects that have asked.
    asking: HashMap<NodeIndex, WaitingEffect>,
    /// Effects that have their permits.
    admitted: Vec<WaitingEffect>,
    /// Effects that were forgotten and have permits.
    released: Vec<NodeIndex>,
    /// The first ready time of each node with settings for its execution.
    ready: HashMap<NodeIndex, Timestamp>,
}

impl Admissions {
    /// Whether no effect is to start.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.waiting.len() + self.zones.len() + self.admitted.len();
        waiting + self.asking.len() == 0
    }

    /// Whether an effect has asked for its permits and has none.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Notes that an effect has its permits.
    pub(super) fn admit(&mut self, node: NodeIndex) {
        match self.asking.remove(&node) {
            Some(effect) => self.admitted.push(effect),
            None => self.released.push(node),
        }
    }

    /// Forgets an effect whose time is over.
    pub(super) fn forget(&mut self, node: NodeIndex) {
        self.asking.remove(&node);
    }

    /// Forgets the effects that may not start any more.
    pub(super) fn retain(&mut self, may_start: impl Fn(NodeIndex) -> bool) {
        let may = |effect: &WaitingEffect| may_start(effect.request.node);
        self.waiting.retain(may);
        self.zones.retain(|(node, _)| may_start(*node));
        self.asking.retain(|node, _| may_start(*node));
        let forgotten = self.admitted.extract_if(.., |effect| !may(effect));
        self.released
            .extend(forgotten.map(|effect| effect.request.node));
    }

    /// Returns a node whose effect was forgotten and has permits.
    pub(super) fn released(&mut self) -> Option<NodeIndex> {
        self.released.pop()
    }

    /// Lets an effect that has its permits ask again later, and returns its node.
    pub(super) fn put_back(&mut self) -> Option<NodeIndex> {
        let effect = self.admitted.pop()?;
        let node = effect.request.node;
        self.waiting.push_back(effect);
        Some(node)
    }

    /// Returns the effects that start now: the admitted ones, and zones while there is `room`.
    pub(super) fn starting(&mut self, room: usize) -> Vec<(NodeIndex, Effect)> {
        let admitted = self.admitted.drain(..);
        let mut starting: Vec<_> = admitted
            .map(|waiting| (waiting.request.node, waiting.effect))
            .collect();
        let room = room.saturating_sub(starting.len());
        let zones = self.zones.drain(..room.min(self.zones.len()));
        starting.extend(zones);
        starting
    }
}

impl RunLoop {
    /// Returns when a node with settings for its execution was ready first, in whichever process.
    pub(super) fn ready_since(&self, node: NodeIndex) -> Option<Timestamp> {
        let ready = self.admissions.ready.get(&node).copied();
        ready.or_else(|| self.state.begun(node))
    }

    /// Returns the key of a node's effect, and the most holders of it.
    pub(super) fn key_of(&self, node: NodeIndex) -> Result<Option<Key>, Failure> {
        let planned = self.state.engine().node(node);
        let execution = planned.execution.as_ref();
        let concurrency = execution.and_then(|execution| execution.concurrency.as_ref());
        let Some(concurrency) = concurrency.filter(|_| !planned.repeats_effects()) else {
            return Ok(None);
        };
        let inputs = self.state.engine().inputs_of(node)?;
        let key = concurrency.evaluate(&planned.call(&inputs).inputs_by_name())?;
        Ok(Some((key, concurrency.limit)))
    }

    /// Notes an effect that is to start.
    pub(super) fn enqueue(
        &mut self,
        node: NodeIndex,
        effect: Effect,
        key: Option<Key>,
        now: Timestamp,
    ) {
        let has_settings = self.state.engine().node(node).execution.is_some();
        if has_settings && self.state.begun(node).is_none() {
            self.admissions.ready.entry(node).or_insert(now);
        }
        if self.is_zone(node) {
            return self.admissions.zones.push_back((node, effect));
        }
        let request = PermitRequest {
            node,
            key,
            since: now,
        };
        self.admissions
            .waiting
            .push_back(WaitingEffect { effect, request });
    }

    /// Lets the next effect ask for its permits.
    pub(super) fn ask(&mut self) -> Option<PermitRequest> {
        let waiting = self.admissions.waiting.pop_front()?;
        let request = waiting.request.clone();
        self.admissions.asking.insert(request.node, waiting);
        Some(request)
    }

    /// Makes the failure of a node whose time was over before its effect had its permits.
    pub(super) fn overdue(&self, node: NodeIndex) -> Failure {
        let execution = self.state.engine().node(node).execution.as_ref();
        let total = execution.and_then(|execution| execution.total_timeout);
        overdue(total.unwrap_or_default())
    }
}
