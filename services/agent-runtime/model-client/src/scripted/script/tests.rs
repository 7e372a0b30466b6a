use super::*;

fn script(text: &str) -> Script {
    serde_json::from_str(text).unwrap()
}

fn messages(said: &[(Role, &str)]) -> Vec<ChatMessage> {
    said.iter()
        .map(|(role, text)| ChatMessage::new(*role, *text))
        .collect()
}

#[test]
fn a_request_is_answered_by_its_number_of_answers() {
    let script = script(
        r#"{"turns": [{"answer": {"text": "one"}}, {"answer": {"text": ["two", "lines"]}}]}"#,
    );
    let first = script.play("s", &messages(&[(Role::User, "a")])).unwrap();
    assert_eq!(first.answer.text.text(), "one");
    let asked = messages(&[
        (Role::User, "a"),
        (Role::Assistant, "one"),
        (Role::User, "b"),
    ]);
    assert_eq!(
        script.play("s", &asked).unwrap().answer.text.text(),
        "two\nlines"
    );
    assert_eq!(
        script.play("s", &asked).unwrap().answer.text.text(),
        "two\nlines"
    );
}

#[test]
fn a_script_that_is_exhausted_says_so() {
    let script = script(r#"{"turns": [{}]}"#);
    let asked = messages(&[(Role::User, "a"), (Role::Assistant, "b"), (Role::User, "c")]);
    assert_eq!(
        script.play("weather.script.json", &asked).unwrap_err(),
        "the script `weather.script.json` is exhausted: it has 1 turns and was asked for turn 2"
    );
}

#[test]
fn everything_that_a_request_lacks_is_named_with_the_turn() {
    let script = script(
        r#"{"turns": [{"name": "greets", "expect": {
            "roles": ["system", "user"],
            "system_contains": ["<Tool>"], "system_lacks": ["secret"],
            "last_is": "hello", "last_contains": ["ell"], "last_lacks": ["bye"],
            "contains": ["nowhere"], "lacks": ["secret"]}}]}"#,
    );
    let problem = script
        .play(
            "s",
            &messages(&[
                (Role::System, "a secret"),
                (Role::System, "b"),
                (Role::User, "bye"),
            ]),
        )
        .unwrap_err();
    for part in [
        "turn 1 of the script `s` (greets) was not asked as it must be",
        "the roles are [system, system, user] instead of [system, user]",
        "\"<Tool>\" is not in the system message",
        "\"secret\" is in the system message, where it must not be",
        "the last message is \"bye\" instead of \"hello\"",
        "\"ell\" is not in the last message",
        "\"bye\" is in the last message",
        "\"nowhere\" is not in any message",
        "\"secret\" is in any message",
    ] {
        assert!(problem.contains(part), "{part} is not in: {problem}");
    }
}

#[test]
fn an_answer_of_the_caller_is_counted_and_never_given() {
    let script = script(r#"{"turns": [{"from_caller": true}, {"answer": {"text": "mine"}}]}"#);
    assert!(
        script
            .play("s", &messages(&[(Role::User, "a")]))
            .unwrap_err()
            .contains("the caller's")
    );
    let asked = messages(&[
        (Role::Assistant, "given"),
        (Role::User, "Observation: fine"),
    ]);
    assert_eq!(script.play("s", &asked).unwrap().answer.text.text(), "mine");
}

#[test]
fn a_key_that_no_script_has_is_refused() {
    for text in [
        r#"{"turns": [], "turn": 1}"#,
        r#"{"turns": [{"expects": {}}]}"#,
        r#"{"turns": [{"expect": {"last": "x"}}]}"#,
        r#"{"turns": [{"fault": {"kind": "explode"}}]}"#,
    ] {
        assert!(serde_json::from_str::<Script>(text).is_err(), "{text}");
    }
}

#[test]
fn a_message_that_no_turn_expects_gets_the_answer_for_such() {
    let script: Script = serde_json::from_value(serde_json::json!({
        "turns": [{"expect": {"last_is": "known"}, "answer": {"text": "yes"}}],
        "otherwise": {"answer": {"text": "a hint"}}
    }))
    .unwrap();
    let answer = |role, text: &str| {
        let messages = [ChatMessage::new(role, text)];
        let turn = script.play("s", &messages);
        turn.map(|turn| turn.answer.text.text()).ok()
    };
    assert_eq!(answer(Role::User, "known").as_deref(), Some("yes"));
    assert_eq!(answer(Role::User, "other").as_deref(), Some("a hint"));
    assert_eq!(answer(Role::User, "Observation: Error - x"), None);
}
