//! The text that a program wrote, and the failure that follows from it.

use std::borrow::Cow;

use serde_json::json;

use crate::{Category, Failure, code_error};

/// The length of the end of an output stream that goes into a failure, in characters.
const MAX_STREAM_CHARS: usize = 2_000;
/// The part of the last line of standard error that the message contains, in characters.
const MAX_LAST_LINE_CHARS: usize = 300;

/// The text that a program wrote before it failed.
#[derive(Clone, Debug, Default)]
pub struct Written<'a> {
    /// To standard output.
    pub stdout: Cow<'a, str>,
    /// To standard error.
    pub stderr: Cow<'a, str>,
}

impl<'a> Written<'a> {
    /// Takes the bytes of both streams; bytes that are not UTF-8 become replacement characters.
    pub fn from_bytes(stdout: &'a [u8], stderr: &'a [u8]) -> Self {
        Self {
            stdout: String::from_utf8_lossy(stdout),
            stderr: String::from_utf8_lossy(stderr),
        }
    }

    /// Returns the failure of a script that ended by itself with a code: the last words of the script, or the
    /// exception that its interpreter printed.
    pub fn exited(&self, code: i32, language: &str) -> Failure {
        let Written { stdout, stderr } = self;
        let error = code_error::read(language, stderr);
        let reason = match &error {
            Some(error) => error.headline(),
            None => stderr.trim_end().lines().last().unwrap_or("").to_owned(),
        };
        let reason: String = reason.trim().chars().take(MAX_LAST_LINE_CHARS).collect();
        let message = match reason.as_str() {
            "" if stdout.trim().is_empty() => {
                format!("the script ended with the code {code}; it wrote nothing")
            }
            "" => format!("the script ended with the code {code}"),
            reason => format!("the script ended with the code {code}: {reason}"),
        };
        let mut failure =
            Failure::new(Category::Runtime, "script_exited", message).detail("exit_code", code);
        if let Some(error) = error {
            let found = json!({"type": error.kind, "message": error.message, "line": error.line});
            failure = failure.detail("error", found);
        }
        failure
    }

    /// Adds the end of both streams to the message and to the details of a failure. A stream that the message ends
    /// with already is not repeated there.
    pub fn added_to(&self, mut failure: Failure) -> Failure {
        let headline = failure.message.clone();
        let streams = [
            ("stdout", "standard output", &self.stdout),
            ("stderr", "standard error", &self.stderr),
        ];
        for (key, name, text) in streams {
            let end = tail(text.trim_end(), MAX_STREAM_CHARS);
            let is_shown = headline.ends_with(&format!(": {}", end.trim()));
            if !end.trim().is_empty() && !is_shown {
                let is_cut = end.len() < text.trim_end().len();
                let place = if is_cut { "The end of" } else { "On" };
                failure.message += &format!("\n{place} {name}:\n{end}");
            }
            let is_known = failure.details.contains_key(key);
            if !is_known && (key == "stderr" || !text.is_empty()) {
                failure = failure.detail(key, tail(text, MAX_STREAM_CHARS));
            }
        }
        failure
    }
}

/// Returns the last characters of a text.
pub fn tail(text: &str, characters: usize) -> String {
    let skip = text.chars().count().saturating_sub(characters);
    text.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_exit(language: &str, stderr: &str, message: &str) {
        let written = Written::from_bytes(b"", stderr.as_bytes());
        let failure = written.exited(1, language);
        assert_eq!(failure.message.lines().next(), Some(message));
        assert_eq!(failure.details["exit_code"], 1);
    }

    #[test]
    fn an_exception_is_reported_with_its_line_and_other_words_by_the_last_line() {
        check_exit(
            "python3",
            "Traceback (most recent call last):\n  File \"/run/main.py\", line 4, in <module>\n    \
             {}['a']\nKeyError: 'a'\n",
            "the script ended with the code 1: KeyError: 'a' (line 4)",
        );
        check_exit(
            "node",
            "/run/main.js:2\nthrow new Error('x');\n^\n\nError: x\n    at Object.<anonymous> \
             (/run/main.js:2:7)\n\nNode.js v20.1.0\n",
            "the script ended with the code 1: Error: x (line 2)",
        );
        check_exit(
            "bash",
            "one\n  two  \n\n",
            "the script ended with the code 1: two",
        );
        check_exit(
            "python3",
            " \n",
            "the script ended with the code 1; it wrote nothing",
        );
    }

    #[test]
    fn the_ends_of_both_streams_are_in_the_message_within_their_bound() {
        let failure = |stdout: &str, stderr: &str| {
            let written = Written::from_bytes(stdout.as_bytes(), stderr.as_bytes());
            let failure = written.added_to(written.exited(1, "bash"));
            failure.message.clone()
        };
        assert_eq!(
            failure("a.ts(1,1): error TS1005\n", ""),
            "the script ended with the code 1\nOn standard output:\na.ts(1,1): error TS1005"
        );
        assert_eq!(
            failure("out\n", "warning\nmake: *** [all] Error 2\n"),
            "the script ended with the code 1: make: *** [all] Error 2\nOn standard output:\nout\n\
             On standard error:\nwarning\nmake: *** [all] Error 2"
        );
        assert_eq!(
            failure("1\n", ""),
            "the script ended with the code 1\nOn standard output:\n1"
        );
        let long = "x".repeat(MAX_STREAM_CHARS) + "the end";
        let message = failure(&long, "");
        assert!(
            message.contains("\nThe end of standard output:\nx"),
            "{message}"
        );
        assert!(message.ends_with("the end") && message.len() < MAX_STREAM_CHARS + 100);
    }
}
