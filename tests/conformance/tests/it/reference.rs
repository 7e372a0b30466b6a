//! Rule G7: on well-formed ACTION blocks the scanner sees the tree that quick-xml sees.
//!
//! The blocks are generated; the expected tree is read from their text by quick-xml and turned into
//! arguments by the rules for values without a schema (A19, A21). White space round a value (V5,
//! V10) is left out on both sides.

use call_catalogue::{Catalogue, Tool};
use call_text::{Policy, parse};
use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Map, Value, json};

/// An element as XML has it.
#[derive(Debug, Default)]
struct Element {
    name: String,
    /// The text, and whether it was in a CDATA section.
    pieces: Vec<(String, bool)>,
    children: Vec<Element>,
}

impl Element {
    fn push_text(&mut self, more: &str) {
        match self.pieces.last_mut() {
            Some((text, false)) => text.push_str(more),
            _ => self.pieces.push((more.to_owned(), false)),
        }
    }

    /// Returns the meaning of the element without a schema.
    fn value(&self) -> Value {
        if self.children.is_empty() {
            return Value::String(self.text());
        }
        if self.children.iter().all(|child| child.name == "item") {
            return self.children.iter().map(Element::value).collect();
        }
        Value::Object(members(&self.children))
    }

    fn text(&self) -> String {
        let sections = self.pieces.iter().any(|(_, section)| *section);
        let pieces = self.pieces.iter();
        // Blank text next to a section only lays it out (V5).
        let kept =
            pieces.filter(|(text, section)| *section || !sections || !text.trim().is_empty());
        let text: String = kept.map(|(text, _)| text.as_str()).collect();
        text.trim().to_owned()
    }
}

/// Elements by name: one is itself, several are a list (A19).
fn members(elements: &[Element]) -> Map<String, Value> {
    let mut names: Vec<&str> = Vec::new();
    for element in elements {
        if !names.contains(&element.name.as_str()) {
            names.push(&element.name);
        }
    }
    let value = |name: &str| {
        let same = elements.iter().filter(|element| element.name == name);
        let mut values: Vec<Value> = same.map(Element::value).collect();
        match values.len() {
            1 => values.remove(0),
            _ => Value::Array(values),
        }
    };
    names
        .into_iter()
        .map(|name| (name.to_owned(), value(name)))
        .collect()
}

/// Reads a well-formed document; returns an element that encloses all others.
fn read(text: &str) -> anyhow::Result<Element> {
    let mut reader = Reader::from_str(text);
    let mut open = vec![Element::default()];
    loop {
        let event = reader.read_event()?;
        let here = open.last_mut().expect("the outermost is never closed");
        match event {
            Event::Start(tag) => open.push(Element {
                name: tag.name().as_ref().to_owned(),
                ..Element::default()
            }),
            Event::Empty(tag) => here.children.push(Element {
                name: tag.name().as_ref().to_owned(),
                ..Element::default()
            }),
            Event::End(_) => {
                let closed = open.pop().expect("the reader checks the names");
                let parent = open.last_mut().expect("the reader checks the names");
                parent.children.push(closed);
            }
            Event::Text(text) => here.push_text(&text.xml10_content()),
            Event::CData(text) => here.pieces.push((text.xml10_content().into_owned(), true)),
            Event::GeneralRef(reference) => match reference.resolve_char_ref()? {
                Some(c) => here.push_text(&c.to_string()),
                None => {
                    let name = reference.xml10_content();
                    let text = quick_xml::escape::resolve_predefined_entity(&name);
                    here.push_text(text.expect("only the five names are generated"));
                }
            },
            Event::Eof => return Ok(open.remove(0)),
            _ => {}
        }
    }
}

/// Tools whose parameters `a`, `b` and `c` may hold anything and whose `s` is a string.
fn catalogue() -> Catalogue {
    let parameters = json!({
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}, "s": {"type": "string"}},
    });
    let open = json!({"type": "object", "additionalProperties": true});
    let tools = vec![
        Tool::new("first", "", parameters.clone()),
        Tool::new("second.tool", "", parameters),
        Tool::new("open_tool", "", open),
    ];
    Catalogue::new(tools, Vec::new()).expect("the tools are well formed")
}

/// Pieces of escaped text.
const TEXT: &[&str] = &[
    "a",
    "value",
    "7",
    "é",
    "末",
    " ",
    "\n  ",
    "&lt;",
    "&gt;",
    "&amp;",
    "&quot;",
    "&apos;",
    "&#65;",
    "&#x672B;",
    "&lt;/a&gt;",
    "&amp;amp;",
    ">",
    "]",
    "\"",
    "'",
    "/",
    "{",
    "}",
    ",",
    "null",
    "true",
    "「末」",
    "```",
    "-->",
];

/// Pieces of the text in a CDATA section.
const SECTION: &[&str] = &[
    "x",
    "<",
    ">",
    "&",
    "&amp;",
    "]",
    "]]",
    "<a>",
    "</a>",
    "<b>",
    "</s>",
    "</first>",
    "<first>",
    "</ACTION>",
    "<ACTION>",
    "<!-- no -->",
    "<!--",
    " ",
    "\n",
    "if (a[b[0]]> 1)",
    "「始」",
    "<item>",
];

/// The gaps that may lie between the elements inside a value. No tag in a remark counts (A15).
const INNER_GAPS: &[&str] = &[
    "",
    "",
    " ",
    "\n  ",
    "<!-- a remark -->",
    "<!-- <k> --> <!--</k>- -->",
    "<!-- </a></first></ACTION> -->",
    "<!-- <a><first> --><!-- <!-- <b> -->",
    "<!--<![CDATA[ -->",
];

/// The gaps that may lie between calls and between parameters. The second remark ends a block,
/// which no value may hold outside CDATA (V1).
const OUTER_GAPS: &[&str] = &[
    "",
    "",
    " ",
    "\n  ",
    "<!-- a remark -->",
    "\n<!-- <second.tool><a>1</a></second.tool></ACTION> -->\n",
];

fn pieces(of: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(of), 0..most).prop_map(|pieces| pieces.concat())
}

/// One or more sections, one after the other. `]]>` is split over two as XML wants it.
fn sections() -> impl Strategy<Value = String> {
    let body = pieces(SECTION, 6).prop_map(|body| body.replace("]]>", "]] >"));
    let one = body.prop_map(|body| format!("<![CDATA[x{body}x]]>"));
    let laid_out = prop::sample::select(vec!["", "\n    "]);
    (prop::collection::vec(one, 1..3), laid_out)
        .prop_map(|(sections, between)| sections.join(between))
}

/// The inside of an element without children.
fn leaf() -> impl Strategy<Value = String> {
    let text = || pieces(TEXT, 6).prop_map(|text| text.replace("]]>", "]]&gt;"));
    prop_oneof![
        3 => text(),
        2 => (prop::sample::select(vec!["", "\n  "]), sections())
            .prop_map(|(blank, sections)| format!("{blank}{sections}{blank}")),
        1 => (text(), sections(), text())
            .prop_map(|(before, sections, after)| format!("{before}{sections}{after}")),
        1 => (sections(), text(), sections())
            .prop_map(|(first, between, last)| format!("{first}{between}{last}")),
    ]
}

fn element(name: &str, inner: &str, short: bool) -> String {
    match inner.is_empty() && short {
        true => format!("<{name}/>"),
        false => format!("<{name}>{inner}</{name}>"),
    }
}

/// Elements with gaps round them.
fn row(elements: Vec<(&'static str, String)>, gaps: &[&str], short: bool) -> String {
    let mut text = gaps[0].to_owned();
    for (at, (name, inner)) in elements.into_iter().enumerate() {
        text.push_str(&element(name, &inner, short));
        text.push_str(gaps[(at + 1) % gaps.len()]);
    }
    text
}

fn gaps(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(of), 1..5)
}

/// The inside of an element that may hold others.
fn tree() -> impl Strategy<Value = String> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        let names = ["a", "b", "item", "k", "s", "deep", "first", "open_tool"];
        let child = (prop::sample::select(names.to_vec()), inner.clone());
        let children = prop::collection::vec(child, 1..4);
        let items = prop::collection::vec(inner.prop_map(|inner| ("item", inner)), 1..4);
        let elements = prop_oneof![2 => children, 1 => items];
        (elements, gaps(INNER_GAPS), any::<bool>())
            .prop_map(|(elements, gaps, short)| row(elements, &gaps, short))
    })
}

fn call() -> impl Strategy<Value = (&'static str, String)> {
    let parameter = prop_oneof![
        4 => (prop::sample::select(vec!["a", "b", "c"]), tree().boxed()),
        1 => (Just("s"), leaf().boxed()),
    ];
    let tools = prop::sample::select(vec!["first", "second.tool", "open_tool"]);
    // A string that is given twice is no list, so that it is left out the second time.
    let parameters = prop::collection::vec(parameter, 0..4).prop_map(|mut parameters| {
        let mut given = false;
        parameters.retain(|(name, _)| *name != "s" || !std::mem::replace(&mut given, true));
        parameters
    });
    (tools, parameters, gaps(OUTER_GAPS), any::<bool>())
        .prop_map(|(tool, parameters, gaps, short)| (tool, row(parameters, &gaps, short)))
}

fn block() -> impl Strategy<Value = String> {
    (
        prop::collection::vec(call(), 1..4),
        gaps(OUTER_GAPS),
        any::<bool>(),
    )
        .prop_map(|(calls, gaps, short)| element("ACTION", &row(calls, &gaps, short), false))
}

/// Every string without the white space round it.
fn trimmed(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.trim().to_owned(),
        Value::Array(list) => list.iter_mut().for_each(trimmed),
        Value::Object(map) => map.values_mut().for_each(trimmed),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_well_formed_block_is_the_tree_that_xml_sees(block in block()) {
        let outermost = read(&block).expect("the block is well formed");
        let calls = outermost.children[0].children.iter();
        let expected: Vec<(String, Value)> = calls
            .map(|call| (call.name.clone(), Value::Object(members(&call.children))))
            .collect();
        let parsed = parse(&block, &catalogue(), &Policy::default());
        let seen: Vec<(String, Value)> = parsed
            .calls
            .iter()
            .map(|call| {
                let mut arguments = Value::Object(call.arguments.clone());
                trimmed(&mut arguments);
                (call.tool_id.clone(), arguments)
            })
            .collect();
        prop_assert_eq!(seen, expected, "{}\n{:?}", block, parsed.diagnostics);
        prop_assert_eq!(parsed.problems().count(), 0, "{}", block);
    }
}
