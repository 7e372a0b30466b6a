//! How long files and functions may be, and how many types a crate may have.

use crate::rust_text::code_only;
use crate::{Finding, Tree};

/// Lines of one source file.
const LONGEST_FILE: usize = 600;

/// Lines of one function, from its name to its closing brace.
const LONGEST_FUNCTION: usize = 80;

/// Types of one crate, those of tests left out.
const MOST_TYPES: usize = 120;

/// Refuses source files that are too long to read.
pub fn files(tree: &Tree) -> Vec<Finding> {
    tree.texts(&[".rs", ".py", ".proto"])
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| {
            Finding::new(
                path,
                format!("has {lines} lines, more than {LONGEST_FILE}"),
                "split it by concern: `name.rs` beside `name/`, one file per member of a family, tests in `name/tests.rs`",
            )
        })
        .collect()
}

/// Refuses crates that define more types than a reader can come to know.
pub fn types(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in tree.crates() {
        let sources = format!("{root}/src/");
        let types: usize = tree
            .texts(&[".rs"])
            .filter(|(path, _)| path.starts_with(&sources) && !is_of_tests(path))
            .map(|(_, text)| types_of(&code_only(text)))
            .sum();
        if types > MOST_TYPES {
            findings.push(Finding::new(
                &root,
                format!("defines {types} types, more than {MOST_TYPES}"),
                "move what has a reason of its own to change into a crate of its own",
            ));
        }
    }
    findings
}

fn is_of_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Counts the types that code without comments and literals defines, up to a test module in the file, which
/// stands at its end.
fn types_of(code: &str) -> usize {
    let kinds = ["struct", "enum", "trait", "union"];
    let (mut types, mut of_tests) = (0, false);
    for line in code.lines() {
        if of_tests && line.starts_with("mod ") && line.ends_with('{') {
            break;
        }
        of_tests = line == "#[cfg(test)]";
        let line = line.trim_start();
        let item = match line.strip_prefix("pub(") {
            Some(scoped) => scoped.split_once(')').map_or("", |(_, item)| item),
            None => line.strip_prefix("pub ").unwrap_or(line),
        };
        let mut words = item.split_whitespace();
        let defines = words.next().is_some_and(|word| kinds.contains(&word));
        types += usize::from(defines && words.next().is_some());
    }
    types
}

/// Refuses functions that are too long to hold in mind.
pub fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".rs"]) {
        for function in functions_of(&code_only(text)) {
            if function.lines > LONGEST_FUNCTION {
                let finding = Finding::new(
                    path,
                    format!(
                        "the function `{}` has {} lines, more than {LONGEST_FUNCTION}",
                        function.name, function.lines
                    ),
                    "name its steps and make each a function",
                );
                findings.push(finding.at_line(function.line));
            }
        }
    }
    findings
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its name, from 1.
    pub line: usize,
    /// Lines from its name to its closing brace.
    pub lines: usize,
}

/// Finds the functions of code without comments and literals, nested ones too.
pub fn functions_of(code: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let in_name = code[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_');
        let rest = code[at + 3..].trim_start();
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if in_name || name.is_empty() {
            continue;
        }
        let Some(length) = length_with_body(&code[at..]) else {
            continue;
        };
        functions.push(Function {
            name,
            line: code[..at].matches('\n').count() + 1,
            lines: code[at..at + length].matches('\n').count() + 1,
        });
    }
    functions
}

/// Returns the length of a function up to its closing brace; a declaration has no body.
fn length_with_body(code: &str) -> Option<usize> {
    let mut brackets = 0_usize;
    let mut braces = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.checked_sub(1)?,
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.checked_sub(1)?;
                if braces == 0 && brackets == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}
