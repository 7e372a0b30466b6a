use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    document::DocumentReader,
    event::{Hop, Source, SourceKind},
    subscription,
};

fn member(id: &str, entries: &serde_json::Value, limit: usize) -> Member {
    let profile = json!({ "subscribed_event_types": entries });
    let mut reader = DocumentReader::default();
    let subscriptions = subscription::read(&mut reader, profile.as_object().unwrap());
    Member::new(id.to_owned(), subscriptions, limit)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::default().plus(Duration::from_millis(millis))
}

fn event(id: &str, event_type: &str) -> Event {
    Event {
        id: id.to_owned(),
        event_type: event_type.to_owned(),
        qualified_type: format!("wood.{event_type}"),
        payload: json!({}),
        source: Source {
            kind: SourceKind::Caller,
            id: "player".to_owned(),
            run_id: String::new(),
        },
        targets: Vec::new(),
        priority: Priority::Normal,
        published: at(0),
        ready: at(0),
        expires: at(3_600_000),
        chain: Vec::new(),
        correlation_id: String::new(),
    }
}

/// Publishes an event as the scene does, and returns its route.
fn publish(channel: &mut Channel, event: Event) -> Routed {
    let routed = channel.route(&event).unwrap();
    for dropped in &routed.dropped {
        channel.drop_event(&dropped.event_id, &dropped.instance_id);
    }
    channel.publish(event, &routed.delivered_to);
    routed
}

/// Takes the events of the next agent, and returns their ids.
fn take(channel: &mut Channel, now: Timestamp) -> Option<(String, Vec<String>)> {
    let (instance, events) = channel.next(now)?;
    let (instance, ids) = (
        instance.to_owned(),
        events
            .iter()
            .map(|event| event.id.clone())
            .collect::<Vec<_>>(),
    );
    assert_eq!(channel.take(&instance, &ids).len(), ids.len());
    Some((instance, ids))
}

fn reasons(routed: &Routed) -> Vec<(&str, &str, DropReason)> {
    let dropped = routed.dropped.iter();
    dropped
        .map(|one| (one.event_id.as_str(), one.instance_id.as_str(), one.reason))
        .collect()
}

#[test]
fn g403_subscribers_and_targets_take_an_event_and_its_publisher_only_as_a_target() {
    let mut channel = Channel::new(vec![
        member("gm", &json!(["talk.*"]), 64),
        member("elara", &json!(["talk.*"]), 64),
        member("owl", &json!([]), 64),
    ]);
    let by_elara = |id: &str, targets: &[&str]| Event {
        source: Source {
            kind: SourceKind::Instance,
            id: "elara".to_owned(),
            run_id: String::new(),
        },
        targets: targets.iter().map(|target| String::from(*target)).collect(),
        ..event(id, "talk.loud")
    };
    assert_eq!(
        publish(&mut channel, by_elara("a", &[])).delivered_to,
        ["gm"]
    );
    let targeted = publish(&mut channel, by_elara("b", &["elara", "owl"]));
    assert_eq!(targeted.delivered_to, ["elara", "owl"]);
    let all = publish(&mut channel, event("c", "talk.soft"));
    assert_eq!(all.delivered_to, ["gm", "elara"]);
}

#[test]
fn g407_an_idle_agent_takes_what_waits_by_priority_and_arrival_and_a_busy_one_nothing() {
    let mut channel = Channel::new(vec![member("gm", &json!(["*"]), 64)]);
    for (id, priority) in [
        ("low", Priority::Low),
        ("first", Priority::Normal),
        ("critical", Priority::Critical),
        ("second", Priority::Normal),
    ] {
        let event = Event {
            priority,
            ..event(id, "tick")
        };
        publish(&mut channel, event);
    }
    let (_, taken) = take(&mut channel, at(1)).unwrap();
    assert_eq!(taken, ["critical", "first", "second", "low"]);
    publish(&mut channel, event("later", "tick"));
    assert_eq!(take(&mut channel, at(1)), None);
    channel.handled("gm");
    assert_eq!(take(&mut channel, at(1)).unwrap().1, ["later"]);
}

#[test]
fn g407_a_full_queue_drops_the_lowest_and_oldest_and_refuses_only_what_is_critical() {
    let mut channel = Channel::new(vec![member("gm", &json!(["*"]), 2)]);
    let with = |id: &str, priority| Event {
        priority,
        ..event(id, "tick")
    };
    publish(&mut channel, with("a", Priority::Normal));
    publish(&mut channel, with("b", Priority::Normal));
    let routed = publish(&mut channel, with("c", Priority::Low));
    assert_eq!(reasons(&routed), [("c", "gm", DropReason::QueueFull)]);
    let routed = publish(&mut channel, with("d", Priority::Normal));
    assert_eq!(reasons(&routed), [("a", "gm", DropReason::QueueFull)]);
    publish(&mut channel, with("e", Priority::Critical));
    publish(&mut channel, with("f", Priority::Critical));
    let refused = channel.route(&with("g", Priority::Critical));
    assert_eq!(refused, Err(QueueFull("gm".to_owned())));
    assert_eq!(take(&mut channel, at(1)).unwrap().1, ["e", "f"]);
}

#[test]
fn g405_a_type_reaches_an_instance_three_times_in_a_chain_and_a_chain_has_sixteen_steps() {
    let channel = Channel::new(vec![member("gm", &json!(["*"]), 64)]);
    let hop = |instance_id: &str, event_type: &str| Hop {
        instance_id: instance_id.to_owned(),
        event_type: event_type.to_owned(),
    };
    let after = |chain: Vec<Hop>| {
        let event = Event {
            chain,
            ..event("a", "echo")
        };
        let routed = channel.route(&event).unwrap();
        (routed.delivered_to.len(), routed.dropped.len())
    };
    let twice = vec![hop("gm", "echo"), hop("elara", "echo"), hop("gm", "echo")];
    assert_eq!(after(twice.clone()), (1, 0));
    assert_eq!(after([twice, vec![hop("gm", "echo")]].concat()), (0, 1));
    assert_eq!(after(vec![hop("gm", "other"); 15]), (1, 0));
    assert_eq!(after(vec![hop("gm", "other"); 16]), (0, 1));
}

#[test]
fn of_a_burst_only_the_newest_event_is_taken_when_its_type_is_quiet() {
    let entries = json!([{"type": "speak", "debounce_ms": 500}]);
    let mut channel = Channel::new(vec![member("elara", &entries, 64)]);
    publish(&mut channel, event("a", "speak"));
    let second = Event {
        published: at(300),
        ..event("b", "speak")
    };
    let routed = publish(&mut channel, second);
    assert_eq!(reasons(&routed), [("a", "elara", DropReason::Superseded)]);
    assert_eq!(take(&mut channel, at(799)), None);
    assert_eq!(channel.due(at(799)), Some(at(800)));
    assert_eq!(take(&mut channel, at(800)).unwrap().1, ["b"]);
}

#[test]
fn g406_what_waits_too_long_is_dropped_and_a_delayed_event_waits() {
    let mut channel = Channel::new(vec![member("gm", &json!(["*"]), 64)]);
    let late = Event {
        ready: at(1_000),
        expires: at(2_000),
        ..event("a", "tick")
    };
    publish(&mut channel, late);
    assert_eq!(take(&mut channel, at(999)), None);
    assert_eq!(channel.due(at(0)), Some(at(1_000)));
    assert!(channel.expired(at(1_999)).is_empty());
    assert_eq!(channel.left()[0].reason, DropReason::SceneEnded);
    let expired = channel.expired(at(2_000));
    assert_eq!(expired[0].reason, DropReason::Expired);
    channel.drop_event(&expired[0].event_id, &expired[0].instance_id);
    assert_eq!(take(&mut channel, at(2_000)), None);
    assert_eq!(channel.due(at(2_000)), None);
}

#[test]
fn g407_at_most_32_events_open_a_turn_and_no_more_than_their_bytes_allow() {
    let mut channel = Channel::new(vec![member("gm", &json!(["*"]), 1_000)]);
    for number in 0..40 {
        publish(&mut channel, event(&format!("e{number}"), "tick"));
    }
    assert_eq!(take(&mut channel, at(1)).unwrap().1.len(), 32);
    channel.handled("gm");
    assert_eq!(take(&mut channel, at(1)).unwrap().1.len(), 8);
    channel.handled("gm");
    for number in 0..6 {
        let large = Event {
            payload: json!({"text": "x".repeat(60 << 10)}),
            ..event(&format!("l{number}"), "tick")
        };
        publish(&mut channel, large);
    }
    assert_eq!(take(&mut channel, at(1)).unwrap().1.len(), 4);
}

#[derive(Clone, Debug)]
enum Step {
    Publish {
        instance: u8,
        priority: u8,
        ttl: u16,
    },
    Take,
    Handled(u8),
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, 0..4_u8, 1..500_u16)
            .prop_map(|(instance, priority, ttl)| Step::Publish { instance, priority, ttl }),
        2 => Just(Step::Take),
        2 => (0..3_u8).prop_map(Step::Handled),
        1 => (1..400_u16).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Each delivery is taken once or dropped once, never both, and no other event is.
    #[test]
    fn g403_every_delivery_is_taken_or_dropped_exactly_once(steps in prop::collection::vec(step(), 1..80)) {
        let names = ["a", "b", "c"];
        let members = names.map(|name| member(name, &json!(["tick"]), 4));
        let mut channel = Channel::new(members.into());
        let (mut open, mut now, mut number) = (Vec::<(String, String)>::new(), 0, 0);
        let close = |open: &mut Vec<(String, String)>, event: &str, instance: &str| {
            let place = open.iter().position(|(e, i)| e == event && i == instance);
            open.swap_remove(place.expect("it was delivered and is still open"));
        };
        for step in steps {
            match step {
                Step::Publish { instance, priority, ttl } => {
                    number += 1;
                    let target = names.get(usize::from(instance)).map(|name| String::from(*name));
                    let published = Event {
                        targets: target.into_iter().collect(),
                        priority: [Priority::Low, Priority::Normal, Priority::High, Priority::Critical][usize::from(priority)],
                        expires: at(now + u64::from(ttl)),
                        ..event(&format!("e{number}"), "tick")
                    };
                    let Ok(routed) = channel.route(&published) else { continue };
                    let id = published.id.clone();
                    for dropped in &routed.dropped {
                        if dropped.event_id != id {
                            close(&mut open, &dropped.event_id, &dropped.instance_id);
                        }
                        channel.drop_event(&dropped.event_id, &dropped.instance_id);
                    }
                    open.extend(routed.delivered_to.iter().map(|to| (id.clone(), to.clone())));
                    channel.publish(published, &routed.delivered_to);
                }
                Step::Take => {
                    if let Some((instance, events)) = take(&mut channel, at(now)) {
                        for id in events {
                            close(&mut open, &id, &instance);
                        }
                    }
                }
                Step::Handled(instance) => channel.handled(names[usize::from(instance)]),
                Step::Pass(millis) => {
                    now += u64::from(millis);
                    for dropped in channel.expired(at(now)) {
                        close(&mut open, &dropped.event_id, &dropped.instance_id);
                        channel.drop_event(&dropped.event_id, &dropped.instance_id);
                    }
                }
            }
        }
        let waiting: usize = channel.members().iter().map(|one| channel.waiting_for(one).len()).sum();
        prop_assert_eq!(waiting, open.len());
    }
}
