//! Rust source with comments and literals blanked out.
//!
//! The rules look for words and braces. A word in a comment or a brace in a string is neither, so
//! both become blanks; line ends stay, so that line numbers hold.

/// Returns the source with every comment and the inside of every literal replaced by blanks.
pub fn code_only(source: &str) -> String {
    let mut blanker = Blanker {
        rest: source,
        out: String::with_capacity(source.len()),
        before: None,
    };
    while !blanker.rest.is_empty() {
        blanker.step();
    }
    blanker.out
}

/// Returns every literal of text with its line, from 1: without its quotes, and without the ends of lines that a
/// backslash escapes.
pub fn literals(source: &str) -> Vec<(usize, String)> {
    let mut blanker = Blanker {
        rest: source,
        out: String::new(),
        before: None,
    };
    let mut literals = Vec::new();
    while !blanker.rest.is_empty() {
        let (text, at) = (blanker.rest, source.len() - blanker.rest.len());
        let is_raw = blanker.raw_string().is_some();
        let is_text = is_raw || text.starts_with('"');
        blanker.step();
        if is_text {
            let literal = &text[..text.len() - blanker.rest.len()];
            let literal = literal
                .trim_start_matches(['r', 'b', 'c', '#'])
                .trim_end_matches('#');
            let mut lines = literal.trim_matches('"').split("\\\n");
            let first = lines.next().unwrap_or_default().to_owned();
            let joined = lines.fold(first, |text, line| text + line.trim_start());
            literals.push((1 + source[..at].matches('\n').count(), joined));
        }
    }
    literals
}

/// Returns whether the word occurs in the code on its own, not as a part of a longer name.
pub fn has_word(code: &str, word: &str) -> bool {
    word_at(code, word).is_some()
}

/// Returns the first position of the word on its own.
pub fn word_at(code: &str, word: &str) -> Option<usize> {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = code[..*at].chars().next_back();
        let after = code[*at + word.len()..].chars().next();
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}

struct Blanker<'a> {
    rest: &'a str,
    out: String,
    /// The last character of code, which distinguishes a raw string's `r` from the end of a name.
    before: Option<char>,
}

impl Blanker<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            self.blank(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment(self.rest));
        } else if let Some(length) = self.raw_string() {
            self.blank(length);
        } else if self.rest.starts_with('"') {
            self.blank(quoted(self.rest, '"'));
        } else if let Some(length) = char_literal(self.rest) {
            self.blank(length);
        } else if let Some(c) = self.rest.chars().next() {
            self.out.push(c);
            self.before = Some(c);
            self.rest = &self.rest[c.len_utf8()..];
        }
    }

    fn blank(&mut self, length: usize) {
        let (blanked, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.out
            .extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.before = Some(' ');
        self.rest = rest;
    }

    /// Returns the length of a raw string (`r"`, `r#"`, `br"`, `cr"`) that begins here.
    fn raw_string(&self) -> Option<usize> {
        if self.before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            let after = self.rest.strip_prefix(prefix);
            after.is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
        })?;
        let after = &self.rest[prefix.len()..];
        let hashes = after.len() - after.trim_start_matches('#').len();
        let closing = format!("\"{}", "#".repeat(hashes));
        let body_at = prefix.len() + hashes + 1;
        let end = self.rest[body_at..]
            .find(&closing)
            .map_or(self.rest.len(), |at| body_at + at + closing.len());
        Some(end)
    }
}

/// Returns the length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Returns the length of a literal between two of the same quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Returns the length of a character literal; a lifetime is none.
fn char_literal(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        return Some(quoted(text, '\''));
    }
    inside[first.len_utf8()..]
        .starts_with('\'')
        .then(|| first.len_utf8() + 2)
}
