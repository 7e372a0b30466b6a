//! The events of a running scene, and the queues of its agents (rules G403 to G407).
//!
//! A decision is logged before it takes effect: [`Channel::route`] decides on the queues of an
//! event, and [`Channel::publish`] applies the logged decision. A replay of the log therefore
//! builds the same queues.

use std::collections::BTreeMap;

use core_types::Timestamp;

use super::{
    event::{Event, MAX_HOPS, MAX_SAME_HOPS, Priority},
    sleep::{Sleep, WakeCause},
    subscription::Subscription,
};

/// The most events that open one turn (rule G407).
const MAX_TAKEN: usize = 32;
/// The most bytes of their payloads in all.
const MAX_TAKEN_BYTES: usize = 256 << 10;

/// The queues.
#[derive(Debug, Default)]
pub struct Channel {
    members: Vec<Member>,
    /// The events that wait in a queue, with the number of queues.
    waiting: BTreeMap<String, (Event, usize)>,
    arrivals: u64,
}

/// An agent with its subscriptions and its queue.
#[derive(Debug)]
pub struct Member {
    /// Its id in the scene.
    pub instance_id: String,
    subscriptions: Vec<Subscription>,
    queue_limit: usize,
    queue: Vec<ChannelEntry>,
    is_busy: bool,
    sleep: Option<Sleep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ChannelEntry {
    event_id: String,
    event_type: String,
    priority: Priority,
    arrival: u64,
    ready: Timestamp,
    expires: Timestamp,
    /// Whether a newer event of the type takes its place.
    debounced: bool,
}

/// The reason for keeping an event from an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its chain is too long, or reaches the instance too often.
    Loop,
    /// It waited too long.
    Expired,
    /// The queue was full.
    QueueFull,
    /// A newer event of its type followed soon after it.
    Superseded,
    /// The scene ended.
    SceneEnded,
}

/// An event that is kept from an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The event.
    pub event_id: String,
    /// The instance.
    pub instance_id: String,
    /// The reason.
    pub reason: DropReason,
    /// The reason in words.
    pub detail: String,
}

/// The queues of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// The instances in whose queues it waits.
    pub delivered_to: Vec<String>,
    /// The events that are dropped, this one or others.
    pub dropped: Vec<Dropped>,
}

/// A critical event for which a queue has no room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of `{0}` is full, and a critical event is never dropped; try again")]
pub struct QueueFull(pub String);

impl Member {
    /// Makes an agent with an empty queue.
    pub fn new(instance_id: String, subscriptions: Vec<Subscription>, queue_limit: usize) -> Self {
        Self {
            instance_id,
            subscriptions,
            queue_limit,
            queue: Vec::new(),
            is_busy: false,
            sleep: None,
        }
    }

    /// Whether a turn with events is in progress.
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns the conditions that wake it; none if it is awake.
    pub fn sleep(&self) -> Option<&Sleep> {
        self.sleep.as_ref()
    }

    /// Whether an event of a type waits for the agent.
    pub fn has_waiting(&self, event_type: &str) -> bool {
        let mut queue = self.queue.iter();
        queue.any(|entry| entry.event_type == event_type)
    }

    /// Returns the time for which the type of an event must be quiet, in milliseconds; none if the
    /// event is not for this agent.
    fn hears(&self, event: &Event) -> Option<u64> {
        if !event.targets.is_empty() {
            return event.targets.contains(&self.instance_id).then_some(0);
        }
        if event.source.is_instance(&self.instance_id) {
            return None;
        }
        let mut taking = self.subscriptions.iter();
        let subscribed = taking.find(|one| one.takes(event, &self.instance_id));
        let listened = || self.sleep.as_ref().filter(|sleep| sleep.listens_for(event));
        match subscribed {
            Some(subscription) => Some(subscription.debounce_ms),
            None => listened().map(|_| 0),
        }
    }

    /// Returns the time for which the type of an event must be quiet, in milliseconds.
    fn debounce(&self, event: &Event) -> u64 {
        // Evaluating conditions costs much more than this.
        let mut own = self.subscriptions.iter();
        match own.any(|subscription| subscription.debounce_ms > 0) {
            true => self.hears(event).unwrap_or_default(),
            false => 0,
        }
    }

    fn is_looping(&self, event: &Event) -> Option<String> {
        let (instance, event_type) = (&self.instance_id, &event.event_type);
        if event.chain.len() >= MAX_HOPS {
            return Some(format!("the event came about over {MAX_HOPS} turns"));
        }
        let same = event
            .chain
            .iter()
            .filter(|hop| hop.instance_id == *instance && hop.event_type == *event_type);
        let times = same.count();
        (times >= MAX_SAME_HOPS)
            .then(|| format!("{event_type} reached {instance} {times} times in one chain"))
    }

    /// Returns the entry that is dropped first from a full queue.
    fn least(&self) -> Option<&ChannelEntry> {
        self.queue
            .iter()
            .filter(|entry| entry.priority != Priority::Critical)
            .min_by_key(|entry| (entry.priority, entry.arrival))
    }

    fn in_order(&self, now: Timestamp) -> Vec<&ChannelEntry> {
        let mut ready: Vec<&ChannelEntry> = self
            .queue
            .iter()
            .filter(|entry| entry.ready <= now)
            .collect();
        ready.sort_by_key(|entry| (std::cmp::Reverse(entry.priority), entry.arrival));
        ready
    }
}

impl Channel {
    /// Makes the queues of the agents of a scene.
    pub fn new(members: Vec<Member>) -> Self {
        Self {
            members,
            ..Self::default()
        }
    }

    /// Returns the agents, in the order of the document.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the events that wait for an agent, in the order in which they are taken.
    pub fn waiting_for(&self, member: &Member) -> Vec<&Event> {
        let entries = member.in_order(Timestamp::from_unix_nanos(i64::MAX));
        let events = entries
            .iter()
            .filter_map(|entry| self.waiting.get(&entry.event_id));
        events.map(|(event, _)| event).collect()
    }

    /// Decides on the queues of an event. Nothing is changed.
    ///
    /// # Errors
    /// [`QueueFull`] for a critical event.
    pub fn route(&self, event: &Event) -> Result<Routed, QueueFull> {
        let mut routed = Routed::default();
        for member in &self.members {
            let Some(debounce) = member.hears(event) else {
                continue;
            };
            let mut drop = |event_id: &str, reason, detail: String| {
                routed.dropped.push(Dropped {
                    event_id: event_id.to_owned(),
                    instance_id: member.instance_id.clone(),
                    reason,
                    detail,
                });
            };
            if let Some(detail) = member.is_looping(event) {
                drop(&event.id, DropReason::Loop, detail);
                continue;
            }
            let mut room = member.queue_limit.saturating_sub(member.queue.len());
            if debounce > 0 {
                let older = member
                    .queue
                    .iter()
                    .filter(|entry| entry.debounced && entry.event_type == event.event_type);
                for entry in older {
                    let detail = format!("a newer {} came soon after it", event.event_type);
                    drop(&entry.event_id, DropReason::Superseded, detail);
                    room += 1;
                }
            }
            if room == 0 {
                let detail = format!("{} events wait", member.queue.len());
                match member.least() {
                    Some(least) if least.priority <= event.priority => {
                        drop(&least.event_id, DropReason::QueueFull, detail);
                    }
                    _ if event.priority == Priority::Critical => {
                        return Err(QueueFull(member.instance_id.clone()));
                    }
                    _ => {
                        drop(&event.id, DropReason::QueueFull, detail);
                        continue;
                    }
                }
            }
            routed.delivered_to.push(member.instance_id.clone());
        }
        Ok(routed)
    }

    /// Records that an event was published.
    pub fn publish(&mut self, event: Event, delivered_to: &[String]) {
        self.arrivals += 1;
        let mut queues = 0;
        for member in &mut self.members {
            if !delivered_to.contains(&member.instance_id) {
                continue;
            }
            let debounce = member.debounce(&event);
            let quiet = event
                .published
                .plus(std::time::Duration::from_millis(debounce));
            member.queue.push(ChannelEntry {
                event_id: event.id.clone(),
                event_type: event.event_type.clone(),
                priority: event.priority,
                arrival: self.arrivals,
                ready: event.ready.max(quiet),
                expires: event.expires,
                debounced: debounce > 0,
            });
            queues += 1;
        }
        if queues > 0 {
            self.waiting.insert(event.id.clone(), (event, queues));
        }
    }

    /// Records that an event no longer waits for an instance.
    pub fn drop_event(&mut self, event_id: &str, instance_id: &str) {
        self.remove(instance_id, event_id);
    }

    /// Returns the first idle agent with events that are ready, and these events.
    pub fn next(&self, now: Timestamp) -> Option<(&str, Vec<&Event>)> {
        self.members.iter().find_map(|member| {
            let ready = match member.is_busy || member.sleep.is_some() {
                true => return None,
                false => member.in_order(now),
            };
            let (mut events, mut bytes) = (Vec::new(), 0);
            for entry in ready.into_iter().take(MAX_TAKEN) {
                let Some((event, _)) = self.waiting.get(&entry.event_id) else {
                    continue;
                };
                bytes += json_schema::text_bytes(&event.payload);
                if !events.is_empty() && bytes > MAX_TAKEN_BYTES {
                    break;
                }
                events.push(event);
            }
            (!events.is_empty()).then_some((member.instance_id.as_str(), events))
        })
    }

    /// Records that an instance takes events. Returns the events that waited for it.
    pub fn take(&mut self, instance_id: &str, event_ids: &[String]) -> Vec<Event> {
        self.set_busy(instance_id, true);
        let taken = event_ids
            .iter()
            .filter_map(|id| self.remove(instance_id, id));
        taken.collect()
    }

    /// Records that the turn of an instance has ended.
    pub fn handled(&mut self, instance_id: &str) {
        self.set_busy(instance_id, false);
    }

    /// Records that an instance sleeps, or is awake.
    pub fn set_sleep(&mut self, instance_id: &str, sleep: Option<Sleep>) {
        for member in &mut self.members {
            if member.instance_id == instance_id {
                member.sleep.clone_from(&sleep);
            }
        }
    }

    /// Returns the instances that wake now, with the cause (rule G410).
    pub fn waking(&self, now: Timestamp) -> Vec<(String, WakeCause)> {
        let mut waking = Vec::new();
        for member in &self.members {
            let Some(sleep) = &member.sleep else { continue };
            let ready = member.in_order(now).into_iter();
            let events = ready.filter_map(|entry| self.waiting.get(&entry.event_id));
            let mut ending = events.filter(|(event, _)| sleep.ends_with(event));
            let cause = match ending.next() {
                Some((event, _)) => WakeCause::Event(event.id.clone()),
                None if sleep.until.is_some_and(|until| until <= now) => WakeCause::Timer,
                None => continue,
            };
            waking.push((member.instance_id.clone(), cause));
        }
        waking
    }

    /// Returns the events that have waited too long.
    pub fn expired(&self, now: Timestamp) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        for member in &self.members {
            let late = member.queue.iter().filter(|entry| entry.expires <= now);
            dropped.extend(late.map(|entry| Dropped {
                event_id: entry.event_id.clone(),
                instance_id: member.instance_id.clone(),
                reason: DropReason::Expired,
                detail: format!("it waited until {}", schedules::utc(entry.expires)),
            }));
        }
        dropped
    }

    /// Returns every event that waits when the scene ends.
    pub fn left(&self) -> Vec<Dropped> {
        let all = self.members.iter().flat_map(|member| {
            member.queue.iter().map(|entry| Dropped {
                event_id: entry.event_id.clone(),
                instance_id: member.instance_id.clone(),
                reason: DropReason::SceneEnded,
                detail: "it waited when the scene ended".to_owned(),
            })
        });
        all.collect()
    }

    /// Returns the next time at which an event becomes ready or expires, or an agent wakes.
    pub fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let times = self.members.iter().flat_map(|member| {
            member
                .queue
                .iter()
                .map(move |entry| match entry.ready > now && !member.is_busy {
                    true => entry.ready.min(entry.expires),
                    false => entry.expires,
                })
        });
        let sleeps = self
            .members
            .iter()
            .filter_map(|member| member.sleep.as_ref());
        let wakes = sleeps.filter_map(|sleep| sleep.until);
        times.chain(wakes).min()
    }

    fn set_busy(&mut self, instance_id: &str, is_busy: bool) {
        for member in &mut self.members {
            if member.instance_id == instance_id {
                member.is_busy = is_busy;
            }
        }
    }

    /// Removes an event from a queue.
    fn remove(&mut self, instance_id: &str, event_id: &str) -> Option<Event> {
        let mut members = self.members.iter_mut();
        let member = members.find(|member| member.instance_id == instance_id)?;
        let place = member
            .queue
            .iter()
            .position(|entry| entry.event_id == event_id)?;
        member.queue.remove(place);
        let (event, queues) = self.waiting.get_mut(event_id)?;
        *queues -= 1;
        match queues {
            0 => self.waiting.remove(event_id).map(|(event, _)| event),
            _ => Some(event.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
