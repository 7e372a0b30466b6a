//! Sentences with nouns: the openings of documentation, and the word that stands in for a noun.

use crate::{Finding, Tree};

/// The words that open a question in the place of a noun. `Whether` opens the documentation of a flag.
const QUESTIONS: [&str; 5] = ["What", "How", "Where", "Why", "When"];

/// The words after `what` by which it stands for a noun.
const AFTER_WHAT: [&str; 5] = ["is", "was", "the", "it", "they"];

/// This crate has examples of such comments.
const SELF: &str = "tests/tidy/";

/// A comment: its lines without marks.
struct Comment<'a> {
    /// The first line, from 1.
    line: usize,
    is_doc: bool,
    lines: Vec<&'a str>,
}

/// Refuses documentation that opens with a question, and `what is`, `what the` and the like in any comment
/// of code and contract.
pub fn nouns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let texts = tree.texts(&[".rs", ".proto"]);
    for (path, text) in texts.filter(|(path, _)| !path.starts_with(SELF)) {
        for comment in comments(text, path.ends_with(".proto")) {
            let first = comment.lines[0].split_whitespace().next();
            if comment.is_doc && first.is_some_and(|word| QUESTIONS.contains(&word)) {
                let problem = "the documentation opens with a question";
                let remedy = "begin with a noun or a verb in the third person: `The limit of …`, `Returns …`";
                findings.push(Finding::new(path, problem, remedy).at_line(comment.line));
            }
            for (place, line) in comment.lines.iter().enumerate() {
                if stands_for_a_noun(line, comment.lines.get(place + 1).copied()) {
                    let problem = "`what` stands for a noun";
                    let remedy = "write the noun: the result, the value, the reason";
                    findings
                        .push(Finding::new(path, problem, remedy).at_line(comment.line + place));
                }
            }
        }
    }
    findings
}

/// Whether a line has `what` before one of its followers, which may begin the next line.
fn stands_for_a_noun(line: &str, next: Option<&str>) -> bool {
    let after = next.and_then(|next| next.split_whitespace().next());
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.extend(after);
    words.windows(2).any(|pair| {
        let what = pair[0].trim_start_matches(|c: char| !c.is_alphanumeric());
        what.eq_ignore_ascii_case("what") && AFTER_WHAT.contains(&pair[1])
    })
}

/// Returns the comments of a file. In a contract each is documentation.
fn comments(text: &str, is_contract: bool) -> Vec<Comment<'_>> {
    let mut all: Vec<Comment<'_>> = Vec::new();
    let mut before = None;
    for (index, line) in text.lines().enumerate() {
        let marked = ["///", "//!", "//"].into_iter().find_map(|mark| {
            let rest = line.trim_start().strip_prefix(mark)?;
            Some((mark, rest.trim()))
        });
        match marked {
            Some((mark, rest)) if before == Some(mark) => {
                if let Some(comment) = all.last_mut() {
                    comment.lines.push(rest);
                }
            }
            Some((mark, rest)) => all.push(Comment {
                line: index + 1,
                is_doc: is_contract || mark != "//",
                lines: vec![rest],
            }),
            None => {}
        }
        before = marked.map(|(mark, _)| mark);
    }
    all
}
