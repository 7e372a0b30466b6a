//! The failure of a script, from the sandbox's verdict on it.

use std::time::Duration;

use call_outcome::{Category, Failure, Written};
use contracts::tavern::sandbox::v1::{self as sandbox, verdict::Kind};

/// Returns the code with which a script ended by itself; nothing if it did not.
pub fn exit_code(verdict: Option<&sandbox::Verdict>) -> Option<i32> {
    match verdict?.kind.as_ref()? {
        Kind::Exited(exited) => Some(exited.code),
        _ => None,
    }
}

/// Returns the failure of a script that ended in this way, whatever code it ended with: its message has the end of
/// both streams, and its details the verdict, the exit code, the exception if its interpreter printed one, and the
/// end of both streams.
pub fn script_failure(
    verdict: Option<&sandbox::Verdict>,
    language: &str,
    written: &Written<'_>,
) -> Failure {
    let (word, failure) = match verdict.and_then(|verdict| verdict.kind.as_ref()) {
        Some(Kind::Exited(exited)) => ("exited", written.exited(exited.code, language)),
        Some(kind) => of_limit(kind).unwrap_or_else(|| of_other(kind)),
        None => {
            let message = "the sandbox returned no verdict; it may be of another version";
            let failure = Failure::new(Category::Dependency, "sandbox_failed", message);
            ("missing", failure)
        }
    };
    written.added_to(failure.detail("verdict", word))
}

/// Returns the word and the failure of a verdict on a limit.
fn of_limit(kind: &Kind) -> Option<(&'static str, Failure)> {
    let seconds = |limit: Option<prost_types::Duration>| {
        let limit = limit.and_then(|limit| Duration::try_from(limit).ok());
        format!("{} s", limit.unwrap_or_default().as_secs_f64())
    };
    let (word, code, message) = match kind {
        Kind::Wall(wall) => {
            let limit = seconds(wall.limit);
            let message = format!("the script ran longer than {limit}; ask for less at once");
            let failure = Failure::new(Category::Timeout, "wall_limit", message);
            return Some(("wall", failure));
        }
        Kind::Cpu(cpu) => {
            let limit = seconds(cpu.limit);
            let message = format!("the script used more than {limit} of processor time");
            ("cpu", "cpu_limit", message)
        }
        Kind::Memory(sandbox::MemoryExceeded { limit_bytes, .. }) => {
            let message = format!("the script needed more than {limit_bytes} bytes of memory");
            ("memory", "memory_limit", message)
        }
        Kind::Processes(sandbox::ProcessesExceeded { limit, .. }) => {
            let message = format!("the script needed more than {limit} processes");
            ("processes", "process_limit", message)
        }
        Kind::Output(sandbox::OutputExceeded { limit_bytes, .. }) => {
            let message = format!("the script wrote more than {limit_bytes} bytes");
            ("output", "output_limit", message)
        }
        Kind::Disk(disk) => {
            let (bytes, files) = (disk.limit_bytes, disk.limit_files);
            let message = format!("the script wrote more than {bytes} bytes or {files} files");
            ("disk", "disk_limit", message)
        }
        _ => return None,
    };
    Some((word, Failure::new(Category::Limit, code, message)))
}

/// Returns the word and the failure of a verdict on no limit.
fn of_other(kind: &Kind) -> (&'static str, Failure) {
    let of = |word, category, code, message: String| (word, Failure::new(category, code, message));
    match kind {
        Kind::Signalled(sandbox::Signalled { name, .. }) => {
            let message = format!("the script was ended by the signal {name}");
            of("signalled", Category::Runtime, "script_signalled", message)
        }
        Kind::ForbiddenSyscall(_) => {
            let message = "the script made a system call that no script may make and was ended";
            let code = "forbidden_syscall";
            of(code, Category::Policy, code, message.to_owned())
        }
        Kind::NetworkDenied(_) => {
            let message = "the script tried to reach a network; there is none for scripts";
            let code = "network_denied";
            of(code, Category::Policy, code, message.to_owned())
        }
        Kind::Policy(sandbox::PolicyRefused {
            policy,
            wanted,
            reached,
            ..
        }) => {
            let message = format!(
                "the script was not started: {policy} demands {wanted}, and {reached} was reached"
            );
            of("policy", Category::Policy, "policy_refused", message)
        }
        Kind::LauncherFailure(failure) => {
            let message = format!("the sandbox could not be set up: {}", failure.message);
            let word = "launcher_failure";
            of(word, Category::Dependency, "sandbox_failed", message)
        }
        _ => {
            let message = "the script was cancelled before it ended".to_owned();
            of("cancelled", Category::Cancelled, "cancelled", message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Option<Kind>, word: &str, category: Category, code: &str) {
        let written = Written::from_bytes(b"1 failed, 2 passed", b"last words");
        let failure = script_failure(Some(&sandbox::Verdict { kind }), "python3", &written);
        assert_eq!((failure.category, failure.code.as_str()), (category, code));
        for text in [&written.stdout, &written.stderr] {
            assert_eq!(failure.message.matches(&**text).count(), 1, "{failure:?}");
        }
        assert_eq!(failure.details["stdout"], "1 failed, 2 passed");
        assert_eq!(failure.details["verdict"], word);
        assert_eq!(failure.details["stderr"], "last words");
    }

    #[test]
    fn each_verdict_has_one_category_and_code() {
        let exited = |code| Kind::Exited(sandbox::Exited { code });
        let wall = sandbox::WallExceeded::default();
        for (kind, word, category, code) in [
            (exited(3), "exited", Category::Runtime, "script_exited"),
            (Kind::Wall(wall), "wall", Category::Timeout, "wall_limit"),
            (
                Kind::Cpu(Default::default()),
                "cpu",
                Category::Limit,
                "cpu_limit",
            ),
            (
                Kind::Cancelled(Default::default()),
                "cancelled",
                Category::Cancelled,
                "cancelled",
            ),
            (
                Kind::NetworkDenied(Default::default()),
                "network_denied",
                Category::Policy,
                "network_denied",
            ),
            (
                Kind::Signalled(Default::default()),
                "signalled",
                Category::Runtime,
                "script_signalled",
            ),
        ] {
            check(Some(kind), word, category, code);
        }
        check(None, "missing", Category::Dependency, "sandbox_failed");
        let verdict = |kind| sandbox::Verdict { kind: Some(kind) };
        assert_eq!(exit_code(Some(&verdict(exited(0)))), Some(0));
        let cancelled = verdict(Kind::Cancelled(Default::default()));
        assert_eq!(exit_code(Some(&cancelled)), None);
    }

    #[test]
    fn a_limit_of_time_is_named() {
        let limit = Some(prost_types::Duration {
            seconds: 2,
            nanos: 0,
        });
        let wall = sandbox::WallExceeded {
            limit,
            ..Default::default()
        };
        let (_, failure) = of_limit(&Kind::Wall(wall)).unwrap();
        assert!(failure.message.contains("longer than 2 s"), "{failure:?}");
    }
}
