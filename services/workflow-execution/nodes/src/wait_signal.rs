//! `core:WaitSignal`: waits for a signal.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::limits::MAX_NAME_BYTES;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::wait::{WAIT_SIGNAL, WaitKind, WaitRequest, Wake};

use super::wait_settings::{WaitSettings, timed_out};

const VALUE: usize = 0;
const NAME: &str = "name";
const SCHEMA: &str = "schema";
const TIMEOUT: &str = "timeout";
const ON_TIMEOUT: &str = "onTimeout";
const DEFAULT: &str = "default";

/// Passes its value on when a signal has arrived.
#[derive(Debug)]
pub struct WaitSignal;

impl Node for WaitSignal {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![Slot::new("value", DataFlow::Wildcard, "What is passed on.")];
        let outputs = vec![
            Slot::new("value", DataFlow::Wildcard, "The value."),
            Slot::new(
                "payload",
                DataFlow::Wildcard,
                "The payload of the signal, or the default.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "timed_out",
                DataFlow::Boolean,
                "Whether the time came before a signal.",
            )
            .excluded_from_bypass(),
        ];
        NodeDefinition {
            description:
                "Waits for a signal, which may have arrived before. Each signal wakes one \
                          wait, the oldest."
                    .into(),
            category: "wait".into(),
            config: vec![
                ConfigSlot::new(NAME, DataFlow::String, "The name of the signal."),
                ConfigSlot::new(
                    SCHEMA,
                    DataFlow::Object,
                    "The JSON Schema of the payload. Missing accepts any payload. A payload has to \
                     fit the schemas of all nodes that wait for the name.",
                ),
                ConfigSlot::new(
                    TIMEOUT,
                    DataFlow::Wildcard,
                    "How long to wait at most: seconds, or a text such as `2h`. Missing waits until \
                     the end of the run.",
                ),
                on_due(ON_TIMEOUT),
                ConfigSlot::new(
                    DEFAULT,
                    DataFlow::Wildcard,
                    "The payload that stands for a signal that did not arrive in time. It has to fit \
                     the schema.",
                ),
            ],
            effects: NodeEffects::ReadOnly,
            waits: true,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                WAIT_SIGNAL,
                "Wait for a signal",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut settings = WaitSettings::new(context.config);
        settings.refuse_timeouts();
        settings.required_text(NAME, MAX_NAME_BYTES);
        settings.due(TIMEOUT);
        let takes_default = settings.takes_default(ON_TIMEOUT);
        settings.check_schema(SCHEMA, takes_default);
        settings.end(context.definition.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let mut settings = WaitSettings::new(call.config);
        let kind = WaitKind::Signal {
            name: settings.text(NAME, MAX_NAME_BYTES).unwrap_or("").to_owned(),
            schema: settings.get(SCHEMA).cloned().unwrap_or_default(),
        };
        let due = settings.due(TIMEOUT);
        Ok(Step::Wait(Box::new(WaitRequest { kind, due })))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let mut settings = WaitSettings::new(call.config);
        let (payload, timed_out) = match settled {
            Settled::Woken {
                wake: Wake::Signal(payload),
                ..
            } => (payload, false),
            Settled::Woken {
                wake: Wake::Due, ..
            } if settings.takes_default(ON_TIMEOUT) => {
                (settings.get(DEFAULT).cloned().unwrap_or_default(), true)
            }
            Settled::Woken {
                wake: Wake::Due, ..
            } => {
                let message = "no signal arrived in time";
                return Err(timed_out("signal_timeout", message));
            }
            _ => return Err(super::wrong_effect(&self.definition())),
        };
        Ok(vec![
            Arc::clone(call.value(VALUE).unwrap_or(&NULL)),
            Arc::new(payload),
            Arc::new(Value::Bool(timed_out)),
        ])
    }
}

/// Describes the setting for the end of the time.
pub(super) fn on_due(key: &'static str) -> ConfigSlot {
    ConfigSlot {
        default: Some(Value::from("fail")),
        options: vec!["fail".into(), "default".into()],
        ..ConfigSlot::new(
            key,
            DataFlow::String,
            "What the end of the time does: the node fails, or takes `default`.",
        )
    }
}
