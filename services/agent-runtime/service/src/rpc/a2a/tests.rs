//! Turns as tasks: values, states, questions and pieces.

use contracts::{
    lf::a2a::v1::{TaskState, TaskStatus, part::Content, stream_response::Payload},
    tavern::common::v1::{
        CallDecided, CallError, CallInDoubt, CallResult, CallSettled, IterationStarted,
        ModelRequested, NodeWaiting, NodeWoken, Run, RunEvent, RunFinished, RunOutcome, RunQueued,
        RunState, SteeringAccepted, TextDelta, Wait, WaitKind, WakeCause, run_event::Kind,
    },
};
use futures::{StreamExt, stream};
use grpc_kit::{Failure, violations};
use prost_types::{Value as Wire, value};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{
    follow::Followed, parts, progress::Progress, send::of_message, task, updates::ShownToClient,
    value as values,
};

#[test]
fn g905_integers_that_a_reader_would_round_are_texts() {
    let number = value::Kind::NumberValue;
    let text = |text: &str| value::Kind::StringValue(text.to_owned());
    for (json, expected) in [
        ("9007199254740992", number(9_007_199_254_740_992.0)),
        ("9007199254740993", text("9007199254740993")),
        ("-9007199254740993", text("-9007199254740993")),
        ("18446744073709551615", text("18446744073709551615")),
        ("0.5", number(0.5)),
        ("1e300", number(1e300)),
    ] {
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(values::from_json(&value).kind, Some(expected), "{json}");
    }
}

#[test]
fn data_is_the_same_json_after_both_ways() {
    for value in [
        json!(null),
        json!({"a": [1, -2.5, true, "x", {"b": null}], "": 0}),
        json!([]),
    ] {
        assert_eq!(values::to_json(&values::from_json(&value)), Some(value));
    }
    let deep = (0..200).fold(json!(1), |below, _| json!([below]));
    let mut wire = &values::from_json(&deep);
    let mut depth = 0;
    while let Some(value::Kind::ListValue(list)) = &wire.kind {
        (wire, depth) = (&list.values[0], depth + 1);
    }
    // Deeper values are their text.
    assert!(depth < 30 && matches!(&wire.kind, Some(value::Kind::StringValue(_))));
    let infinite = Wire {
        kind: Some(value::Kind::NumberValue(f64::INFINITY)),
    };
    assert_eq!(values::to_json(&infinite), None);
}

#[test]
fn g904_texts_and_data_are_one_text_and_data_alone_is_an_answer() {
    let (greeting, room) = (parts::text("Hello"), parts::data(&json!({"room": 3})));
    let said = parts::read(&[greeting.clone(), room.clone()]).unwrap();
    assert_eq!(said.text, "Hello\n\n{\"room\":3}");
    assert_eq!(said.answer_json(), r#""Hello\n\n{\"room\":3}""#);
    assert_eq!(parts::read(&[room]).unwrap().answer_json(), r#"{"room":3}"#);
    assert_eq!(
        parts::read(&[greeting]).unwrap().answer_json(),
        r#""Hello""#
    );
}

/// The log of a turn, and of a run below it, as it is read.
struct Log {
    run: Run,
    progress: Progress,
}

impl Log {
    fn new() -> Self {
        let run = Run {
            run_id: "turn_1".to_owned(),
            ..Run::default()
        };
        Self {
            run,
            progress: Progress::default(),
        }
    }

    fn add(&mut self, run_id: &str, kind: Kind) {
        let is_own = run_id == self.run.run_id;
        let event = RunEvent {
            sequence: self.progress.sequence + 1,
            run_id: run_id.to_owned(),
            parent_path: (!is_own)
                .then(|| self.run.run_id.clone())
                .into_iter()
                .collect(),
            kind: Some(kind),
            ..RunEvent::default()
        };
        self.progress.note(&self.run, &event);
    }

    fn own(&mut self, kind: Kind) {
        self.add("turn_1", kind);
    }

    fn ask(&mut self, run_id: &str) {
        let wait = Wait {
            wait_id: format!("{run_id}/wait"),
            kind: WaitKind::HumanInput.into(),
            name: "Which herb?".to_owned(),
            ..Wait::default()
        };
        self.add(run_id, Kind::NodeWaiting(NodeWaiting { wait: Some(wait) }));
    }

    fn write(&mut self, text: &str) {
        let text = text.to_owned();
        self.own(Kind::Text(TextDelta { text }));
    }
}

fn finished(state: RunState, result: &str) -> Kind {
    Kind::RunFinished(RunFinished {
        outcome: Some(RunOutcome {
            state: state.into(),
            result_json: json!(result).to_string(),
            ..RunOutcome::default()
        }),
    })
}

#[test]
fn g903_the_state_of_a_task_is_that_of_its_turn() {
    let begun = || Kind::IterationStarted(IterationStarted::default());
    for (events, expected) in [
        (vec![Kind::RunQueued(RunQueued {})], TaskState::Submitted),
        (vec![begun()], TaskState::Working),
        (
            vec![begun(), finished(RunState::Succeeded, "")],
            TaskState::Completed,
        ),
        (
            vec![begun(), finished(RunState::Failed, "")],
            TaskState::Failed,
        ),
        (
            vec![begun(), finished(RunState::InDoubt, "")],
            TaskState::Failed,
        ),
        (vec![finished(RunState::Failed, "")], TaskState::Rejected),
        (vec![finished(RunState::Cancelled, "")], TaskState::Canceled),
    ] {
        let mut log = Log::new();
        events.into_iter().for_each(|kind| log.own(kind));
        assert_eq!(log.progress.state(), expected);
    }
}

#[test]
fn g903_input_is_required_until_a_question_is_answered_or_left_open() {
    let woken = Kind::NodeWoken(NodeWoken {
        wait_id: "flow_1/wait".to_owned(),
        cause: WakeCause::Answer.into(),
        payload_json: "\"sage\"".to_owned(),
        request_id: "m2".to_owned(),
        ..NodeWoken::default()
    });
    let left_open = Kind::CallSettled(CallSettled {
        result: Some(CallResult {
            output_json: r#"{"interaction_id":"flow_1","status":"pending"}"#.to_owned(),
            ..CallResult::default()
        }),
    });
    for (run, end) in [
        ("flow_1", woken),
        ("turn_1", left_open),
        ("flow_1", finished(RunState::Failed, "")),
        ("turn_1", finished(RunState::Cancelled, "")),
    ] {
        let mut log = Log::new();
        log.ask("flow_1");
        assert_eq!(log.progress.state(), TaskState::InputRequired);
        log.add(run, end.clone());
        assert_ne!(log.progress.state(), TaskState::InputRequired, "{end:?}");
        let is_answer = matches!(end, Kind::NodeWoken(_));
        assert_eq!(log.progress.has("m2"), is_answer);
    }
}

fn in_doubt(effect_id: &str, attempt: u32) -> Kind {
    Kind::CallInDoubt(CallInDoubt {
        effect_id: effect_id.to_owned(),
        tool_id: "charge".to_owned(),
        attempt,
        error: Some(CallError {
            code: "backend_lost".to_owned(),
            message: "the connection broke".to_owned(),
            ..CallError::default()
        }),
    })
}

fn decided(effect_id: &str) -> Kind {
    Kind::CallDecided(CallDecided {
        effect_id: effect_id.to_owned(),
        ..CallDecided::default()
    })
}

#[test]
fn g903_input_is_required_until_a_call_in_doubt_is_decided_or_settles() {
    let settled = Kind::CallSettled(CallSettled {
        result: Some(CallResult {
            effect_id: "e1".to_owned(),
            ..CallResult::default()
        }),
    });
    for (run, end) in [
        ("turn_1", decided("e1")),
        ("flow_1", decided("e1")),
        ("turn_1", settled),
        ("flow_1", finished(RunState::InDoubt, "")),
        ("turn_1", finished(RunState::InDoubt, "")),
    ] {
        let mut log = Log::new();
        log.add(run, in_doubt("e1", 1));
        assert_eq!(log.progress.state(), TaskState::InputRequired);
        assert!(log.progress.is_settled());
        log.add(run, end.clone());
        assert_ne!(log.progress.state(), TaskState::InputRequired, "{end:?}");
    }
}

#[test]
fn g903_each_call_in_doubt_is_said_with_its_effect_and_who_decides() {
    let mut log = Log::new();
    let mut shown = ShownToClient::of(&log.progress);
    let mut said = |log: &Log| -> Vec<(TaskState, String)> {
        let changes = shown.changes(&log.run, &log.progress).into_iter();
        let statuses = changes.filter_map(|change| match change {
            Payload::StatusUpdate(update) => update.status,
            _ => None,
        });
        let text = |status: &TaskStatus| {
            let message = status.message.clone().unwrap_or_default();
            let part = message.parts.first().and_then(|part| part.content.clone());
            match part {
                Some(Content::Text(text)) => text,
                _ => String::new(),
            }
        };
        statuses
            .map(|status| (status.state(), text(&status)))
            .collect()
    };
    // A repeat may be in doubt again, and so may another call meanwhile.
    for (events, effect) in [
        (vec![in_doubt("e1", 1)], "e1"),
        (vec![decided("e1"), in_doubt("e1", 2)], "e1"),
        (vec![in_doubt("e2", 1), decided("e1")], "e2"),
    ] {
        events.into_iter().for_each(|kind| log.own(kind));
        let news = said(&log);
        let [(TaskState::InputRequired, text)] = &news[..] else {
            panic!("{effect}: {news:?}");
        };
        for part in [
            "whether charge took effect: the connection broke.",
            &format!("decides about the effect `{effect}`"),
            "`tavern calls resolve`",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
    log.own(decided("e2"));
    assert_eq!(said(&log), [(TaskState::Working, String::new())]);
}

#[test]
fn a_history_drops_its_oldest_messages() {
    let mut log = Log::new();
    for number in 0..60 {
        log.own(Kind::SteeringAccepted(SteeringAccepted {
            message: "x".repeat(40_000),
            request_id: format!("m{number}"),
            ..SteeringAccepted::default()
        }));
    }
    let history = log.progress.last_messages(usize::MAX);
    assert!(
        history.len() > 20 && history.len() < 30,
        "{}",
        history.len()
    );
    assert_eq!(history.last().map(|said| &*said.message_id), Some("m59"));
    assert_eq!(log.progress.last_messages(2).len(), 2);
    assert!(log.progress.has("m0"));
}

#[tokio::test]
async fn a_stream_without_news_repeats_the_state_and_continues() {
    let mut log = Log::new();
    log.own(Kind::RunQueued(RunQueued {}));
    let mut shown = ShownToClient::of(&log.progress);
    let mut followed = Followed {
        run: log.run,
        progress: log.progress,
        records: stream::pending().boxed(),
    };
    let (news, is_done) = shown.next(&mut followed, Instant::now()).await.unwrap();
    let [Payload::StatusUpdate(update)] = &news[..] else {
        panic!("{news:?}");
    };
    let status = update.status.clone().unwrap_or_default();
    assert_eq!((status.state(), is_done), (TaskState::Submitted, false));
}

/// Assembles the answer as a client does.
fn take(changes: Vec<Payload>, answer: &mut String) {
    for change in changes {
        if let Payload::ArtifactUpdate(update) = change {
            if !update.append {
                answer.clear();
            }
            for part in update.artifact.unwrap_or_default().parts {
                if let Some(Content::Text(text)) = part.content {
                    answer.push_str(&text);
                }
            }
        }
    }
}

#[test]
fn g902_the_pieces_are_the_answer_whatever_came_before_it() {
    let asked = || Kind::ModelRequested(ModelRequested::default());
    for (rounds, result) in [
        (&[&["It is ", "late."][..]][..], "It is late."),
        (
            &[&["Let me ", "look."], &["It is ", "late."]],
            "It is late.",
        ),
        (&[&["Let me look."], &[]], "It is late."),
        (&[&["It is "]], "It is late."),
        (&[&["It is late, and more"]], "It is late."),
        (&[&["Let me look."], &[]], ""),
    ] {
        let mut log = Log::new();
        let (mut shown, mut answer) = (ShownToClient::of(&log.progress), String::new());
        for round in rounds {
            log.own(asked());
            take(shown.changes(&log.run, &log.progress), &mut answer);
            for piece in *round {
                log.write(piece);
                take(shown.changes(&log.run, &log.progress), &mut answer);
            }
        }
        log.own(finished(RunState::Succeeded, result));
        take(shown.changes(&log.run, &log.progress), &mut answer);
        assert_eq!(answer, result, "{rounds:?}");
        assert_eq!(task::answer(&log.progress), result);
    }
}

#[test]
fn a_refusal_names_every_field_as_it_stands_in_the_message() {
    let refused = Failure::invalid_fields()
        .violation("user_message", "is empty")
        .violation("conversation_id", "is too long")
        .violation("request_id", "is used");
    let fields: Vec<String> = violations(&of_message(refused))
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(
        fields,
        ["message.parts", "message.context_id", "request_id"]
    );
    let other = of_message(Status::unavailable("later"));
    assert_eq!(other.code(), Code::Unavailable);
}
