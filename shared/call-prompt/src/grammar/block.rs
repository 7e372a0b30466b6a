//! Blocks of each dialect.

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Dialect, Entry};
use serde_json::Value;

use super::gbnf::{Expr, Rules};
use super::json::{SchemaPlace, Values};
use super::value::Text;
use super::{GrammarError, MAX_CALLS, Unenforced};
use crate::render;

/// The rules for the blocks of one grammar.
#[derive(Debug)]
pub(super) struct Blocks {
    dialect: Dialect,
    /// The mark that opens a block.
    opening: String,
    text: Text,
    values: Values,
}

/// A text that each dialect has to delimit with care.
const AWKWARD: &str = "<TOOL_REQUEST>";

impl Blocks {
    pub(super) fn new(dialect: Dialect, nonce: Option<&str>) -> Self {
        Self {
            dialect,
            opening: dialect.opening_mark(nonce),
            text: Text::of(dialect),
            values: Values::new(),
        }
    }

    pub(super) fn rules(&mut self) -> &mut Rules {
        &mut self.values.rules
    }

    pub(super) fn finish(self) -> (Rules, Vec<Unenforced>) {
        (self.values.rules, self.values.unenforced)
    }

    /// Describes a call of a tool.
    ///
    /// # Errors
    /// A parameter without a spelling in the dialect, or too much to describe.
    pub(super) fn call(&mut self, entry: &Entry) -> Result<Expr, GrammarError> {
        self.values.of_tool(&entry.tool.id);
        let arguments = SchemaPlace::root(Schema::root(&entry.tool.parameters));
        if self.dialect == Dialect::ToolJson {
            self.values.note(&arguments)?;
            let name = Value::from(entry.tool.id.as_str());
            let opening = &self.opening;
            let head = format!("{opening}{{\"name\":{name},\"arguments\":");
            let object = match entry.parameters.is_empty() {
                true => Expr::literal("{}"),
                false => self.values.object(&arguments)?,
            };
            let tail = Expr::literal("}</tool_call>");
            return Ok(Expr::Sequence(vec![Expr::literal(head), object, tail]));
        }
        let (head, tail) = self.frame(entry);
        let mut parts = vec![Expr::literal(head)];
        self.values.note(&arguments)?;
        let required = arguments.schema.required();
        for name in entry.parameter_names() {
            let parameter = self.parameter(entry, name, &arguments.member(name))?;
            let line = Expr::Sequence(vec![parameter, Expr::literal("\n")]);
            parts.push(match required.contains(&name) {
                true => line,
                false => line.optional(),
            });
        }
        parts.push(Expr::literal(tail));
        Ok(Expr::Sequence(parts))
    }

    /// The text before and behind the parameters of a call.
    fn frame(&self, entry: &Entry) -> (String, String) {
        let (id, alias) = (&entry.tool.id, &entry.alias);
        let command = |key: &str, close: &str| {
            let command = render::field(key, id, false, self.dialect);
            (format!("{}\n{command}\n", self.opening), close.to_owned())
        };
        match self.dialect {
            Dialect::Action => (format!("<{alias}>\n"), format!("</{alias}>\n")),
            Dialect::Vcp => command("tool_name", "<<<[END_TOOL_REQUEST]>>>"),
            Dialect::TamV1 | Dialect::TamV2 => command("command", "<|[END_TOOL]|>"),
            Dialect::ToolTag | Dialect::ToolJson | Dialect::Native => {
                let named = format!("<tool_call name=\"{alias}\"");
                let opening = self.opening.replacen("<tool_call", &named, 1);
                (format!("{opening}\n"), "</tool_call>".to_owned())
            }
        }
    }

    /// Describes a parameter with its value.
    fn parameter(
        &mut self,
        entry: &Entry,
        name: &str,
        place: &SchemaPlace<'_>,
    ) -> Result<Expr, GrammarError> {
        let dialect = self.dialect;
        let write = |value: &Value| {
            render::parameter(entry, name, value, dialect).map_err(|(_, reason)| {
                GrammarError::Tool {
                    tool_id: entry.tool.id.clone(),
                    reason: format!("parameter '{name}': {reason}"),
                }
            })
        };
        if let Some(allowed) = place.schema.allowed().filter(|allowed| !allowed.is_empty()) {
            let literals = allowed
                .into_iter()
                .map(|value| write(value).map(Expr::Literal));
            let literals = literals.collect::<Result<_, _>>()?;
            self.values.note(place)?;
            return Ok(Expr::choice(literals));
        }
        let types = place.schema.types();
        // A value has the delimiters that the renderer writes round an example: a number has none,
        // and the awkward text has the delimiters of texts of several lines.
        let plain = framed(&write(&Value::from(0))?, "0");
        if !types.has(Types::STRING) {
            return Ok(plain(self.text.other(&mut self.values, place)?));
        }
        self.values.note(place)?;
        let delimited = framed(&write(&Value::from(AWKWARD))?, AWKWARD);
        let line = self.text.line(&mut self.values);
        let long = self
            .text
            .long(&mut self.values, place.schema.preserves_white_space());
        Ok(Expr::choice(vec![plain(line), delimited(long)]))
    }

    /// Describes all calls of an answer, from the expression of one call.
    pub(super) fn answer(&self, call: Expr) -> Expr {
        match self.dialect {
            Dialect::Action => Expr::Sequence(vec![
                Expr::literal(format!("{}\n", self.opening)),
                call.repeated(1, Some(MAX_CALLS)),
                Expr::literal("</ACTION>"),
            ]),
            _ => call.separated("\n", Some(MAX_CALLS)),
        }
    }
}

/// Returns a function that replaces the value in an example.
fn framed(example: &str, value: &str) -> impl Fn(Expr) -> Expr + use<> {
    let (open, close) = example.split_once(value).unwrap_or((example, ""));
    let (open, close) = (open.to_owned(), close.to_owned());
    move |value| {
        let (open, close) = (Expr::literal(open.as_str()), Expr::literal(close.as_str()));
        Expr::Sequence(vec![open, value, close])
    }
}
