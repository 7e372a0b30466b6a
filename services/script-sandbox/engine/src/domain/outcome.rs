//! The outcome of a script.

use std::collections::VecDeque;

use super::{
    collect::Collected,
    isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
    limits::Limits,
    usage::Usage,
    verdict::Verdict,
    workspace::WorkspaceChanges,
};

/// The complete result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The end of the script.
    pub verdict: Verdict,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// The content of the result channel.
    pub result: ScriptResult,
    /// The usage.
    pub usage: Usage,
    /// The level under which the script ran; `None` if it never started.
    pub isolation: Option<IsolationLevel>,
    /// Layers that this run lacked.
    pub missing: Vec<MissingLayer>,
    /// The mechanism that enforced the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// The limits that were in force.
    pub limits: Limits,
    /// The files that it left, if the request wanted them and it started.
    pub collected: Option<Collected>,
    /// The changes to the files of its workspace, if it has one and started.
    pub workspace: Option<WorkspaceChanges>,
}

/// Bytes of the end of a stream that are held where not all of it is kept.
pub const END: usize = 16 << 10;

/// The bytes read from one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The kept bytes.
    pub bytes: Vec<u8>,
    /// The number of further bytes that were read and not kept.
    pub truncated: u64,
    /// The number of bytes that were streamed instead of being kept.
    pub sent: u64,
    /// The last of the bytes that were read and not kept: at most [`END`].
    pub end: VecDeque<u8>,
}

impl Captured {
    /// Keeps bytes up to `limit` and counts the rest.
    pub fn take(&mut self, chunk: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.bytes.len()).min(chunk.len());
        let (kept, rest) = chunk.split_at(room);
        self.bytes.extend_from_slice(kept);
        self.cut(rest);
    }

    /// Counts bytes that are not kept, and holds the last of them.
    pub fn cut(&mut self, bytes: &[u8]) {
        self.truncated = self.truncated.saturating_add(bytes.len() as u64);
        let last = &bytes[bytes.len().saturating_sub(END)..];
        let surplus = (self.end.len() + last.len()).saturating_sub(END);
        self.end.drain(..surplus);
        self.end.extend(last);
    }

    /// The number of bytes read in all.
    pub fn read(&self) -> u64 {
        self.truncated.saturating_add(self.passed())
    }

    /// The number of bytes kept or streamed.
    pub fn passed(&self) -> u64 {
        self.sent.saturating_add(self.bytes.len() as u64)
    }
}

/// The content of the result channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScriptResult {
    /// Empty.
    #[default]
    None,
    /// One JSON value.
    Json(String),
    /// Not exactly one JSON value.
    Malformed,
    /// More than the limit.
    TooLarge,
}

impl ScriptResult {
    /// Reads the captured bytes.
    pub fn read(captured: Captured) -> Self {
        if captured.truncated > 0 {
            return Self::TooLarge;
        }
        match String::from_utf8(captured.bytes) {
            Ok(text) if text.is_empty() => Self::None,
            Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() => {
                Self::Json(text.trim().to_owned())
            }
            _ => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_json_value_is_a_result() {
        let check = |text: &[u8], expected: ScriptResult| {
            let captured = Captured {
                bytes: text.to_vec(),
                ..Captured::default()
            };
            assert_eq!(ScriptResult::read(captured), expected, "{text:?}");
        };
        check(b"", ScriptResult::None);
        check(b"{\"a\": 1}\n", ScriptResult::Json("{\"a\": 1}".to_owned()));
        check(
            b"12345678901234567890.5",
            ScriptResult::Json("12345678901234567890.5".to_owned()),
        );
        check(b"{} {}", ScriptResult::Malformed);
        check(b"{", ScriptResult::Malformed);
        check(b"\"\xff\"", ScriptResult::Malformed);
        // Checking takes no stack, whatever the depth.
        let deep = "[".repeat(500_000) + &"]".repeat(500_000);
        check(deep.as_bytes(), ScriptResult::Json(deep.clone()));
        check(&deep.as_bytes()[1..], ScriptResult::Malformed);
    }

    #[test]
    fn a_capture_keeps_what_fits_and_counts_the_rest() {
        let mut captured = Captured::default();
        for chunk in [b"abc".as_slice(), b"defg", b"h"] {
            captured.take(chunk, 5);
        }
        assert_eq!(
            (captured.bytes.as_slice(), captured.truncated),
            (b"abcde".as_slice(), 3)
        );
        assert_eq!(captured.end, b"fgh");
        assert_eq!(captured.read(), 8);
    }

    #[test]
    fn the_end_of_what_is_cut_is_held_in_chunks_of_any_size() {
        let all: Vec<u8> = (0..3 * END + 5).map(|n| n as u8).collect();
        for size in [1, 7, END - 1, END, END + 1, all.len()] {
            let mut captured = Captured::default();
            for chunk in all.chunks(size) {
                captured.take(chunk, 10);
            }
            assert_eq!(captured.end, &all[all.len() - END..], "{size}");
            assert_eq!(captured.truncated, all.len() as u64 - 10);
        }
    }
}
