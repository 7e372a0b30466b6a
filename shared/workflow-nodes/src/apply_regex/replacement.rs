//! What a match is replaced by, in the notation of JavaScript.

use regex::Captures;

/// A replacement: `$1` to `$99` and `$<name>` are groups, `$&` the match, `$$` a dollar sign; any
/// other dollar sign stays.
#[derive(Debug)]
pub(super) struct Replacement {
    pieces: Vec<Piece>,
}

#[derive(Debug, PartialEq)]
enum Piece {
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
            pieces.push(Piece::Text(rest[..at].to_owned()));
            let after = &rest[at + 1..];
            let (piece, used) = special(after).unwrap_or((Piece::Text("$".to_owned()), 0));
            pieces.push(piece);
            rest = &after[used..];
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Self { pieces }
    }

    pub(super) fn append(&self, found: &Captures<'_>, target: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => target.push_str(text),
                Piece::Group(number, notation) if *number >= found.len() => {
                    target.push_str(notation);
                }
                Piece::Group(number, _) => {
                    target.push_str(found.get(*number).map_or("", |group| group.as_str()));
                }
                Piece::Named(name) => {
                    target.push_str(found.name(name).map_or("", |group| group.as_str()));
                }
            }
        }
    }
}

/// Reads what follows a dollar sign; returns it and its length.
fn special(after: &str) -> Option<(Piece, usize)> {
    match after.bytes().next()? {
        b'$' => Some((Piece::Text("$".to_owned()), 1)),
        b'&' => Some((Piece::Group(0, String::new()), 1)),
        b'<' => {
            let end = after.find('>')?;
            Some((Piece::Named(after[1..end].to_owned()), end + 1))
        }
        b'1'..=b'9' => {
            let digits = after.bytes().take(2).take_while(u8::is_ascii_digit).count();
            let number = after[..digits].parse().ok()?;
            Some((
                Piece::Group(number, format!("${}", &after[..digits])),
                digits,
            ))
        }
        _ => None,
    }
}
