use call_catalogue::Dialect;
use call_prompt::prompt::Language;

use super::*;
use crate::plan::ToolOffer;

/// A profile with every key of ComfyTavern's format and an unknown key.
const FULL: &str = r#"{
  "id": "npc_elara",
  "name": "Elara",
  "description": "Keeps the library.",
  "version": "1.2.0",
  "schema_version": "1.0",
  "core_deliberation_workflow_id": "workflows/deliberate.json",
  "initial_private_state_values": {"mood": "calm", "big": 12345678901234567890123},
  "knowledge_base_references": [{"source_id": "lore", "alias": "lore", "access_permissions": ["read"]}],
  "subscribed_event_types": ["player.greets", {"type": "clock", "filter_condition": "hour > 8"}],
  "skill_workflow_ids_inventory": ["workflows/skills/greet.json", "workflow:summarize_text"],
  "tool_ids_inventory": ["kb:Query", "workflow:summarize_text", "FileOperator.WriteFile"],
  "initial_goals_reference": [{"caiu_id": "g", "kb_alias_or_id": "lore", "activation_priority": 0.3}],
  "unknown_key": {"kept": true},
  "custom_metadata": {"author": "someone", "tavern": {"model": "house", "dialect": "tam_v1", "language": "zh",
    "system_prompt": "You are Elara.", "temperature": 0.5, "max_output_tokens": 900}}
}"#;

fn problems(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn a_comfytavern_profile_is_read_unmodified() {
    let profile = read(FULL).unwrap();
    assert_eq!(profile.id.as_str(), "npc_elara");
    assert_eq!(
        profile.tool_ids,
        [
            "kb:Query",
            "workflow:summarize_text",
            "FileOperator.WriteFile"
        ]
    );
    assert_eq!(
        profile.inventory(),
        [
            "kb:Query",
            "workflow:summarize_text",
            "FileOperator.WriteFile",
            "workflow:greet"
        ]
    );
    assert_eq!(profile.deliberation.as_deref(), Some("deliberate"));
    assert_eq!(profile.system_prompt(), "You are Elara.");
    assert_eq!(profile.tavern.dialect, Some(Dialect::TamV1));
    assert_eq!(profile.tavern.language, Some(Language::Zh));
    assert_eq!(profile.tavern.temperature, Some(0.5));
}

#[test]
fn what_has_no_effect_is_found_and_what_is_empty_is_not() {
    let profile = read(FULL).unwrap();
    let found: Vec<(&str, &str)> = profile
        .diagnostics
        .iter()
        .map(|finding| (finding.path.as_str(), finding.code))
        .collect();
    assert_eq!(
        found,
        [
            ("/unknown_key", "unknown_key"),
            (
                "/subscribed_event_types/1/filter_condition",
                "not_supported"
            ),
        ]
    );
    let text = r#"{"id": "a", "core_deliberation_workflow_id": "", "knowledge_base_references": [],
        "schema_version": "2.0", "tool_ids_inventry": []}"#;
    let found: Vec<String> = read(text)
        .unwrap()
        .diagnostics
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "/tool_ids_inventry: nothing reads the key `tool_ids_inventry`; did you mean `tool_ids_inventory`?",
            "/schema_version: only version 1 is known; the file is read as such",
        ]
    );
}

#[test]
fn unknown_keys_and_every_digit_are_kept() {
    let profile = read(FULL).unwrap();
    assert_eq!(profile.text, FULL);
}

#[test]
fn without_a_system_prompt_name_and_description_make_one() {
    let profile = read(r#"{"id": "a", "name": "Ada", "description": "Answers."}"#).unwrap();
    assert_eq!(profile.system_prompt(), "You are Ada. Answers.");
    let bare = read(r#"{"id": "a"}"#).unwrap();
    assert_eq!(bare.system_prompt(), "You are a.");
    assert!(bare.inventory().is_empty());
}

#[test]
fn everything_that_is_wrong_is_named_with_its_place() {
    let text = problems(
        r#"{"name": 5, "tool_ids_inventory": ["ok", 7, ""], "skill_workflow_ids_inventory": "x",
            "custom_metadata": {"tavern": {"model": 1, "dialect": "latin", "temperature": 9, "colour": "red"}}}"#,
    );
    for place in [
        "/id: it is missing",
        "/name: it is not a text",
        "/tool_ids_inventory/1: it is not a text",
        "/tool_ids_inventory/2: tool id is empty",
        "/skill_workflow_ids_inventory: it is not a list",
        "/custom_metadata/tavern/model: it is not a text",
        "/custom_metadata/tavern/dialect: it is \"latin\"",
        "/custom_metadata/tavern/temperature: it is 9",
        "/custom_metadata/tavern/colour: no such setting",
    ] {
        assert!(text.contains(place), "{place} is not in: {text}");
    }
}

#[test]
fn what_is_no_profile_is_refused_with_the_place() {
    for (text, part) in [
        ("[]", "not a JSON object"),
        ("{\"id\": \"a\", \"id\": \"b\"}", "line 1"),
        ("{\"id\": \"a/b\"}", "/id"),
        ("{", "line 1"),
    ] {
        assert!(problems(text).contains(part), "{text}: {}", problems(text));
    }
}

#[test]
fn an_inventory_beyond_the_limit_is_refused() {
    let ids: Vec<String> = (0..=MAX_INVENTORY)
        .map(|index| format!("tool{index}"))
        .collect();
    let text = serde_json::json!({"id": "a", "tool_ids_inventory": ids}).to_string();
    assert!(problems(&text).contains("at most 500 are allowed"));
}

/// The profiles of a story, as their authors wrote them.
const ELARA: &str = include_str!("../../tests/fixtures/elara.agent_profile.json");
const GM: &str = include_str!("../../tests/fixtures/gm.agent_profile.json");

#[test]
fn g101_the_documents_of_a_story_are_read_as_they_are_written() {
    let elara = read(ELARA).unwrap();
    assert_eq!(elara.text, ELARA);
    assert_eq!(elara.deliberation.as_deref(), Some("npc_deliberation"));
    assert_eq!(
        elara.skill_tool_ids,
        ["workflow:greet_player", "workflow:offer_trade"]
    );
    assert_eq!(
        elara.tavern.fallbacks.as_deref(),
        Some(&["spare".to_owned()][..])
    );
    let budgets = elara.tavern.budgets;
    assert_eq!(
        (budgets.iterations, budgets.tokens, budgets.wall_seconds),
        (Some(6), Some(40_000), Some(120))
    );
    let gm = read(GM).unwrap();
    assert_eq!(gm.text, GM);
    assert_eq!(gm.deliberation, None);
    assert_eq!(gm.tavern.tools, Some(ToolOffer::Both));
    assert_eq!(gm.tavern.dialect, Some(Dialect::TamV2));
    assert!(gm.inventory().contains(&"agent:elara_herbalist".to_owned()));
}

#[test]
fn g108_each_field_that_has_no_effect_gets_one_remark() {
    let profile = r#"{"id": "a", "custom_metadata": {"tavern": {"nonce": true, "on_repair": "ask", "thinking_tokens": 9}}}"#;
    let profile = read(profile).unwrap();
    let mut paths: Vec<&str> = profile
        .diagnostics
        .iter()
        .map(|found| found.path.as_str())
        .collect();
    paths.sort_unstable();
    let mut once = paths.clone();
    once.dedup();
    assert_eq!(paths, once);
    assert_eq!(
        paths,
        [
            "/custom_metadata/tavern/on_repair",
            "/custom_metadata/tavern/thinking_tokens"
        ]
    );
    // The shared profile has no key without effect.
    assert!(read(GM).unwrap().diagnostics.is_empty());
}

#[test]
fn g801_the_rules_of_a_profile_are_kept_for_the_registry_and_checked() {
    let gm = read(GM).unwrap();
    let ids: Vec<_> = gm.tavern.approvals.iter().map(|rule| &rule["id"]).collect();
    assert_eq!(ids, ["gm_large_gifts", "gm_never_ends_the_story"]);
    let with = |rules: &str| {
        format!(r#"{{"id": "a", "custom_metadata": {{"tavern": {{"approvals": {rules}}}}}}}"#)
    };
    let spelled = with(r#"[{"id": "r", "tools": ["world:UpdateState"], "action": "deny"}]"#);
    let spelled = read(&spelled).unwrap();
    assert_eq!(
        spelled.tavern.approvals[0]["tools"][0],
        "RequestWorldStateUpdateTool"
    );
    let looser = read(&with(r#"[{"id": "r", "action": "allow"}]"#)).unwrap();
    let found: Vec<String> = looser.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "/custom_metadata/tavern/approvals/0: an agent cannot allow what the operator's rules ask for \
             or refuse"
        ]
    );
    let wrong = with(
        r#"[{"id": "", "action": "ask", "approvers": {"count": 0}},
            {"id": "b", "action": "deny", "condition": "nothing > 1"}]"#,
    );
    let found = problems(&wrong);
    for place in ["0/id", "0/approvers/count", "1/condition"] {
        let place = format!("/custom_metadata/tavern/approvals/{place}: ");
        assert!(found.contains(&place), "{place} is not in: {found}");
    }
    for (rules, part) in [
        (r#"{"id": "a"}"#, "approvals: it is not a list"),
        (
            r#"[{"id": "a", "action": "perhaps"}]"#,
            "approvals/0: unknown variant",
        ),
    ] {
        let found = problems(&with(rules));
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn g101_an_unknown_key_in_a_strict_section_is_refused_with_those_that_are_known() {
    let wrong = r#"{"id": "a", "custom_metadata": {"tavern": {"budgets": {"rounds": 3, "calls": 0, "tokens": -1}, "tone": "x"}}}"#;
    let found = problems(wrong);
    for part in [
        "/custom_metadata/tavern/tone: no such setting",
        "/custom_metadata/tavern/budgets/rounds: no such setting",
        "/custom_metadata/tavern/budgets/calls: it is 0; give a whole number from 1 to 1000",
        "/custom_metadata/tavern/budgets/tokens: it is -1",
    ] {
        assert!(found.contains(part), "{part} is not in: {found}");
    }
}
