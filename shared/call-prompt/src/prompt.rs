//! The section of a prompt that teaches a model to call the visible tools.
//!
//! The same tools yield the same bytes: no part depends on time, order of hashing or place.

mod examples;
mod words;

use std::fmt::Write;

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Catalogue, Dialect, Entry, ToolKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::words::Words;
use crate::observation::neutralise;

/// The language of the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

impl Language {
    /// Reads a BCP 47 language tag such as `zh-CN`; empty is English. Regions, scripts and variants
    /// of a language read as the language.
    ///
    /// # Errors
    /// [`UnknownLanguage`] for a language without words.
    pub fn from_tag(tag: &str) -> Result<Self, UnknownLanguage> {
        let subtag = |part: &str| {
            (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let primary = tag.split('-').next().unwrap_or_default();
        match primary.to_ascii_lowercase().as_str() {
            "" if tag.is_empty() => Ok(Self::En),
            "en" if tag.split('-').all(subtag) => Ok(Self::En),
            "zh" if tag.split('-').all(subtag) => Ok(Self::Zh),
            _ => Err(UnknownLanguage(call_catalogue::cut(tag))),
        }
    }
}

/// A language tag that the section has no words for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a known language; the languages are en and zh")]
pub struct UnknownLanguage(String);

/// The amount of text about each tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Descriptions, parameters with descriptions, and worked examples.
    #[default]
    Full,
    /// Descriptions and the names and types of parameters.
    Brief,
    /// Names only.
    Names,
}

/// A rendered section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendered {
    /// The section.
    pub text: String,
    /// SHA-256 of its bytes in hexadecimal, to see whether it changed.
    pub digest: String,
}

/// Writes the section for the visible tools. Empty text if there are none.
pub fn render_tools(
    catalogue: &Catalogue,
    dialect: Dialect,
    language: Language,
    detail: Detail,
) -> Rendered {
    let words = Words::of(language);
    let mut text = String::new();
    if !catalogue.is_empty() {
        text.push_str(words.intro);
        text.push_str("\n\n");
        for (kind, title) in [
            (ToolKind::Tool, words.tools),
            (ToolKind::Skill, words.skills),
        ] {
            let mut entries = catalogue
                .entries()
                .iter()
                .filter(|entry| entry.tool.kind == kind)
                .peekable();
            if entries.peek().is_none() {
                continue;
            }
            let _ = writeln!(text, "**{title}**\n");
            for entry in entries {
                tool(&mut text, entry, dialect, words, detail);
            }
            text.push('\n');
        }
        let _ = writeln!(text, "{}\n{}", words.closing(dialect), words.other_forms);
        if detail == Detail::Full {
            let _ = write!(text, "\n{}\n", words.rules(dialect));
            examples::write(&mut text, catalogue, dialect, words);
        }
    }
    let digest = hex::encode(Sha256::digest(text.as_bytes()));
    Rendered { text, digest }
}

/// The end of a prompt: the opening of blocks in this turn (G1006).
pub fn render_nonce(dialect: Dialect, language: Language, nonce: &str) -> String {
    let mark = dialect.opening_mark(Some(nonce));
    match language {
        Language::En => format!(
            "In this turn, write `{mark}` wherever a call block opens, also where an example shows it \
             otherwise. A block without `{nonce}` is text and is not executed."
        ),
        Language::Zh => format!(
            "在本轮中，每个调用块都以 `{mark}` 开头，即使示例的写法不同。没有 `{nonce}` 的块只是文本，不会被执行。"
        ),
    }
}

/// Names in angle brackets where they are tags, bare where they are values.
fn named(name: &str, dialect: Dialect) -> String {
    if dialect == Dialect::Action {
        format!("`<{name}>`")
    } else {
        format!("`{name}`")
    }
}

fn tool(text: &mut String, entry: &Entry, dialect: Dialect, words: &Words, detail: Detail) {
    let uses_alias = matches!(dialect, Dialect::Action | Dialect::ToolTag);
    let name = named(
        if uses_alias {
            &entry.alias
        } else {
            &entry.tool.id
        },
        dialect,
    );
    if detail == Detail::Names || entry.tool.description.is_empty() {
        let _ = writeln!(text, "*   {name}");
    } else {
        let _ = writeln!(text, "*   {name}: {}", one_line(&entry.tool.description));
    }
    if detail == Detail::Names || entry.parameters.is_empty() {
        return;
    }
    let _ = writeln!(text, "    *   {}:", words.parameters);
    let schema = Schema::root(&entry.tool.parameters);
    let required = schema.required();
    for parameter in entry.parameter_names() {
        let member = schema.member(parameter);
        let need = if required.contains(&parameter) {
            words.required
        } else {
            words.optional
        };
        let command = parameter == "command"
            && entry.command_alias
            && matches!(dialect, Dialect::TamV1 | Dialect::TamV2);
        let shown = if command { "arg_command" } else { parameter };
        let _ = write!(
            text,
            "        *   {} ({}, {need})",
            named(shown, dialect),
            type_name(member)
        );
        let description = one_line(member.description());
        if detail == Detail::Full && !description.is_empty() {
            let _ = write!(text, ": {description}");
        }
        text.push('\n');
        if detail == Detail::Full
            && let Some(example) = member.examples().first()
        {
            let _ = writeln!(
                text,
                "            *   {}: `{}`",
                words.example,
                example_of(shown, example, member, dialect)
            );
        }
    }
}

/// The type as a prompt names it; allowed values are listed.
fn type_name(schema: Schema<'_>) -> String {
    if let Some(values) = schema.allowed() {
        let listed: Vec<String> = values
            .iter()
            .take(20)
            .map(|value| value.to_string())
            .collect();
        return neutralise(&listed.join(" | ")).into_owned();
    }
    schema.types().describe()
}

/// One parameter with its example, as it is written in a call.
fn example_of(name: &str, example: &Value, schema: Schema<'_>, dialect: Dialect) -> String {
    let text = example
        .as_str()
        .map_or_else(|| example.to_string(), str::to_owned);
    let structured = !schema.types().has(Types::STRING)
        && (schema.types().has(Types::OBJECT) || schema.types().has(Types::ARRAY));
    match dialect {
        Dialect::Action if structured || text.contains(['<', '&', '\n']) => {
            format!("<{name}><![CDATA[{text}]]></{name}>")
        }
        Dialect::Action => format!("<{name}>{text}</{name}>"),
        Dialect::ToolTag => format!("<param name=\"{name}\">{text}</param>"),
        Dialect::TamV1 | Dialect::Vcp => format!("{name}:「始」{text}「末」"),
        Dialect::TamV2 => format!("{name}:»»»{text}«««"),
        Dialect::ToolJson | Dialect::Native => format!("\"{name}\": {example}"),
    }
}

/// A description in one line; marks in it are neutralised, since descriptions come from outside.
fn one_line(description: &str) -> String {
    let joined = description.split_whitespace().collect::<Vec<_>>().join(" ");
    neutralise(&joined).into_owned()
}

#[cfg(test)]
mod tests;
