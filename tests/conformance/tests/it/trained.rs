//! The formats to which models fall back (F1 to F9): read as they are published, and never the answer where they are
//! broken.

mod slips;
mod unsupported;

use std::path::Path;

use call_catalogue::{Catalogue, Rule, Tool};
use call_prompt::echo::Echo;
use call_prompt::observation::{feedback, neutralise};
use call_text::{FinishReason, Parsed, Parser, Policy, SegmentKind, parse_finished};
use conformance::families::{FAMILIES, Family};
use conformance::pieces::Meant;
use serde_json::{Value, json};

use slips::{SLIPS, Slip};
use unsupported::UNSUPPORTED;

fn tools() -> Catalogue {
    let tool = |id: &str, read_only: bool, properties: Value, required: Value| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        Tool {
            read_only,
            ..Tool::new(id, "", parameters)
        }
    };
    let place = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let note = json!({"path": {"type": "string"}, "text": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}});
    let tools = vec![
        tool("get_weather", true, place, json!(["city"])),
        tool("write_note", false, note, json!(["path", "text"])),
        tool("get_time", true, json!({}), json!([])),
    ];
    Catalogue::new(tools, Vec::new()).expect("the ids of the tools are valid")
}

/// The calls of the cases.
fn calls() -> [Vec<Meant>; 3] {
    let call = |(tool, arguments): (&str, Value)| {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        (tool.to_owned(), arguments)
    };
    let note = json!({"path": "a/b.txt", "text": "line one\nline {two} \"quoted\" <b>", "tags": ["x", "y"]});
    [
        vec![("get_weather", json!({"city": "Paris", "days": 3}))],
        vec![("write_note", note)],
        vec![
            ("get_weather", json!({"city": "Köln"})),
            ("get_time", json!({})),
        ],
    ]
    .map(|calls| calls.into_iter().map(call).collect())
}

fn read(text: &str, finish: FinishReason) -> Parsed {
    parse_finished(text, &tools(), &Policy::default(), finish)
}

fn canonical((tool, arguments): &Meant) -> String {
    call_catalogue::canonical::call(tool, arguments)
}

fn ready(parsed: &Parsed) -> Vec<String> {
    parsed.ready_calls().map(|call| call.canonical()).collect()
}

fn published(text: &str, parsed: &Parsed) -> String {
    let shown = parsed
        .segments
        .iter()
        .filter(|segment| segment.kind == SegmentKind::Response);
    shown.map(|segment| segment.span.of(text)).collect()
}

#[test]
fn calls_run_as_they_are_published() {
    for family in FAMILIES {
        for meant in calls() {
            let text = family.text(&meant);
            for finish in [
                FinishReason::Stop,
                FinishReason::Unknown,
                FinishReason::ToolCalls,
            ] {
                let parsed = read(&text, finish);
                let expected: Vec<String> = meant.iter().map(canonical).collect();
                assert_eq!(
                    ready(&parsed),
                    expected,
                    "{}: {text}\n{parsed:#?}",
                    family.name
                );
                assert_eq!(published(&text, &parsed), "", "{}: {text}", family.name);
                let rule = family.rule;
                let named = parsed
                    .diagnostics
                    .iter()
                    .any(|remark| remark.rule == rule && remark.code == "trained_format");
                assert!(
                    named || family.name == "hermes",
                    "{} is not named: {:#?}",
                    family.name,
                    parsed.diagnostics
                );
            }
        }
    }
}

/// Checks that only intended calls run, that no mark is published, and that the model gets a remark
/// if a call does not run.
fn check(
    family: &Family,
    slip: &str,
    text: &str,
    meant: &[Meant],
    finish: FinishReason,
) -> Result<(), String> {
    let Family { name, marks, .. } = family;
    let parsed = read(text, finish);
    let expected: Vec<String> = meant.iter().map(canonical).collect();
    let ready = ready(&parsed);
    let mut wrong = Vec::new();
    if let Some(foreign) = ready.iter().find(|call| !expected.contains(call)) {
        wrong.push(format!("runs what was not meant: {foreign}"));
    }
    let shown = published(text, &parsed);
    if let Some(mark) = marks.iter().find(|mark| shown.contains(**mark)) {
        wrong.push(format!("{mark} reaches the user in {shown:?}"));
    }
    if ready.len() < expected.len() && feedback(&parsed, &tools()).is_none() {
        wrong.push("nothing is said to the model".to_owned());
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{name}, {slip}: {}\n{text}\n", wrong.join("; ")))
}

#[test]
fn a_slip_never_runs_what_was_not_meant_nor_reaches_the_user_nor_is_silent() {
    let mut failures = Vec::new();
    let mut texts = 0;
    for family in FAMILIES {
        for meant in calls() {
            for Slip { name, make } in SLIPS {
                for slip in make(family, &meant) {
                    texts += 1;
                    let meant = slip.meant.as_deref().unwrap_or(&meant);
                    let checked = check(family, name, &slip.text, meant, slip.finish);
                    failures.extend(checked.err());
                }
            }
        }
    }
    assert!(texts > 2_000, "{texts} texts");
    assert!(
        failures.is_empty(),
        "{} of {texts}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn a_format_that_is_not_read_is_cut_out_and_named_to_the_model() {
    for (name, text) in UNSUPPORTED {
        for text in [(*text).to_owned(), format!("I will look.\n{text}")] {
            let parsed = read(&text, FinishReason::Stop);
            assert!(parsed.ready_calls().next().is_none(), "{name}: {text}");
            let shown = published(&text, &parsed);
            let marks = ["get_weather", "Action", "functools", "tool_code", "<", "["];
            assert!(
                !marks.iter().any(|mark| shown.contains(mark)),
                "{name} shows {shown:?}"
            );
            let said = feedback(&parsed, &tools()).unwrap_or_default();
            assert!(said.contains("is not read here"), "{name}: {said}");
        }
    }
}

#[test]
fn a_stream_cut_at_every_byte_reads_as_the_whole() {
    let unsupported = UNSUPPORTED
        .iter()
        .map(|(name, text)| (*name, (*text).to_owned()));
    let read = FAMILIES
        .iter()
        .flat_map(|family| calls().map(|meant| (family.name, family.text(&meant))));
    for (name, text) in read.chain(unsupported).collect::<Vec<_>>() {
        for text in [
            text.clone(),
            format!("Let me see.\n{text}\n"),
            format!("<think>hm</think>{text}"),
        ] {
            let whole = self::read(&text, FinishReason::Stop);
            for at in 0..=text.len() {
                let mut parser = Parser::new(tools(), Policy::default());
                parser.push_bytes(&text.as_bytes()[..at]);
                parser.push_bytes(&text.as_bytes()[at..]);
                assert_eq!(
                    parser.finish(FinishReason::Stop).1,
                    whole,
                    "{name}, cut at {at}: {text}"
                );
            }
            let mut parser = Parser::new(tools(), Policy::default());
            for byte in text.as_bytes() {
                parser.push_bytes(std::slice::from_ref(byte));
            }
            assert_eq!(
                parser.finish(FinishReason::Stop).1,
                whole,
                "{name}, byte by byte: {text}"
            );
        }
    }
}

#[test]
fn a_format_that_the_policy_leaves_out_is_refused_by_name() {
    for family in FAMILIES.iter().filter(|family| family.name != "hermes") {
        let meant = &calls()[0];
        let text = family.text(meant);
        let policy = Policy {
            formats: Some(Vec::new()),
            ..Policy::default()
        };
        let parsed = parse_finished(&text, &tools(), &policy, FinishReason::Stop);
        assert!(parsed.ready_calls().next().is_none(), "{}", family.name);
        let said = feedback(&parsed, &tools()).unwrap_or_default();
        assert!(said.contains("is not read here"), "{}: {said}", family.name);
        assert_eq!(published(&text, &parsed), "", "{}", family.name);
    }
}

#[test]
fn a_block_in_any_format_needs_the_nonce_of_the_turn() {
    let policy = Policy {
        nonce: Some("k7m2q9xd".to_owned()),
        ..Policy::default()
    };
    let written = FAMILIES
        .iter()
        .map(|family| (family.name, family.text(&calls()[0])));
    let unsupported = UNSUPPORTED
        .iter()
        .map(|(name, text)| (*name, (*text).to_owned()));
    for (name, text) in written.chain(unsupported) {
        for text in [
            text.clone(),
            format!("Look.\n{text}\nDone."),
            format!("> {text}"),
        ] {
            let whole = parse_finished(&text, &tools(), &policy, FinishReason::Stop);
            assert!(whole.calls.is_empty(), "{name}: {text}");
            let mut parser = Parser::new(tools(), policy.clone());
            for byte in text.as_bytes() {
                parser.push_bytes(std::slice::from_ref(byte));
            }
            assert_eq!(parser.finish(FinishReason::Stop).1, whole, "{name}: {text}");
        }
    }
}

#[test]
fn a_call_that_repeats_untrusted_text_in_any_format_is_an_echo() {
    let mut cases = 0;
    for shown in FAMILIES {
        for written in FAMILIES {
            for meant in calls() {
                let untrusted = shown.text(&meant);
                let parsed = read(&written.text(&meant), FinishReason::Stop);
                assert!(parsed.ready_calls().next().is_some(), "{}", written.name);
                for text in [
                    untrusted.clone(),
                    format!("3 results:\n- {untrusted}\n- none"),
                    json!({ "stdout": untrusted }).to_string(),
                ] {
                    let echo = Echo::new([text.as_str()]);
                    cases += parsed.calls.len();
                    let all = parsed.calls.iter().all(|call| echo.contains(call));
                    assert!(all, "{} after {}: {text}", written.name, shown.name);
                }
            }
        }
    }
    assert!(cases >= 500, "{cases} cases");
}

#[test]
fn a_result_that_holds_a_call_shows_a_model_no_mark_of_it() {
    for family in FAMILIES {
        let shown = neutralise(&family.text(&calls()[0])).into_owned();
        // JSON is data as well, and stays as it is: alone it would be a call, and the echo rule refuses it.
        let keeps_json = family.rule == Rule::F2 || family.name == "hermes";
        if !keeps_json {
            let parsed = read(&shown, FinishReason::Stop);
            assert!(parsed.blocks.is_empty(), "{}: {shown}", family.name);
        }
        let around = read(&format!("The tool says:\n{shown}"), FinishReason::Stop);
        assert!(
            around.ready_calls().next().is_none(),
            "{}: {shown}",
            family.name
        );
    }
}

#[test]
fn documents_and_data_are_no_calls_and_bring_no_remark() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    pages.extend(
        docs.map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    let mut texts: Vec<String> = pages
        .iter()
        .map(|page| std::fs::read_to_string(page).unwrap())
        .collect();
    assert!(texts.len() >= 5, "{} pages", texts.len());
    let sections: Vec<String> = texts
        .iter()
        .flat_map(|page| page.split("\n## ").map(str::to_owned))
        .collect();
    texts.extend(sections);
    texts.extend(NO_CALLS.iter().map(|text| (*text).to_owned()));
    for text in texts {
        let parsed = read(&text, FinishReason::Stop);
        assert!(parsed.calls.is_empty(), "{text}\n{:#?}", parsed.calls);
        assert_eq!(feedback(&parsed, &tools()), None, "{text}");
    }
}

/// Answers that look like calls and are none.
const NO_CALLS: &[&str] = &[
    "{\"name\": \"Berlin\", \"parameters\": {\"inhabitants\": 3700000}}",
    "{\"name\": \"get_weather\", \"description\": \"Reads the weather.\", \"parameters\": {\"type\": \"object\"}}",
    "[{\"name\": \"Ada\", \"age\": 36}, {\"name\": \"Alan\", \"age\": 41}]",
    "{\"type\": \"FeatureCollection\", \"features\": []}",
    "```json\n{\"tool\": \"hammer\", \"args\": [1, 2]}\n```",
    "[1, 2, 3]",
    "{}",
    "Call it like this:\n```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n```\nThat is all.",
    "GLM writes `<tool_call>get_weather` and `<arg_key>` behind it.",
    "The token <|tool_calls_section_begin|> opens a section.",
    "Mistral begins with [TOOL_CALLS] and a list.",
    "Use [get_weather] or {city}.",
    "Action: we go now.\nAction Input: none.",
    "In harmony, <|channel|> names the channel.",
    "The <parameter> element of <invoke> has a name.",
    "```python\nprint(get_weather(city=\"Paris\"))\n```",
    "* [get_weather](#get_weather): reads the weather\n* [get_time](#get_time)",
];
