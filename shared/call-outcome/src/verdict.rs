//! The sandbox's verdict on a script, and the failure of the call that ran it.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::json;

use crate::{Category, Failure, code_error};

/// The length of the end of an output stream that goes into a failure, in characters.
const MAX_STREAM_CHARS: usize = 2_000;
/// The length of the last line of standard error in the message, in characters.
const MAX_LAST_LINE_CHARS: usize = 300;

/// The end of a script, as the sandbox judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By itself, with an exit code.
    Exited(i32),
    /// By a signal that no limit explains.
    Signalled {
        /// The signal's name.
        name: String,
    },
    /// It ran longer than its wall time.
    Wall {
        /// The limit.
        limit: Duration,
    },
    /// It used more processor time than it had.
    Cpu {
        /// The limit.
        limit: Duration,
    },
    /// It used more memory than it had.
    Memory {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// It used more processes than it had.
    Processes {
        /// The limit.
        limit: u32,
    },
    /// It wrote more output than it may.
    Output {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
    /// It filled its scratch space.
    Disk {
        /// The limit, in bytes.
        limit_bytes: u64,
        /// The limit on files and directories.
        limit_files: u64,
    },
    /// It made a forbidden system call.
    ForbiddenSyscall,
    /// It tried to use a network and was ended for it.
    NetworkDenied,
    /// A policy was not met; it was not started.
    Policy {
        /// The policy.
        policy: String,
        /// The value that the policy demands.
        wanted: String,
        /// The value that was reached.
        reached: String,
    },
    /// Its caller went away or cancelled it, or the caller's deadline passed.
    Cancelled,
    /// The isolation could not be set up; it was not started.
    LauncherFailure {
        /// The failure.
        message: String,
    },
    /// The sandbox returned no verdict.
    Missing,
}

impl Verdict {
    /// Returns the word for details.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Exited(_) => "exited",
            Self::Signalled { .. } => "signalled",
            Self::Wall { .. } => "wall",
            Self::Cpu { .. } => "cpu",
            Self::Memory { .. } => "memory",
            Self::Processes { .. } => "processes",
            Self::Output { .. } => "output",
            Self::Disk { .. } => "disk",
            Self::ForbiddenSyscall => "forbidden_syscall",
            Self::NetworkDenied => "network_denied",
            Self::Policy { .. } => "policy",
            Self::Cancelled => "cancelled",
            Self::LauncherFailure { .. } => "launcher_failure",
            Self::Missing => "missing",
        }
    }

    /// Returns the failure of a script that ended in this way: code, message with the end of both
    /// streams, and details with the verdict, the exit code, the exception if its interpreter
    /// printed one, and the end of both streams.
    pub fn failure(&self, language: &str, written: &Written<'_>) -> Failure {
        let failure = match self {
            Self::Exited(code) => exited(*code, language, written),
            _ => self.limit_failure().unwrap_or_else(|| self.other_failure()),
        };
        written.added_to(failure.detail("verdict", self.as_str()))
    }

    fn limit_failure(&self) -> Option<Failure> {
        let seconds = |limit: &Duration| format!("{} s", limit.as_secs_f64());
        let (category, code, message) = match self {
            Self::Wall { limit } => (
                Category::Timeout,
                "wall_limit",
                format!(
                    "the script ran longer than {}; ask for less at once",
                    seconds(limit)
                ),
            ),
            Self::Cpu { limit } => (
                Category::Limit,
                "cpu_limit",
                format!(
                    "the script used more than {} of processor time",
                    seconds(limit)
                ),
            ),
            Self::Memory { limit_bytes } => (
                Category::Limit,
                "memory_limit",
                format!("the script needed more than {limit_bytes} bytes of memory"),
            ),
            Self::Processes { limit } => (
                Category::Limit,
                "process_limit",
                format!("the script needed more than {limit} processes"),
            ),
            Self::Output { limit_bytes } => (
                Category::Limit,
                "output_limit",
                format!("the script wrote more than {limit_bytes} bytes"),
            ),
            Self::Disk {
                limit_bytes,
                limit_files,
            } => (
                Category::Limit,
                "disk_limit",
                format!("the script wrote more than {limit_bytes} bytes or {limit_files} files"),
            ),
            _ => return None,
        };
        Some(Failure::new(category, code, message))
    }

    fn other_failure(&self) -> Failure {
        let (category, code, message) = match self {
            Self::Signalled { name } => (
                Category::Runtime,
                "script_signalled",
                format!("the script was ended by the signal {name}"),
            ),
            Self::ForbiddenSyscall => (
                Category::Policy,
                "forbidden_syscall",
                "the script made a system call that no script may make and was ended".to_owned(),
            ),
            Self::NetworkDenied => (
                Category::Policy,
                "network_denied",
                "the script tried to reach a network; there is none for scripts".to_owned(),
            ),
            Self::Policy {
                policy,
                wanted,
                reached,
            } => (
                Category::Policy,
                "policy_refused",
                format!(
                    "the script was not started: {policy} demands {wanted}, and {reached} was reached"
                ),
            ),
            Self::LauncherFailure { message } => (
                Category::Dependency,
                "sandbox_failed",
                format!("the sandbox could not be set up: {message}"),
            ),
            Self::Cancelled => (
                Category::Cancelled,
                "cancelled",
                "the script was cancelled before it ended".to_owned(),
            ),
            _ => (
                Category::Dependency,
                "sandbox_failed",
                "the sandbox returned no verdict; it may be of another version".to_owned(),
            ),
        };
        Failure::new(category, code, message)
    }
}

/// Returns the failure of a script that ended by itself with a code.
fn exited(code: i32, language: &str, written: &Written<'_>) -> Failure {
    let Written { stdout, stderr } = written;
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

/// The text that a program wrote before it failed.
#[derive(Clone, Debug, Default)]
pub struct Written<'a> {
    /// To standard output.
    pub stdout: Cow<'a, str>,
    /// To standard error.
    pub stderr: Cow<'a, str>,
}

impl<'a> Written<'a> {
    /// Reads the bytes of both streams; bytes that are not UTF-8 become replacement characters.
    pub fn from_bytes(stdout: &'a [u8], stderr: &'a [u8]) -> Self {
        Self {
            stdout: String::from_utf8_lossy(stdout),
            stderr: String::from_utf8_lossy(stderr),
        }
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
    fn check(verdict: &Verdict, category: Category, code: &str) {
        let written = Written::from_bytes(b"1 failed, 2 passed", b"last words");
        let failure = verdict.failure("python3", &written);
        assert_eq!((failure.category, failure.code.as_str()), (category, code));
        for text in [&written.stdout, &written.stderr] {
            assert_eq!(failure.message.matches(&**text).count(), 1, "{failure:?}");
        }
        assert_eq!(failure.details["stdout"], "1 failed, 2 passed");
        assert_eq!(failure.details["verdict"], verdict.as_str());
        assert_eq!(failure.details["stderr"], "last words");
    }

    #[test]
    fn each_verdict_has_one_category_and_code() {
        let limit = Duration::from_secs(2);
        check(&Verdict::Exited(3), Category::Runtime, "script_exited");
        check(&Verdict::Wall { limit }, Category::Timeout, "wall_limit");
        check(&Verdict::Cpu { limit }, Category::Limit, "cpu_limit");
        check(&Verdict::Cancelled, Category::Cancelled, "cancelled");
        check(&Verdict::Missing, Category::Dependency, "sandbox_failed");
        check(&Verdict::NetworkDenied, Category::Policy, "network_denied");
        let name = "SIGSEGV".to_owned();
        check(
            &Verdict::Signalled { name },
            Category::Runtime,
            "script_signalled",
        );
    }

    #[track_caller]
    fn check_exit(language: &str, stderr: &str, message: &str) {
        let written = Written::from_bytes(b"", stderr.as_bytes());
        let failure = Verdict::Exited(1).failure(language, &written);
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
            let failure = Verdict::Exited(1).failure("bash", &written);
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
