use std::collections::BTreeSet;

use call_catalogue::{Class, Diagnostic, Severity, Tool};
use call_text::{FinishReason, Policy, parse_finished};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Pieces with a meaning in one of the dialects.
const PIECES: [&str; 34] = [
    "\n",
    " ",
    "<",
    ">",
    "&",
    "&lt;",
    "]",
    "]]>",
    "<![CDATA[",
    "</text>",
    "<text>",
    "</note>",
    "</ACTION>",
    "<ACTION>",
    "「",
    "」",
    "「始」",
    "「末」",
    "「末ESCAPE」",
    "»»»",
    "«««",
    ">>>",
    "<<<",
    "{始}",
    "{末}",
    "\ncount:",
    "\nnote:「始」",
    "\ncount:>>>",
    "\n# ",
    "\"",
    "\\",
    "null",
    "<|[END_TOOL]|>",
    "-1",
];

fn catalogue(tools: Value) -> Catalogue {
    let tools = tools.as_array().unwrap().iter().map(|tool| {
        let id = tool["id"].as_str().unwrap();
        Tool::new(id, "", tool["parameters"].clone())
    });
    Catalogue::new(tools.collect(), vec![]).unwrap()
}

fn catalogues() -> Vec<Catalogue> {
    let all = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "note": {"type": ["string", "null"]},
            "code": {"type": "string", "contentMediaType": "text/x-python"},
            "kept": {"type": "string", "x-preserve-whitespace": true},
            "mode": {"enum": ["fast", "a < b && c", "two\nlines", "«quoted»"]},
            "level": {"enum": [1, 2, 3]},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "force": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            "where": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number"}, "名": {"type": "string"}},
                "required": ["y"]
            },
            "rows": {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
            "command": {"type": "string"}
        },
        "required": ["text", "count"]
    });
    let few = json!({"type": "object", "properties": {"count": {"type": "integer"}, "note": {"type": "string"}}});
    let tree = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "$defs": {"node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name"]
        }}
    });
    vec![
        catalogue(json!([{"id": "files:write", "parameters": all}])),
        catalogue(
            json!([{"id": "look", "parameters": few}, {"id": "no.parameters", "parameters": {"type": "object"}}]),
        ),
        catalogue(json!([{"id": "grow", "parameters": tree}])),
    ]
}

/// Choices that a test makes instead of chance.
struct Choices<'c>(std::iter::Cycle<std::slice::Iter<'c, u16>>);

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(*self.0.next().unwrap()) % bound.max(1)
    }
}

/// Writes a text that the expression accepts.
fn sample(expr: &Expr, rules: &Rules, choices: &mut Choices<'_>, text: &mut String) {
    match expr {
        Expr::Literal(literal) => text.push_str(literal),
        Expr::OneOf(class) => {
            const LETTERS: &str = "ab \t\n\r<>&\"'`~:;()[]{}/\\=!?.,#-_9\u{0}\u{7f}\u{85}\u{a0}\u{feff}\u{200b}「」«»始末é中😀]";
            let all: Vec<char> = LETTERS.chars().filter(|c| accepts(class, *c)).collect();
            let all = if all.is_empty() {
                class.ranges.iter().flat_map(Clone::clone).collect()
            } else {
                all
            };
            text.push(all[choices.below(all.len())]);
        }
        Expr::Rule(name) => sample(rules.find(name).unwrap(), rules, choices, text),
        Expr::Sequence(parts) => parts
            .iter()
            .for_each(|part| sample(part, rules, choices, text)),
        Expr::Choice(parts) => sample(&parts[choices.below(parts.len())], rules, choices, text),
        Expr::Repeat(inner, least, most) => {
            let more = most.map_or(4, |most| (most - least).min(20));
            for _ in 0..*least as usize + choices.below(more as usize + 1) {
                sample(inner, rules, choices, text);
            }
        }
    }
}

fn accepts(class: &CharClass, c: char) -> bool {
    class.ranges.iter().any(|range| range.contains(&c)) != class.negated
}

/// Returns the possible ends of the expression from one of `starts`.
fn ends(expr: &Expr, rules: &Rules, text: &str, starts: BTreeSet<usize>) -> BTreeSet<usize> {
    match expr {
        Expr::Literal(literal) => {
            let fits = |at: &usize| text[*at..].starts_with(literal.as_str());
            starts
                .into_iter()
                .filter(fits)
                .map(|at| at + literal.len())
                .collect()
        }
        Expr::OneOf(class) => {
            let next = |at: usize| {
                text[at..]
                    .chars()
                    .next()
                    .filter(|c| accepts(class, *c))
                    .map(|c| at + c.len_utf8())
            };
            starts.into_iter().filter_map(next).collect()
        }
        Expr::Rule(name) => ends(rules.find(name).unwrap(), rules, text, starts),
        Expr::Sequence(parts) => parts
            .iter()
            .fold(starts, |starts, part| ends(part, rules, text, starts)),
        Expr::Choice(parts) => parts
            .iter()
            .flat_map(|part| ends(part, rules, text, starts.clone()))
            .collect(),
        Expr::Repeat(inner, least, most) => {
            let (mut all, mut now) = (BTreeSet::new(), starts);
            for count in 0.. {
                if count >= *least {
                    now = now.difference(&all).copied().collect();
                    all.extend(&now);
                }
                if now.is_empty() || most.is_some_and(|most| count == most) {
                    return all;
                }
                now = ends(inner, rules, text, now);
            }
            all
        }
    }
}

fn is_accepted(rules: &Rules, text: &str) -> bool {
    let root = rules.find("root").unwrap();
    ends(root, rules, text, BTreeSet::from([0])).contains(&text.len())
}

/// Checks that a text is read as calls without a tolerance.
fn check(
    text: &str,
    catalogue: &Catalogue,
    (dialect, nonce): (Dialect, Option<&str>),
    calls: bool,
) -> Result<(), TestCaseError> {
    for mut policy in [Policy::fixed(dialect), Policy::default()] {
        policy.nonce = nonce.map(str::to_owned);
        let parsed = parse_finished(text, catalogue, &policy, FinishReason::Stop);
        prop_assert!(
            !calls || !parsed.calls.is_empty(),
            "{}: no call in {:?}",
            dialect,
            text
        );
        if let Some(problem) = parsed.problems().next() {
            // Names that occur twice in a map.
            prop_assert!(
                problem.message.contains("duplicate key"),
                "{}: {:?} in {:?}",
                dialect,
                problem,
                text
            );
        }
        for call in &parsed.calls {
            let tolerated = call
                .tolerances
                .iter()
                .find(|tolerance| tolerance.class != Class::Verbatim);
            prop_assert!(
                tolerated.is_none(),
                "{}: {:?} in {:?}",
                dialect,
                tolerated,
                text
            );
            prop_assert!(!call.ambiguous, "{}: ambiguous {:?}", dialect, text);
        }
        let serious = |remark: &&Diagnostic| {
            remark.severity != Severity::Hint && remark.class != Some(Class::Verbatim)
        };
        let remarked = parsed.diagnostics.iter().find(serious);
        prop_assert!(
            remarked.is_none(),
            "{}: {:?} in {:?}",
            dialect,
            remarked,
            text
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_a_grammar_accepts_is_read_without_a_tolerance(
        catalogue in prop::sample::select(catalogues()),
        dialect in prop::sample::select(Dialect::IN_TEXT),
        mode in prop::sample::select(&[Mode::Call, Mode::Free][..]),
        nonce in prop::sample::select(&[None, Some("k7m2q9xd")][..]),
        choices in prop::collection::vec(any::<u16>(), 40..200),
        inserted in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&PIECES[..])), 0..6),
    ) {
        let (rules, _) = rules(&catalogue, dialect, mode, nonce).unwrap();
        let root = rules.find("root").unwrap();
        let mut text = String::new();
        sample(root, &rules, &mut Choices(choices.iter().cycle()), &mut text);
        prop_assert!(is_accepted(&rules, &text), "{}", text);
        check(&text, &catalogue, (dialect, nonce), mode == Mode::Call)?;
        for (at, piece) in inserted {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            if !places.is_empty() {
                text.insert_str(*at.get(&places), piece);
            }
            if is_accepted(&rules, &text) {
                check(&text, &catalogue, (dialect, nonce), mode == Mode::Call)?;
            }
        }
    }
}

#[test]
fn a_grammar_is_written_as_its_reader_expects() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "value": {"type": "boolean"},
            "count": {"type": "integer", "minimum": 0}
        },
        "required": ["name", "value"],
        "additionalProperties": false
    });
    let catalogue = catalogue(json!([{"id": "set_flag", "parameters": parameters}]));
    let grammar = render_grammar(&catalogue, Dialect::ToolJson, Mode::Call, None).unwrap();
    let unenforced: Vec<&str> = grammar
        .unenforced
        .iter()
        .map(|left| left.pointer.as_str())
        .collect();
    assert_eq!(
        unenforced,
        ["/properties/name/maxLength", "/properties/count/minimum"]
    );
    let lines: Vec<&str> = grammar.text.lines().collect();
    assert_eq!(lines[0], "root ::= prose block");
    for line in [
        "prose ::= [^<>`~:\\\\]{0,160}",
        "integer ::= \"0\" | \"-\"? [1-9] [0-9]{0,17}",
        "block ::= call (\"\\n\" call){0,3}",
    ] {
        assert!(lines.contains(&line), "{line} in {}", grammar.text);
    }
    let free = render_grammar(&catalogue, Dialect::Action, Mode::Free, None)
        .unwrap()
        .text;
    assert!(free.starts_with("root ::= prose block?\n"), "{free}");
    let block = "block ::= \"<ACTION>\\n\" call{1,4} \"</ACTION>\"\n";
    assert!(free.contains(block), "{free}");
    let native = render_grammar(&catalogue, Dialect::Native, Mode::Call, None).unwrap();
    let schema: Value = serde_json::from_str(&native.text).unwrap();
    assert_eq!(
        schema["anyOf"][0]["properties"]["name"],
        json!({"const": "set_flag"})
    );
}

#[test]
fn what_has_no_grammar_is_refused_by_name() {
    let no_tools = render_grammar(&Catalogue::default(), Dialect::Action, Mode::Free, None);
    assert_eq!(no_tools, Err(GrammarError::NoTools));
    let many = (0..=MAX_TOOLS)
        .map(|number| Tool::new(format!("t{number}"), "", json!({"type": "object"})));
    let many = Catalogue::new(many.collect(), vec![]).unwrap();
    let too_many = render_grammar(&many, Dialect::TamV1, Mode::Free, None);
    assert_eq!(too_many, Err(GrammarError::TooManyTools(MAX_TOOLS + 1)));
    let spaced = json!({"type": "object", "properties": {"two words": {"type": "string"}}});
    let spaced = catalogue(json!([{"id": "look", "parameters": spaced}]));
    let refused = render_grammar(&spaced, Dialect::Action, Mode::Free, None).unwrap_err();
    assert!(refused.to_string().contains("two words"), "{refused}");
    assert!(render_grammar(&spaced, Dialect::ToolJson, Mode::Free, None).is_ok());
    // Each level has two members of the next: the total is bounded.
    let doubled = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "object", "required": ["a", "b", "c", "d", "e"], "properties": {
            "a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}, "c": {"$ref": "#/$defs/n"},
            "d": {"$ref": "#/$defs/n"}, "e": {"$ref": "#/$defs/n"}}}}
    });
    let doubled = catalogue(json!([{"id": "grow", "parameters": doubled}]));
    assert_eq!(
        render_grammar(&doubled, Dialect::ToolJson, Mode::Free, None),
        Err(GrammarError::TooLarge)
    );
}

#[test]
fn g1006_the_nonce_stands_in_the_mark_that_opens_a_block() {
    let catalogue = catalogue(json!([{"id": "nod", "parameters": {"type": "object"}}]));
    for (dialect, opening) in [
        (Dialect::Action, r#"<ACTION n=\"k7m2q9xd\">\n"#),
        (Dialect::TamV2, r#"<|[REQUEST_TOOL k7m2q9xd]|>\n"#),
        (Dialect::Vcp, r#"<<<[TOOL_REQUEST k7m2q9xd]>>>\n"#),
        (
            Dialect::ToolTag,
            r#"<tool_call name=\"nod\" n=\"k7m2q9xd\">\n"#,
        ),
        (Dialect::ToolJson, r#"<tool_call n=\"k7m2q9xd\">{"#),
    ] {
        let grammar = render_grammar(&catalogue, dialect, Mode::Call, Some("k7m2q9xd")).unwrap();
        assert!(grammar.text.contains(opening), "{}", grammar.text);
    }
}
