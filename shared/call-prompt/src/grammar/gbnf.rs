//! Expressions and rules, in the notation of llama.cpp.

use std::fmt;
use std::ops::RangeInclusive;

/// The text that a grammar accepts at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    /// These characters.
    Literal(String),
    /// One character.
    OneOf(CharClass),
    /// The text that the rule of this name accepts.
    Rule(String),
    /// Expressions one after the other.
    Sequence(Vec<Expr>),
    /// One of several expressions.
    Choice(Vec<Expr>),
    /// An expression repeated between a least and a most number of times.
    Repeat(Box<Expr>, u32, Option<u32>),
}

/// A set of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CharClass {
    pub(super) negated: bool,
    pub(super) ranges: Vec<RangeInclusive<char>>,
}

/// The rules of a grammar by name, the first definition of a name first.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    rules: Vec<(String, Expr)>,
}

impl Expr {
    pub(super) fn literal(text: impl Into<String>) -> Self {
        Self::Literal(text.into())
    }

    pub(super) fn nothing() -> Self {
        Self::Sequence(Vec::new())
    }

    /// One of the alternatives, of which there is at least one.
    pub(super) fn choice(mut alternatives: Vec<Self>) -> Self {
        match alternatives.len() {
            1 => alternatives.remove(0),
            _ => Self::Choice(alternatives),
        }
    }

    pub(super) fn repeated(self, least: u32, most: Option<u32>) -> Self {
        Self::Repeat(Box::new(self), least, most)
    }

    pub(super) fn optional(self) -> Self {
        self.repeated(0, Some(1))
    }

    /// This, and as many more of it, each after a separator.
    pub(super) fn separated(self, separator: &str, most: Option<u32>) -> Self {
        let next = Self::Sequence(vec![Self::literal(separator), self.clone()]);
        let more = most.map(|most| most.saturating_sub(1));
        Self::Sequence(vec![self, next.repeated(0, more)])
    }
}

impl CharClass {
    /// These characters, none of them as part of a range.
    pub(super) fn of(characters: &str) -> Self {
        Self {
            negated: false,
            ranges: characters.chars().map(|c| c..=c).collect(),
        }
    }

    /// All but these characters.
    pub(super) fn except(characters: &str) -> Self {
        Self {
            negated: true,
            ..Self::of(characters)
        }
    }

    /// The same set with the members of a range taken in, or left out of a set of all but some.
    #[must_use]
    pub(super) fn and(mut self, range: RangeInclusive<char>) -> Self {
        self.ranges.push(range);
        self
    }
}

impl Rules {
    /// Defines a rule and returns the reference to it. A name that is defined keeps its meaning.
    pub(super) fn define(&mut self, name: impl Into<String>, expr: Expr) -> Expr {
        let name = name.into();
        if self.find(&name).is_none() {
            self.rules.push((name.clone(), expr));
        }
        Expr::Rule(name)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Expr> {
        let mut rules = self.rules.iter();
        rules.find(|(known, _)| known == name).map(|(_, expr)| expr)
    }
}

impl fmt::Display for Rules {
    /// Writes `root` first, as a reader looks for it; it was defined last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules
            .iter()
            .rev()
            .try_for_each(|(name, expr)| writeln!(f, "{name} ::= {expr}"))
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => {
                f.write_str("\"")?;
                text.chars().try_for_each(|c| character(f, c, "\"\\"))?;
                f.write_str("\"")
            }
            Self::OneOf(class) => class.fmt(f),
            Self::Rule(name) => f.write_str(name),
            Self::Sequence(parts) if parts.is_empty() => f.write_str("\"\""),
            Self::Sequence(parts) => joined(f, parts, " ", |part| matches!(part, Self::Choice(_))),
            Self::Choice(parts) => joined(f, parts, " | ", |_| false),
            Self::Repeat(inner, least, most) => {
                let atom = matches!(**inner, Self::Literal(_) | Self::OneOf(_) | Self::Rule(_));
                match atom {
                    true => inner.fmt(f),
                    false => write!(f, "({inner})"),
                }?;
                match (least, most) {
                    (0, Some(1)) => f.write_str("?"),
                    (0, None) => f.write_str("*"),
                    (1, None) => f.write_str("+"),
                    (least, None) => write!(f, "{{{least},}}"),
                    (least, Some(most)) if least == most => write!(f, "{{{least}}}"),
                    (least, Some(most)) => write!(f, "{{{least},{most}}}"),
                }
            }
        }
    }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    parts: &[Expr],
    separator: &str,
    grouped: impl Fn(&Expr) -> bool,
) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        match grouped(part) {
            true => write!(f, "({part})"),
            false => write!(f, "{part}"),
        }?;
    }
    Ok(())
}

impl fmt::Display for CharClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SPECIAL: &str = "\\]^-";
        f.write_str(if self.negated { "[^" } else { "[" })?;
        for range in &self.ranges {
            character(f, *range.start(), SPECIAL)?;
            if range.start() != range.end() {
                f.write_str("-")?;
                character(f, *range.end(), SPECIAL)?;
            }
        }
        f.write_str("]")
    }
}

/// Writes a character; characters in `special` and invisible characters are escaped.
fn character(f: &mut fmt::Formatter<'_>, c: char, special: &str) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        '"' | '\\' | ']' if special.contains(c) => write!(f, "\\{c}"),
        _ if c.is_ascii() && (special.contains(c) || c.is_control()) => {
            write!(f, "\\x{:02X}", u32::from(c))
        }
        _ if c.is_control()
            || c.is_whitespace() && c != ' '
            || !c.is_ascii() && !c.is_alphanumeric() =>
        {
            write!(f, "\\u{:04X}", u32::from(c))
        }
        _ => write!(f, "{c}"),
    }
}
