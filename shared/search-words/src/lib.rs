//! The words by which entries are found. A full-text index reads a run of Chinese characters as one
//! word, so that each character is indexed alone, and a query looks for two next to each other.

/// The most words of a query.
const MAX_TERMS: usize = 64;

/// Whether a character is a word of its own: Chinese, Japanese kana and Korean.
fn stands_alone(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// A piece of a text.
enum Piece {
    /// A word with spaces around it.
    Word(String),
    /// Consecutive characters that are words of their own.
    Run(Vec<char>),
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut is_apart = true;
    for character in text.chars() {
        match (pieces.last_mut(), stands_alone(character)) {
            (Some(Piece::Run(run)), true) if !is_apart => run.push(character),
            (_, true) => pieces.push(Piece::Run(vec![character])),
            (_, false) if !character.is_alphanumeric() => {
                is_apart = true;
                continue;
            }
            (Some(Piece::Word(word)), false) if !is_apart => word.push(character),
            (_, false) => pieces.push(Piece::Word(character.into())),
        }
        is_apart = false;
    }
    pieces
}

/// Returns texts in the form of the index.
pub fn indexed(texts: &[&str]) -> String {
    let mut words = Vec::new();
    for piece in texts.iter().flat_map(|text| pieces(text)) {
        match piece {
            Piece::Word(word) => words.push(word),
            Piece::Run(run) => words.extend(run.into_iter().map(String::from)),
        }
    }
    words.join(" ")
}

/// The terms of a query, at least one: each is a word, or two characters that are words of their own with a space
/// between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms(Vec<String>);

impl Terms {
    /// Returns the terms of a query; none if it has no word.
    pub fn of(query: &str) -> Option<Self> {
        Self::without(query, |_| false)
    }

    /// Returns the terms of a query without the words for which `is_common` holds.
    pub fn without(query: &str, is_common: impl Fn(&str) -> bool) -> Option<Self> {
        let mut terms: Vec<String> = Vec::new();
        for piece in pieces(query) {
            match piece {
                Piece::Word(word) if is_common(&word) => {}
                Piece::Word(word) => terms.push(word),
                Piece::Run(run) if run.len() == 1 => {
                    terms.extend(run.into_iter().map(String::from))
                }
                Piece::Run(run) => {
                    let pairs = run.windows(2);
                    terms.extend(pairs.map(|pair| format!("{} {}", pair[0], pair[1])));
                }
            }
        }
        terms.truncate(MAX_TERMS);
        (!terms.is_empty()).then_some(Self(terms))
    }

    /// Returns the terms, which consist of letters, digits and single spaces.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Returns the expression of SQLite's FTS5 that searches for any of them.
    pub fn fts5(&self) -> String {
        let terms = self.0.iter().map(|term| format!("\"{term}\""));
        terms.collect::<Vec<_>>().join(" OR ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_is_indexed_by_character_and_asked_for_by_two() {
        assert_eq!(
            indexed(&["月光苔 glows, twice", "tag"]),
            "月 光 苔 glows twice tag"
        );
        for (query, expected) in [
            ("moon moss?", Some("\"moon\" OR \"moss\"")),
            ("月光苔", Some("\"月 光\" OR \"光 苔\"")),
            ("苔", Some("\"苔\"")),
            ("use苔", Some("\"use\" OR \"苔\"")),
            // No part of the index's own language passes.
            (
                "\" OR words:x NEAR(",
                Some("\"OR\" OR \"words\" OR \"x\" OR \"NEAR\""),
            ),
            ("?!", None),
        ] {
            let expression = Terms::of(query).map(|terms| terms.fts5());
            assert_eq!(expression.as_deref(), expected, "{query}");
        }
    }
}
