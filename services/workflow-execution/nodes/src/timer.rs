//! `core:Timer`: waits for a time.

use call_outcome::{Failure, Violation};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::wait::{Due, WaitKind, WaitRequest};

use super::wait_settings::{LONGEST_WAIT, WaitSettings, read_time};

const VALUE: usize = 0;
const DURATION: usize = 1;
const UNTIL: usize = 2;

/// Passes its value on when a time has passed.
#[derive(Debug)]
pub struct Timer;

impl Node for Timer {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("value", DataFlow::Wildcard, "What is passed on."),
            Slot::new(
                "duration",
                DataFlow::Float,
                "How long to wait, in seconds from 0 to 366 days.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "until",
                DataFlow::String,
                "The time to wait for, such as `2026-01-31T08:00:00Z`. Without an offset it is UTC.",
            )
            .excluded_from_bypass(),
        ];
        let outputs = vec![
            Slot::new("value", DataFlow::Wildcard, "The value."),
            Slot::new(
                "due",
                DataFlow::String,
                "The time that was waited for, UTC.",
            )
            .excluded_from_bypass(),
        ];
        NodeDefinition {
            description:
                "Waits for a duration or until a time, by the clock of the server, and never \
                          ends early. A time that has passed ends it at once."
                    .into(),
            category: "wait".into(),
            config: vec![
                ConfigSlot::new(
                    "duration",
                    DataFlow::Wildcard,
                    "How long to wait: seconds, or a text such as `90s` or `7d`. The input counts \
                     before it.",
                ),
                ConfigSlot::new(
                    "until",
                    DataFlow::String,
                    "The time to wait for. The input counts before it.",
                ),
            ],
            effects: NodeEffects::ReadOnly,
            waits: true,
            reuse: Reuse::Never,
            ..NodeDefinition::new("core:Timer", "Timer", Shape::new(inputs, outputs))
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut settings = WaitSettings::new(context.config);
        settings.refuse_timeouts();
        settings.duration("duration");
        let until = settings.text("until", 64);
        if until.is_some_and(|until| read_time(until).is_none()) {
            settings.refuse("until", "expected a time such as `2026-01-31T08:00:00Z`");
        }
        let given = |key: &str| {
            context.connected.contains(&key)
                || context.presets.contains_key(key)
                || context
                    .config
                    .get(key)
                    .is_some_and(|value| !value.is_null())
        };
        match (given("duration"), given("until")) {
            (true, true) => settings.refuse("until", "`duration` and `until` exclude each other"),
            (false, false) => settings.refuse("duration", "the node needs `duration` or `until`"),
            _ => {}
        }
        settings.end(context.definition.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let due = match (call.value(DURATION), call.text(UNTIL)) {
            (Some(seconds), _) if !seconds.is_null() => after(seconds)?,
            (_, Some(until)) => at(until)?,
            _ => match WaitSettings::new(call.config).duration("duration") {
                Some(duration) => Due::After(duration),
                None => at(call
                    .config
                    .get("until")
                    .and_then(Value::as_str)
                    .unwrap_or(""))?,
            },
        };
        Ok(Step::Wait(Box::new(WaitRequest {
            kind: WaitKind::Timer,
            due,
        })))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let Settled::Woken { due, .. } = settled else {
            return Err(super::wrong_effect(&self.definition()));
        };
        let value = call.value(VALUE).unwrap_or(&NULL);
        Ok(vec![Arc::clone(value), Arc::new(Value::String(due))])
    }
}

fn after(seconds: &Value) -> Result<Due, Failure> {
    let duration = seconds.as_f64().map(Duration::try_from_secs_f64);
    match duration {
        Some(Ok(duration)) if duration <= LONGEST_WAIT => Ok(Due::After(duration)),
        _ => {
            let message = "`duration` is not a number of seconds from 0 to 366 days";
            Err(Failure::invalid("out_of_range", message))
        }
    }
}

fn at(until: &str) -> Result<Due, Failure> {
    read_time(until).ok_or_else(|| {
        let shown: String = until.chars().take(64).collect();
        let message = format!("`{shown}` is not a time such as `2026-01-31T08:00:00Z`");
        Failure::invalid("out_of_range", message)
    })
}
