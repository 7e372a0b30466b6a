//! The replacement of a match, in the notation of JavaScript.

use regex::Captures;

/// A replacement: `$1` to `$99` and `$<name>` are groups, `$&` the match, `$$` a dollar sign; any
/// other dollar sign stays.
#[derive(Debug)]
pub(super) struct Replacement {
    pieces: Vec<ReplacementPiece>,
}

#[derive(Debug, PartialEq)]
enum ReplacementPiece {
    Text(String),
    /// A group by its number, and its notation for a pattern without such a group.
    Group(usize, String),
    Named(String),
}

impl Replacement {
    pub(super) fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            pieces.push(ReplacementPiece::Text(rest[..at].to_owned()));
            let after = &rest[at + 1..];
            let (piece, used) =
                special(after).unwrap_or((ReplacementPiece::Text("$".to_owned()), 0));
            pieces.push(piece);
            rest = &after[used..];
        }
        pieces.push(ReplacementPiece::Text(rest.to_owned()));
        Self { pieces }
    }

    pub(super) fn append(&self, found: &Captures<'_>, target: &mut String) {
        for piece in &self.pieces {
            match piece {
                ReplacementPiece::Text(text) => target.push_str(text),
                ReplacementPiece::Group(number, notation) if *number >= found.len() => {
                    target.push_str(notation);
                }
                ReplacementPiece::Group(number, _) => {
                    target.push_str(found.get(*number).map_or("", |group| group.as_str()));
                }
                ReplacementPiece::Named(name) => {
                    target.push_str(found.name(name).map_or("", |group| group.as_str()));
                }
            }
        }
    }
}

/// Reads the notation behind a dollar sign; returns it and its length.
fn special(after: &str) -> Option<(ReplacementPiece, usize)> {
    match after.bytes().next()? {
        b'$' => Some((ReplacementPiece::Text("$".to_owned()), 1)),
        b'&' => Some((ReplacementPiece::Group(0, String::new()), 1)),
        b'<' => {
            let end = after.find('>')?;
            Some((ReplacementPiece::Named(after[1..end].to_owned()), end + 1))
        }
        b'1'..=b'9' => {
            let digits = after.bytes().take(2).take_while(u8::is_ascii_digit).count();
            let number = after[..digits].parse().ok()?;
            Some((
                ReplacementPiece::Group(number, format!("${}", &after[..digits])),
                digits,
            ))
        }
        _ => None,
    }
}
