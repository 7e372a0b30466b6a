use call_catalogue::Tool;
use call_text::{FinishReason, parse_finished};
use serde_json::json;

use super::*;

fn catalogue() -> Catalogue {
    let player = json!({"type": "object", "properties": {"player_id": {"type": "string"}}, "required": ["player_id"]});
    let write = json!({"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}, "required": ["path"]});
    Catalogue::new(
        vec![
            Tool::new("GetPlayerInfo", "Describes a player.", player),
            Tool::new("Write", "Writes a file.", write),
        ],
        Vec::new(),
    )
    .unwrap()
}

struct Case<'a> {
    text: &'a str,
    per_answer: u32,
    left: u32,
    last: Option<Budget>,
    untrusted: &'a [&'a str],
    native: &'a [NativeCall],
}

impl<'a> Case<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            per_answer: 16,
            left: 64,
            last: None,
            untrusted: &[],
            native: &[],
        }
    }

    fn read(&self) -> Reading {
        let catalogue = catalogue();
        let policy = Policy::default();
        let parsed = parse_finished(self.text, &catalogue, &policy, FinishReason::Stop);
        read(parsed, self.native, context(&catalogue, &policy, self))
    }
}

fn context<'a>(catalogue: &'a Catalogue, policy: &'a Policy, case: &Case<'a>) -> Context<'a> {
    Context {
        catalogue,
        policy,
        dialect: Dialect::Action,
        per_answer: case.per_answer,
        left: case.left,
        last: case.last,
        untrusted: case.untrusted,
    }
}

const GOOD: &str = "<ACTION><GetPlayerInfo><player_id>p1</player_id></GetPlayerInfo></ACTION>";
const THREE: &str = "<ACTION><GetPlayerInfo><player_id>p1</player_id></GetPlayerInfo>\
    <GetPlayerInfo><player_id>p2</player_id></GetPlayerInfo>\
    <GetPlayerInfo><player_id>p3</player_id></GetPlayerInfo></ACTION>";

fn codes(reading: &Reading) -> Vec<&str> {
    reading
        .calls
        .iter()
        .map(|call| {
            call.refusal
                .as_ref()
                .map_or("runs", |refusal| refusal.code.as_str())
        })
        .collect()
}

#[test]
fn plain_text_comes_to_nothing() {
    let reading = Case::of("The weather is sunny.").read();
    assert!(
        reading.calls.is_empty() && reading.observation.is_none() && reading.failure().is_none()
    );
}

#[test]
fn a_good_call_runs_with_its_arguments() {
    let reading = Case::of(GOOD).read();
    assert_eq!(codes(&reading), ["runs"]);
    assert_eq!(
        reading.calls[0].call.arguments_json,
        r#"{"player_id":"p1"}"#
    );
}

#[test]
fn seed_002_section_5_5_the_wrong_parameter_is_observed_word_for_word() {
    let reading = Case::of(
        "I'll try to get the player's name.\n<ACTION>\n    <GetPlayerInfo>\n        \
         <playerId>player123</playerId> <!-- the parameter is player_id -->\n    </GetPlayerInfo>\n</ACTION>",
    )
    .read();
    let refusal = reading.calls[0].refusal.as_ref().unwrap();
    assert_eq!(
        refusal.observation.as_deref().unwrap(),
        "Observation: Error - Invalid parameters for GetPlayerInfo: Unknown parameter 'playerId', did you mean 'player_id'?"
    );
    assert_eq!(
        (refusal.status, refusal.code.as_str()),
        (CallStatus::Failed, "unknown_parameter")
    );
}

#[test]
fn a_block_without_an_end_runs_nothing_and_is_reported() {
    let reading = Case::of("<ACTION><Write><path>a</path><text>half a te").read();
    assert!(reading.calls.is_empty(), "{:?}", reading.calls);
    assert!(reading.observation.is_some() && reading.failure().is_some());
}

#[test]
fn later_blocks_that_do_not_run_are_named_behind_the_results() {
    let later = "<ACTION><Write><path>a</path></Write></ACTION>";
    let reading = Case::of(&format!("{GOOD} Now I write: {later}")).read();
    assert_eq!(codes(&reading), ["runs"]);
    assert_eq!(
        reading.observation.as_deref(),
        Some("Observation: 1 call of later blocks (Write) was not run. It may be sent again now.")
    );
    assert_eq!(reading.failure(), None);
}

#[test]
fn a_value_beyond_its_schema_is_refused_before_it_leaves() {
    let range =
        json!({"type": "object", "properties": {"level": {"type": "integer", "maximum": 9}}});
    let tool = Tool::new("Raise", "Raises a level.", range).read_only();
    let catalogue = Catalogue::new(vec![tool], Vec::new()).unwrap();
    let policy = Policy::default();
    for (level, runs) in [("9", "runs"), ("10", "out_of_range")] {
        let text = format!("<ACTION><Raise><level>{level}</level></Raise></ACTION>");
        let parsed = parse_finished(&text, &catalogue, &policy, FinishReason::Stop);
        let reading = read(parsed, &[], context(&catalogue, &policy, &Case::of(&text)));
        assert_eq!(codes(&reading), [runs]);
    }
}

#[test]
fn calls_beyond_a_budget_are_refused_and_reported() {
    let per_answer = Case {
        per_answer: 2,
        ..Case::of(THREE)
    }
    .read();
    assert_eq!(codes(&per_answer), ["runs", "runs", "calls_per_response"]);
    let left = Case {
        left: 1,
        ..Case::of(THREE)
    }
    .read();
    assert_eq!(codes(&left), ["runs", "calls", "calls"]);
    assert!(
        left.calls[2]
            .refusal
            .as_ref()
            .unwrap()
            .observation
            .is_some()
    );
}

#[test]
fn in_the_last_answer_no_call_runs_and_nothing_is_reported() {
    let reading = Case {
        last: Some(Budget::Calls(3)),
        ..Case::of(GOOD)
    }
    .read();
    assert_eq!(codes(&reading), ["no_calls_remain"]);
    assert_eq!(reading.calls[0].refusal.as_ref().unwrap().observation, None);
}

#[test]
fn a_repaired_call_is_refused_with_the_mark_in_its_reason() {
    let open = GOOD.replace("</ACTION>", "");
    let reading = Case::of(&open).read();
    assert_eq!(codes(&reading), ["needs_confirmation"]);
    let refusal = reading.calls[0].refusal.as_ref().unwrap();
    assert_eq!(refusal.kind, RefusalKind::Policy);
    for text in [&refusal.message, refusal.observation.as_ref().unwrap()] {
        assert!(
            text.contains("(</ACTION> was missing and was supplied)"),
            "{text}"
        );
    }
}

#[test]
fn a_call_that_untrusted_text_held_is_refused_as_an_echo() {
    let shown = format!("Please read this: {GOOD} Thanks.");
    let reading = Case {
        untrusted: &[&shown],
        ..Case::of(GOOD)
    }
    .read();
    assert_eq!(codes(&reading), ["untrusted_echo"]);
    assert_eq!(
        reading.calls[0].refusal.as_ref().unwrap().kind,
        RefusalKind::Policy
    );
    let other = Case {
        untrusted: &["player p1"],
        ..Case::of(GOOD)
    }
    .read();
    assert_eq!(codes(&other), ["runs"]);
}

#[test]
fn structured_calls_run_where_the_text_has_none() {
    let native = [NativeCall {
        id: "call_1".to_owned(),
        name: "GetPlayerInfo".to_owned(),
        arguments_json: r#"{"player_id":"p9"}"#.to_owned(),
    }];
    let reading = Case {
        native: &native,
        ..Case::of("Let me look.")
    }
    .read();
    assert_eq!(codes(&reading), ["runs"]);
    assert!(reading.calls[0].call.native);
    let same = [NativeCall {
        arguments_json: r#"{"player_id":"p1"}"#.to_owned(),
        ..native[0].clone()
    }];
    assert_eq!(
        codes(
            &Case {
                native: &same,
                ..Case::of(GOOD)
            }
            .read()
        ),
        ["runs"]
    );
}

#[test]
fn an_explanation_shows_the_schema_and_an_example() {
    let catalogue = catalogue();
    let policy = Policy::default();
    let case = Case::of("<ACTION><GetPlayerInfo><who>p1</who></GetPlayerInfo></ACTION>");
    let mut reading = case.read();
    let before = reading.failure();
    reading.explain(context(&catalogue, &policy, &case));
    assert_eq!(reading.failure(), before);
    let observed = reading.calls[0]
        .refusal
        .as_ref()
        .unwrap()
        .observation
        .as_deref()
        .unwrap();
    assert!(
        observed.contains(r#""required":["player_id"]"#) && observed.contains("<GetPlayerInfo>"),
        "{observed}"
    );
}

#[test]
fn arguments_beyond_the_limit_are_refused() {
    let native = [NativeCall {
        id: String::new(),
        name: "Write".to_owned(),
        arguments_json: json!({"path": "a", "text": "x".repeat(MAX_ARGUMENTS_BYTES)}).to_string(),
    }];
    let reading = Case {
        native: &native,
        ..Case::of("")
    }
    .read();
    let runs = reading
        .calls
        .iter()
        .filter(|call| call.refusal.is_none())
        .count();
    assert_eq!(runs, 0);
}
