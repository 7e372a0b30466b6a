//! Joins small pieces of text into events of a sensible size.

use std::time::Duration;

use tokio::time::Instant;

/// The most bytes that are held back.
const MAX_HELD: usize = 4 << 10;
/// The largest piece that is released, in bytes; a larger one is released in parts.
const MAX_PIECE: usize = 64 << 10;
/// The most pieces of different streams that are held back.
const MAX_PIECES: usize = 32;
/// The longest time that a piece is held back, and the quiet time before a piece that is not.
const MAX_WAIT: Duration = Duration::from_millis(20);

/// Holds pieces of text back for a moment, each with the stream `K` that it belongs to. The first one
/// after a quiet time is released at once. The pieces that are held back are bounded.
#[derive(Debug)]
pub struct Coalescer<K> {
    held: Vec<(K, String)>,
    bytes: usize,
    /// The time at which held pieces are due; a new piece before it is held back.
    until: Option<Instant>,
}

impl<K> Default for Coalescer<K> {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            bytes: 0,
            until: None,
        }
    }
}

impl<K: Copy + PartialEq> Coalescer<K> {
    /// Accepts a piece and returns the pieces to be recorded now, in order.
    pub fn push(&mut self, stream: K, piece: &str, now: Instant) -> Vec<(K, String)> {
        if piece.is_empty() {
            return Vec::new();
        }
        self.bytes += piece.len();
        match self.held.last_mut() {
            Some((last, text)) if *last == stream => text.push_str(piece),
            _ => self.held.push((stream, piece.to_owned())),
        }
        let is_quiet = self.until.is_none_or(|until| until <= now);
        match is_quiet || self.bytes >= MAX_HELD || self.held.len() >= MAX_PIECES {
            true => self.release(now),
            false => Vec::new(),
        }
    }

    /// Returns the pieces that are held back.
    pub fn release(&mut self, now: Instant) -> Vec<(K, String)> {
        if self.held.is_empty() {
            return Vec::new();
        }
        self.bytes = 0;
        self.until = Some(now + MAX_WAIT);
        let held = std::mem::take(&mut self.held);
        held.into_iter()
            .flat_map(|(stream, text)| parts(text).into_iter().map(move |part| (stream, part)))
            .collect()
    }

    /// Waits until the held pieces are due; for ever if none is held back.
    pub async fn due(&self) {
        match self.until.filter(|_| !self.held.is_empty()) {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// Cuts a text into parts of a size that fits an event, between characters.
pub fn parts(mut text: String) -> Vec<String> {
    let mut parts = Vec::new();
    while text.len() > MAX_PIECE {
        let rest = text.split_off(text.floor_char_boundary(MAX_PIECE));
        parts.push(std::mem::replace(&mut text, rest));
    }
    parts.push(text);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(stream: u8, text: &str) -> (u8, String) {
        (stream, text.to_owned())
    }

    #[test]
    fn the_first_piece_after_a_quiet_time_is_released_at_once_and_the_next_are_joined() {
        let (mut coalescer, begin) = (Coalescer::default(), Instant::now());
        assert_eq!(coalescer.push(1, "a", begin), [piece(1, "a")]);
        let soon = begin + MAX_WAIT / 2;
        assert_eq!(coalescer.push(1, "b", soon), []);
        assert_eq!(coalescer.push(1, "c", soon), []);
        assert_eq!(coalescer.until, Some(begin + MAX_WAIT));
        let due = begin + MAX_WAIT;
        assert_eq!(coalescer.release(due), [piece(1, "bc")]);
        let after = due + MAX_WAIT / 2;
        assert_eq!(coalescer.push(1, "d", after), [], "it was not quiet");
        assert_eq!(coalescer.release(due + MAX_WAIT), [piece(1, "d")]);
        let quiet = due + 2 * MAX_WAIT;
        assert_eq!(coalescer.push(1, "e", quiet), [piece(1, "e")]);
    }

    #[test]
    fn what_is_held_back_is_bounded_in_bytes_and_in_pieces() {
        let (mut coalescer, now) = (Coalescer::default(), Instant::now());
        coalescer.push(1u8, "a", now);
        let long = "x".repeat(MAX_HELD);
        assert_eq!(coalescer.push(1, "b", now), []);
        let both = format!("b{long}");
        assert_eq!(coalescer.push(1, &long, now), [piece(1, &both)]);
        for number in 1..MAX_PIECES {
            assert_eq!(coalescer.push(number as u8 % 2, "x", now).len(), 0);
        }
        assert_eq!(
            coalescer.push(MAX_PIECES as u8 % 2, "x", now).len(),
            MAX_PIECES
        );
    }

    #[test]
    fn pieces_of_different_streams_keep_their_order() {
        let (mut coalescer, now) = (Coalescer::default(), Instant::now());
        coalescer.push(1, "a", now);
        for (stream, text) in [(1, "b"), (2, "c"), (2, "d"), (1, "e")] {
            assert_eq!(coalescer.push(stream, text, now), []);
        }
        let held = [piece(1, "b"), piece(2, "cd"), piece(1, "e")];
        assert_eq!(coalescer.release(now), held);
        assert_eq!(coalescer.release(now), []);
    }

    #[test]
    fn a_large_piece_is_released_in_parts_between_characters() {
        let text = "石".repeat(MAX_PIECE);
        let released = Coalescer::default().push(1, &text, Instant::now());
        assert!(released.iter().all(|(_, part)| part.len() <= MAX_PIECE));
        let joined: String = released.into_iter().map(|(_, part)| part).collect();
        assert!(joined == text);
    }
}
