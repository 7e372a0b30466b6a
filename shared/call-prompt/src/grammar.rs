//! Grammars that keep a model to well-formed calls of the visible tools.
//!
//! Text that a grammar accepts is read without a tolerance. The grammar follows the parser and the
//! renderer in each part of a tool: its published name, the order and types of its parameters, and
//! the delimiters of values.
//!
//! - `gbnf`: expressions and rules, in the notation of llama.cpp.
//! - `json`: values as JSON, by schema.
//! - `value`: values as the text of an element or field.
//! - `block`: blocks of each dialect.

mod block;
mod gbnf;
mod json;
mod value;

use call_catalogue::{Catalogue, Dialect, Entry};
use serde_json::{Value, json};

use self::block::Blocks;
use self::gbnf::{CharClass, Expr, Rules};

/// The most tools of a grammar.
pub const MAX_TOOLS: usize = 64;

/// The most bytes of a grammar.
pub const MAX_BYTES: usize = 256 << 10;

/// The most calls of an answer that a grammar accepts.
const MAX_CALLS: u32 = 4;

/// The most characters of text before calls that are required: otherwise a small model would not
/// reach them.
const MAX_PROSE: u32 = 160;

/// The parts that an answer may consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Text that may be followed by one to four calls.
    #[default]
    Free,
    /// Text of at most 160 characters, then one to four calls.
    Call,
}

/// A grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    /// GBNF as llama.cpp reads it; for native calls a JSON Schema of one call.
    pub text: String,
    /// The requirements of the tools' schemas beyond the grammar. They are checked when a call is
    /// read.
    pub unenforced: Vec<Unenforced>,
}

/// A keyword of a tool's schema that the grammar does not express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unenforced {
    /// The tool.
    pub tool_id: String,
    /// JSON pointer of the keyword in the schema of the tool's arguments.
    pub pointer: String,
    /// The keyword.
    pub keyword: String,
}

/// The reason why there is no grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// No tool could be called.
    #[error("no tool is visible; a grammar needs at least one")]
    NoTools,
    /// There are too many tools.
    #[error("{0} tools are visible; a grammar has at most {MAX_TOOLS}")]
    TooManyTools(usize),
    /// The grammar would be too large.
    #[error("the grammar would be larger than {MAX_BYTES} bytes; name fewer tools")]
    TooLarge,
    /// The dialect cannot carry a parameter.
    #[error("tool '{tool_id}': {reason}")]
    Tool {
        /// The tool.
        tool_id: String,
        /// The obstacle.
        reason: String,
    },
}

/// Writes the grammar of answers that call visible tools in a dialect, whose blocks open with the
/// nonce of the policy, if it requires one.
///
/// # Errors
/// [`GrammarError`] where there are no tools or too many of them, or where the dialect has no spelling for
/// a parameter.
pub fn render_grammar(
    catalogue: &Catalogue,
    dialect: Dialect,
    mode: Mode,
    nonce: Option<&str>,
) -> Result<Grammar, GrammarError> {
    let (rules, unenforced) = match dialect {
        Dialect::Native => return native(visible(catalogue)?),
        dialect => rules(catalogue, dialect, mode, nonce)?,
    };
    let text = rules.to_string();
    if text.len() > MAX_BYTES {
        return Err(GrammarError::TooLarge);
    }
    Ok(Grammar { text, unenforced })
}

/// Builds the rules of a dialect that is written into text.
fn rules(
    catalogue: &Catalogue,
    dialect: Dialect,
    mode: Mode,
    nonce: Option<&str>,
) -> Result<(Rules, Vec<Unenforced>), GrammarError> {
    let entries = visible(catalogue)?;
    let mut blocks = Blocks::new(dialect, nonce);
    let mut calls = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let call = blocks.call(entry)?;
        calls.push(blocks.rules().define(format!("call-{index}"), call));
    }
    let call = blocks.rules().define("call", Expr::choice(calls));
    let answer = blocks.answer(call);
    let block = blocks.rules().define("block", answer);
    let prose = blocks.rules().define("prose", prose(mode));
    let block = match mode {
        Mode::Call => block,
        Mode::Free => block.optional(),
    };
    let root = Expr::Sequence(vec![prose, block]);
    blocks.rules().define("root", root);
    Ok(blocks.finish())
}

fn visible(catalogue: &Catalogue) -> Result<&[Entry], GrammarError> {
    match catalogue.entries() {
        [] => Err(GrammarError::NoTools),
        entries if entries.len() > MAX_TOOLS => Err(GrammarError::TooManyTools(entries.len())),
        entries => Ok(entries),
    }
}

/// Text that cannot become markup, a fence or an invented result.
fn prose(mode: Mode) -> Expr {
    let most = match mode {
        Mode::Free => None,
        Mode::Call => Some(MAX_PROSE),
    };
    Expr::OneOf(CharClass::except("<>`~:\\")).repeated(0, most)
}

/// The schema of one native call: an API that accepts one has no room for other text.
fn native(entries: &[Entry]) -> Result<Grammar, GrammarError> {
    let call = |entry: &Entry| {
        json!({
            "type": "object",
            "properties": {"name": {"const": entry.tool.id}, "arguments": entry.tool.parameters},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    };
    let calls: Vec<Value> = entries.iter().map(call).collect();
    let text = json!({ "anyOf": calls }).to_string();
    if text.len() > MAX_BYTES {
        return Err(GrammarError::TooLarge);
    }
    let unenforced = Vec::new();
    Ok(Grammar { text, unenforced })
}

#[cfg(test)]
mod tests;
