//! `core:HumanInput`: waits for the answer of a person.

use call_outcome::{Failure, Violation};
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{Bypass, ConfigSlot, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Node, NodeCall, Settled, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::wait::{WaitKind, WaitRequest, Wake};

use super::wait_settings::{WaitSettings, timed_out};
use super::wait_signal::on_due;

const CONTEXT: usize = 0;
const TITLE: &str = "title";
const FORM: &str = "form";
const CHOICES: &str = "choices";
const ASSIGNEES: &str = "assignees";
const EXPIRY: &str = "expiry";
const ON_EXPIRY: &str = "onExpiry";
const DEFAULT: &str = "default";

const MAX_TITLE_BYTES: usize = 32_768;
const MAX_CHOICES: usize = 100;
const MAX_ASSIGNEES: usize = 100;
const MAX_WORD_BYTES: usize = 2_048;

/// Outputs the answer of a person.
#[derive(Debug)]
pub struct HumanInput;

impl Node for HumanInput {
    fn definition(&self) -> NodeDefinition {
        let context = "What the person should see to decide.";
        let inputs = vec![Slot::new("context", DataFlow::Wildcard, context)];
        let outputs = vec![
            Slot::new("answer", DataFlow::Wildcard, "The answer, or the default."),
            Slot::new(
                "choice",
                DataFlow::String,
                "The value of the chosen answer; empty if it is none of the choices.",
            ),
            Slot::new(
                "answered_by",
                DataFlow::String,
                "Who answered; empty if the time came first.",
            ),
            Slot::new(
                "expired",
                DataFlow::Boolean,
                "Whether the time came before an answer.",
            ),
        ];
        NodeDefinition {
            description:
                "Asks a person and waits for the answer. The first answer that fits counts.".into(),
            category: "wait".into(),
            config: vec![
                ConfigSlot::new(TITLE, DataFlow::String, "The question."),
                ConfigSlot::new(
                    FORM,
                    DataFlow::Object,
                    "The JSON Schema of the answer, or of one that is none of the choices. Without it and \
                     without choices any JSON is an answer.",
                ),
                ConfigSlot::new(
                    CHOICES,
                    DataFlow::Array,
                    "The answers to choose from, at most 100: texts, or objects with `value` and \
                     `label`.",
                ),
                ConfigSlot::new(
                    ASSIGNEES,
                    DataFlow::Array,
                    "Who should answer: at most 100 texts, which are shown and not enforced.",
                ),
                ConfigSlot::new(
                    EXPIRY,
                    DataFlow::Wildcard,
                    "How long to wait at most: seconds, or a text such as `24h`. Missing waits until \
                     the end of the run.",
                ),
                on_due(ON_EXPIRY),
                ConfigSlot::new(
                    DEFAULT,
                    DataFlow::Wildcard,
                    "The answer that stands for one that did not come in time. It has to fit.",
                ),
            ],
            effects: NodeEffects::ReadOnly,
            bypass: Bypass::Mute,
            waits: true,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                "core:HumanInput",
                "Human input",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut settings = WaitSettings::new(context.config);
        settings.refuse_timeouts();
        settings.required_text(TITLE, MAX_TITLE_BYTES);
        settings.due(EXPIRY);
        let takes_default = settings.takes_default(ON_EXPIRY);
        let takes_choice = takes_default && default_is_choice(&settings);
        settings.check_schema(FORM, takes_default && !takes_choice);
        if read_assignees(settings.get(ASSIGNEES)).is_none() {
            let expected =
                format!("expected at most {MAX_ASSIGNEES} texts of 1 to {MAX_WORD_BYTES} bytes");
            settings.refuse(ASSIGNEES, expected);
        }
        check_choices(&mut settings, takes_default && !takes_choice);
        settings.end(context.definition.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let mut settings = WaitSettings::new(call.config);
        let title = settings.text(TITLE, MAX_TITLE_BYTES).unwrap_or("");
        let kind = WaitKind::HumanInput {
            title: title.to_owned(),
            form: settings.get(FORM).cloned().unwrap_or_default(),
            choices: read_choices(settings.get(CHOICES)).unwrap_or_default(),
            assignees: read_assignees(settings.get(ASSIGNEES)).unwrap_or_default(),
            context: call.value(CONTEXT).unwrap_or(&NULL).as_ref().clone(),
        };
        let due = settings.due(EXPIRY);
        Ok(Step::Wait(Box::new(WaitRequest { kind, due })))
    }

    fn settle(&self, call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let mut settings = WaitSettings::new(call.config);
        let (answer, by, expired) = match settled {
            Settled::Woken {
                wake: Wake::Answer { answer, by },
                ..
            } => (answer, by, false),
            Settled::Woken {
                wake: Wake::Due, ..
            } if settings.takes_default(ON_EXPIRY) => {
                let default = settings.get(DEFAULT).cloned().unwrap_or_default();
                (default, String::new(), true)
            }
            Settled::Woken {
                wake: Wake::Due, ..
            } => {
                let message = "the question was not answered in time";
                return Err(timed_out("expired", message));
            }
            _ => return Err(super::wrong_effect(&self.definition())),
        };
        let choices = read_choices(settings.get(CHOICES)).unwrap_or_default();
        let is_chosen = |text: &&str| choices.iter().any(|(value, _)| value == text);
        let choice = Value::from(answer.as_str().filter(is_chosen).unwrap_or(""));
        Ok(vec![
            Arc::new(answer),
            Arc::new(choice),
            Arc::new(Value::String(by)),
            Arc::new(Value::Bool(expired)),
        ])
    }
}

fn default_is_choice(settings: &WaitSettings<'_>) -> bool {
    let choices = read_choices(settings.get(CHOICES)).unwrap_or_default();
    let default = settings.get(DEFAULT).and_then(Value::as_str);
    choices
        .iter()
        .any(|(value, _)| Some(value.as_str()) == default)
}

fn check_choices(settings: &mut WaitSettings<'_>, takes_other_default: bool) {
    let given = settings.get(CHOICES);
    if read_choices(given).is_none() {
        let expected = format!(
            "expected 1 to {MAX_CHOICES} different texts, or objects with `value` and `label`, of 1 to \
             {MAX_WORD_BYTES} bytes"
        );
        return settings.refuse(CHOICES, expected);
    }
    if given.is_some() && settings.get(FORM).is_none() && takes_other_default {
        settings.refuse(DEFAULT, "expected one of the choices");
    }
}

/// Reads values and texts of choices; none if they are malformed.
fn read_choices(given: Option<&Value>) -> Option<Vec<(String, String)>> {
    let Some(given) = given else {
        return Some(Vec::new());
    };
    let given = given.as_array()?;
    let mut seen = HashSet::new();
    let choice = |choice: &Value| {
        let value = word(choice.get("value").unwrap_or(choice))?;
        let label = match choice.get("label") {
            Some(label) => word(label)?,
            None => value.clone(),
        };
        seen.insert(value.clone()).then_some((value, label))
    };
    let choices: Option<Vec<_>> = given.iter().map(choice).collect();
    choices.filter(|choices| (1..=MAX_CHOICES).contains(&choices.len()))
}

fn read_assignees(given: Option<&Value>) -> Option<Vec<String>> {
    let Some(given) = given else {
        return Some(Vec::new());
    };
    let given = given
        .as_array()
        .filter(|given| given.len() <= MAX_ASSIGNEES)?;
    given.iter().map(word).collect()
}

fn word(value: &Value) -> Option<String> {
    let word = value.as_str()?;
    (!word.is_empty() && word.len() <= MAX_WORD_BYTES).then(|| word.to_owned())
}
