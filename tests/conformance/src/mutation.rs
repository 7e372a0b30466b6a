//! Well-formed blocks with known values, in which one mark is dropped, doubled, swapped with another
//! or misspelt.
//!
//! A forgotten mark must never make a call run that the model did not write: a call that still runs
//! by itself is one of the calls of the well-formed text, and a call that does not run leaves a
//! remark.

mod text;

use call_catalogue::{Catalogue, Tool};
use call_text::{Call, FinishReason, Policy, parse_finished};
use serde_json::{Value, json};

use crate::pieces::Meant;

pub use text::{Form, Written};

/// Random numbers that are the same for the same seed everywhere (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Picks one of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Returns `true` once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// The effects of the tools that the generated blocks call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// They have effects: a call that was repaired does not run by itself.
    Some,
    /// They only read: a call whose structure was repaired runs (G8).
    None,
}

/// The tools that the generated blocks call.
pub fn catalogue(effects: Effects) -> Catalogue {
    let tool = |id: &str, properties: Value, required: Value| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        let tool = Tool::new(id, "", parameters);
        match effects {
            Effects::Some => tool,
            Effects::None => tool.read_only(),
        }
    };
    let tools = vec![
        tool(
            "search",
            json!({
                "query": {"type": "string"},
                "top_k": {"type": "integer"},
                "labels": {"type": "array", "items": {"type": "string"}},
            }),
            json!(["query"]),
        ),
        tool(
            "files:write",
            json!({
                "path": {"type": "string"},
                "content": {"type": "string", "contentMediaType": "text/plain"},
                "date": {"type": "string"},
            }),
            json!(["path", "content"]),
        ),
        tool("remember", json!({"text": {"type": "string"}}), json!([])),
    ];
    Catalogue::new(tools, Vec::new()).expect("the ids of the tools are valid")
}

/// Returns the fault in the reading of a text in which `meant` was written well-formed.
pub fn check(
    text: &str,
    meant: &[Meant],
    catalogue: &Catalogue,
    intact: bool,
) -> Result<(), String> {
    let parsed = parse_finished(text, catalogue, &Policy::default(), FinishReason::Stop);
    // An optional argument may be lost outside of its call, if there is a remark.
    let silent = parsed.diagnostics.is_empty();
    let same = |call: &Call, (tool, arguments): &Meant| {
        let same = |(name, read): (&String, &Value)| {
            let written = arguments.get(name);
            written.is_some_and(|written| is_same(read, written, silent))
        };
        call.tool_id == *tool
            && (!silent || call.arguments.len() == arguments.len())
            && call.arguments.iter().all(same)
    };
    let mut running = 0;
    for call in parsed.ready_calls() {
        if !meant.iter().any(|meant| same(call, meant)) {
            return Err(format!(
                "a call runs that was not written: {}",
                call.canonical()
            ));
        }
        running += 1;
    }
    if intact && running != meant.len() {
        let why = &parsed.diagnostics;
        return Err(format!("{running} of {} calls run: {why:#?}", meant.len()));
    }
    if running < meant.len() && parsed.diagnostics.is_empty() {
        return Err(format!(
            "{running} of {} calls run and nothing is said",
            meant.len()
        ));
    }
    Ok(())
}

/// Whether a value was read as it was written. One character at its end may be left of a misspelt
/// mark of its own, or belong to one, for instance in `<![CDATA[[`: no reader can know. Where there
/// is a remark, elements may be lost.
fn is_same(read: &Value, written: &Value, silent: bool) -> bool {
    match (read, written) {
        (Value::String(read), Value::String(written)) => {
            read == written
                || within(read).iter().any(|read| *read == written.trim())
                || within(written)
                    .iter()
                    .any(|written| *written == read.trim())
                || within(read)[1] == within(written)[1]
        }
        (Value::Array(read), Value::Array(written)) => {
            let known = |read| written.iter().any(|written| is_same(read, written, silent));
            (!silent || read.len() == written.len()) && read.iter().all(known)
        }
        _ => read == written,
    }
}

/// A text without its first and without its last character. Its layout is not seen as such then.
fn within(text: &str) -> [&str; 2] {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let last = text.chars().next_back().map_or(0, char::len_utf8);
    [text[first..].trim(), text[..text.len() - last].trim()]
}
