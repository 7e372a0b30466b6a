use prost::Name;

use super::*;
use crate::tavern::agent::v1::{AppendMessagesRequest, Budgets, GenerateRequest, StartTurnRequest};
use crate::tavern::common::v1::{ChatMessage, ChatRole, RunOptions};
use crate::tavern::registry::v1::{CallToolRequest, ListToolsRequest, ResolveCallRequest};

fn refused<M: prost::Message + Name>(request: &M) -> Vec<String> {
    let rules = of_request(&M::full_name()).expect("the request has rules");
    match check(rules, &request.encode_to_vec()) {
        Ok(()) => Vec::new(),
        Err(status) => {
            let violations = status.get_details_bad_request().unwrap().field_violations;
            violations.into_iter().map(|v| v.field).collect()
        }
    }
}

fn turn() -> StartTurnRequest {
    use crate::tavern::agent::v1::start_turn_request::Input;
    StartTurnRequest {
        profile_id: "guide".to_owned(),
        input: Some(Input::UserMessage("Hello.".to_owned())),
        ..StartTurnRequest::default()
    }
}

#[test]
fn every_field_that_breaks_a_rule_is_named_at_every_depth() {
    let message = |role: i32| ChatMessage {
        role,
        ..ChatMessage::default()
    };
    let user = i32::from(ChatRole::User);
    let request = StartTurnRequest {
        request_id: "x".repeat(257),
        options: Some(RunOptions {
            durability: 9,
            ..RunOptions::default()
        }),
        budgets: Some(Budgets {
            calls: 1_001,
            ..Budgets::default()
        }),
        history: vec![message(user), message(0), message(9)],
        ..StartTurnRequest::default()
    };
    assert_eq!(
        refused(&request),
        [
            "request_id",
            "options.durability",
            "budgets.calls",
            "history[1].role",
            "history[2].role",
            "profile_id",
            "input",
        ]
    );
    assert_eq!(refused(&turn()), [""; 0]);
}

#[test]
fn a_limit_itself_is_accepted_and_the_next_value_is_not() {
    for (page_size, wrong) in [(-1, true), (i32::MIN, true), (0, false), (9, false)] {
        let request = ListToolsRequest {
            page_size,
            ..ListToolsRequest::default()
        };
        assert_eq!(!refused(&request).is_empty(), wrong, "{page_size}");
    }
    for (attempt, wrong) in [(0, false), (32, false), (33, true), (u32::MAX, true)] {
        let request = CallToolRequest {
            tool_id: "a".to_owned(),
            attempt,
            ..CallToolRequest::default()
        };
        assert_eq!(!refused(&request).is_empty(), wrong, "{attempt}");
    }
    for (count, wrong) in [(0, true), (1, false), (500, false), (501, true)] {
        let message = ChatMessage {
            role: ChatRole::User.into(),
            ..ChatMessage::default()
        };
        let request = AppendMessagesRequest {
            conversation_id: "a".to_owned(),
            messages: vec![message; count],
            ..AppendMessagesRequest::default()
        };
        assert_eq!(!refused(&request).is_empty(), wrong, "{count}");
    }
    for (temperature, wrong) in [(0.0, false), (2.0, false), (2.1, true), (f64::NAN, true)] {
        let request = GenerateRequest {
            temperature: Some(temperature),
            messages: vec![ChatMessage {
                role: ChatRole::User.into(),
                ..ChatMessage::default()
            }],
            model: "a".to_owned(),
            ..GenerateRequest::default()
        };
        assert_eq!(!refused(&request).is_empty(), wrong, "{temperature}");
    }
}

#[test]
fn a_bound_that_is_not_there_is_not_named() {
    for (value, least, most, said) in [
        (201, i128::MIN, 200, "is 201; give 200 or less"),
        (-1, 0, i128::MAX, "is -1; give 0 or more"),
        (9, 1, 8, "is 9; give 1 to 8"),
    ] {
        assert_eq!(in_range(value, least, most).as_deref(), Some(said));
    }
    let request = StartTurnRequest {
        budgets: Some(Budgets {
            calls: 1_001,
            ..Budgets::default()
        }),
        ..turn()
    };
    let rules = of_request(&StartTurnRequest::full_name()).expect("the request has rules");
    let status = check(rules, &request.encode_to_vec()).unwrap_err();
    let details = status.get_details_bad_request().unwrap();
    let said = &details.field_violations[0].description;
    assert!(said.contains("is 1001; give 1000 or less"), "{said}");
}

#[test]
fn a_duration_out_of_range_is_refused() {
    let second = 1_000_000_000;
    for (seconds, nanos, wrong) in [
        (0, 0, false),
        (31_622_400, 0, false),
        (31_622_400, 1, true),
        (0, -1, true),
        (i64::MAX, second, true),
    ] {
        let request = StartTurnRequest {
            options: Some(RunOptions {
                timeout: Some(prost_types::Duration { seconds, nanos }),
                ..RunOptions::default()
            }),
            ..turn()
        };
        assert_eq!(!refused(&request).is_empty(), wrong, "{seconds} s {nanos}");
    }
}

#[test]
fn an_enum_that_must_be_given_is_missing_at_zero() {
    let request = ResolveCallRequest {
        effect_id: "a".to_owned(),
        ..ResolveCallRequest::default()
    };
    assert_eq!(refused(&request), ["decision"]);
    let request = ResolveCallRequest {
        decision: 77,
        ..request
    };
    assert_eq!(refused(&request), ["decision"]);
}

#[test]
fn malformed_bytes_are_left_to_the_decoder() {
    let rules = of_request(&StartTurnRequest::full_name()).unwrap();
    for bytes in [&[0xff_u8][..], &[0x0a, 0x7f, 0x00], &[0x12]] {
        assert!(StartTurnRequest::decode(bytes).is_err());
        assert!(check(rules, bytes).is_ok());
    }
}

#[test]
fn the_number_of_reported_violations_is_bounded() {
    let request = StartTurnRequest {
        history: vec![ChatMessage::default(); 400],
        ..turn()
    };
    assert_eq!(refused(&request).len(), MAX_VIOLATIONS);
}
