//! The progress that a script reports, as lines of JSON. They are untrusted.

use core_types::text::is_hidden;
use serde::Deserialize;

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 4 << 10;

/// The longest message that is kept, in bytes.
const MAX_MESSAGE: usize = 256;

/// A report of a script. It has a fraction, a message or both.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptProgress {
    /// The fraction done, from 0 to 1.
    pub fraction: Option<f64>,
    /// The present activity of the script, on one line; may be empty.
    pub message: String,
}

/// Joins lines that arrive in pieces. Malformed lines are ignored.
#[derive(Debug, Default)]
pub struct ProgressLines {
    begun: Vec<u8>,
    /// Whether the present line is too long already.
    too_long: bool,
}

impl ProgressLines {
    /// Accepts a piece and returns the last report that it completes.
    pub fn take(&mut self, mut piece: &[u8]) -> Option<ScriptProgress> {
        let mut last = None;
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.extend(&piece[..end]);
            if !std::mem::take(&mut self.too_long) {
                last = read(&self.begun).or(last);
            }
            self.begun.clear();
            piece = &piece[end + 1..];
        }
        self.extend(piece);
        last
    }

    fn extend(&mut self, part: &[u8]) {
        self.too_long |= self.begun.len() + part.len() > MAX_LINE;
        if self.too_long {
            self.begun.clear();
        } else {
            self.begun.extend_from_slice(part);
        }
    }
}

fn read(line: &[u8]) -> Option<ScriptProgress> {
    #[derive(Deserialize)]
    struct Line {
        progress: Option<f64>,
        #[serde(default)]
        message: String,
    }
    let line: Line = serde_json::from_slice(line).ok()?;
    let message = on_one_line(&line.message);
    let is_known = line.progress.is_some() || !message.is_empty();
    let is_in_range = line
        .progress
        .is_none_or(|fraction| (0.0..=1.0).contains(&fraction));
    (is_known && is_in_range).then_some(ScriptProgress {
        fraction: line.progress,
        message,
    })
}

/// Shortens a message, and removes characters that could change how the text around it is shown.
fn on_one_line(message: &str) -> String {
    let printable = message.replace(is_hidden, " ");
    let mut line = printable.trim().to_owned();
    if line.len() > MAX_MESSAGE {
        line.truncate(line.floor_char_boundary(MAX_MESSAGE - '…'.len_utf8()));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, expected: Option<(Option<f64>, &str)>) {
        let expected = expected.map(|(fraction, message)| ScriptProgress {
            fraction,
            message: message.to_owned(),
        });
        for cut in 0..=written.len() {
            let mut lines = ProgressLines::default();
            let (begin, end) = written.as_bytes().split_at(cut);
            let first = lines.take(begin);
            assert_eq!(
                lines.take(end).or(first),
                expected,
                "{written:?} cut at {cut}"
            );
        }
    }

    #[test]
    fn the_last_well_formed_line_counts_wherever_it_is_cut() {
        check(
            "{\"progress\": 0.4, \"message\": \"half\"}\n",
            Some((Some(0.4), "half")),
        );
        check(
            "{\"progress\":0}\n{\"progress\":1}\n",
            Some((Some(1.0), "")),
        );
        check("{\"message\":\"a\"}\nnonsense\n", Some((None, "a")));
        check("{\"message\":\"a\",\"more\":[1]}\n", Some((None, "a")));
        check(
            "{\"progress\":0.1}\n{\"progress\":0.2}",
            Some((Some(0.1), "")),
        );
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for line in [
            "",
            "0.4",
            "[]",
            "{}",
            "{\"message\":\" \"}",
            "{\"progress\":1.01}",
            "{\"progress\":-0.1}",
            "{\"progress\":1e999}",
            "{\"progress\":\"0.4\"}",
            "{\"message\":4}",
            "{\"progress\":0.1,\"progress\":0.2}",
        ] {
            check(&format!("{line}\n"), None);
        }
        assert_eq!(
            ProgressLines::default().take(b"{\"message\":\"\xff\"}\n"),
            None
        );
    }

    #[test]
    fn a_message_is_one_short_line_without_characters_that_direct_others() {
        check(
            "{\"message\":\"\\u001b[2J\\na\\r\"}\n",
            Some((None, "[2J a")),
        );
        check(
            "{\"message\":\"a\\u202eb\\u2066c\\u200fd\"}\n",
            Some((None, "a b c d")),
        );
        let long = format!("{{\"message\":\"{}\"}}\n", "石".repeat(100));
        let cut = "石".repeat(84) + "…";
        assert_eq!(cut.len(), 255);
        check(&long, Some((None, &cut)));
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_the_next_one_counts() {
        let mut lines = ProgressLines::default();
        for _ in 0..100 {
            assert_eq!(lines.take(&[b'x'; 1000]), None);
            assert!(lines.begun.capacity() <= 2 * MAX_LINE);
        }
        assert_eq!(lines.take(b"\n{\"progress\":0.5"), None);
        let next = lines.take(b"}\n").and_then(|said| said.fraction);
        assert_eq!(next, Some(0.5));
    }
}
