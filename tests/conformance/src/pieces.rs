//! Intended calls, and texts whose marks are known, so that one mark can be changed.

use serde_json::{Map, Value};

/// A call as it is meant: the tool and its arguments.
pub type Meant = (String, Map<String, Value>);

/// A piece of a text; a mark, or the text between marks.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// Whether it is a mark.
    pub mark: bool,
}

/// A text in pieces.
#[derive(Debug, Clone, Default)]
pub struct Pieces(Vec<Piece>);

impl Pieces {
    /// Adds a text between marks.
    pub fn text(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Piece { text, mark: false });
    }

    /// Adds a mark.
    pub fn mark(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Piece { text, mark: true });
    }

    /// The places of the marks.
    pub fn marks(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|at| self.0[*at].mark).collect()
    }

    /// The text of a piece.
    pub fn at(&mut self, place: usize) -> &mut String {
        &mut self.0[place].text
    }

    /// The whole text.
    pub fn whole(&self) -> String {
        self.0.iter().map(|piece| piece.text.as_str()).collect()
    }
}
