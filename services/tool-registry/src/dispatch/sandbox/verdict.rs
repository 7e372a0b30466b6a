//! What the sandbox's verdict means for a call.

use contracts::tavern::sandbox::v1::{ExecuteResponse, verdict::Kind};
use serde_json::{Map, Value, json};

use crate::domain::ending::{Category, Failure};

const MAX_STDERR_CHARS: usize = 2_000;

/// How a program ended.
#[derive(Debug)]
pub(in crate::dispatch) enum Ended {
    /// By itself, with this code.
    WithCode(i32),
    /// In any other way.
    Failed(Failure),
}

/// Reads the verdict on a program.
pub(in crate::dispatch) fn read_verdict(response: &ExecuteResponse) -> Ended {
    let Some(kind) = response
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.kind.as_ref())
    else {
        return Ended::Failed(Failure::new(
            Category::Dependency,
            "sandbox_failed",
            "the sandbox gave no verdict; it may be of another version",
        ));
    };
    if let Kind::Exited(exited) = kind {
        return Ended::WithCode(exited.code);
    }
    let failure = limit_passed(kind).unwrap_or_else(|| ended_otherwise(kind));
    Ended::Failed(failure.details(details(response, name_of(kind), None)))
}

/// Makes the failure of a program that passed a limit.
fn limit_passed(kind: &Kind) -> Option<Failure> {
    let (category, code, message) = match kind {
        Kind::Wall(wall) => (
            Category::Timeout,
            "wall_limit",
            format!(
                "the script ran longer than {}; ask for less at once",
                seconds(wall.limit.as_ref())
            ),
        ),
        Kind::Cpu(cpu) => (
            Category::Limit,
            "cpu_limit",
            format!(
                "the script used more than {} of processor time",
                seconds(cpu.limit.as_ref())
            ),
        ),
        Kind::Memory(memory) => (
            Category::Limit,
            "memory_limit",
            format!(
                "the script needed more than {} bytes of memory",
                memory.limit_bytes
            ),
        ),
        Kind::Processes(processes) => (
            Category::Limit,
            "process_limit",
            format!("the script needed more than {} processes", processes.limit),
        ),
        Kind::Output(output) => (
            Category::Limit,
            "output_limit",
            format!("the script wrote more than {} bytes", output.limit_bytes),
        ),
        Kind::Disk(disk) => (
            Category::Limit,
            "disk_limit",
            format!(
                "the script wrote more than {} bytes or {} files",
                disk.limit_bytes, disk.limit_files
            ),
        ),
        _ => return None,
    };
    Some(Failure::new(category, code, message))
}

/// Makes the failure of a program that ended in any way but by itself or at a limit.
fn ended_otherwise(kind: &Kind) -> Failure {
    match kind {
        Kind::Signalled(signalled) => Failure::new(
            Category::Runtime,
            "script_signalled",
            format!("the script was ended by the signal {}", signalled.name),
        ),
        Kind::ForbiddenSyscall(_) => Failure::new(
            Category::Policy,
            "forbidden_syscall",
            "the script made a system call that no script may make and was ended",
        ),
        Kind::NetworkDenied(_) => Failure::new(
            Category::Policy,
            "network_denied",
            "the script tried to reach a network; there is none for scripts",
        ),
        Kind::Policy(policy) => Failure::new(
            Category::Policy,
            "policy_refused",
            format!(
                "the script was not started: {} demands {}, and {} was reached",
                policy.policy, policy.wanted, policy.reached
            ),
        ),
        Kind::LauncherFailure(failure) => Failure::new(
            Category::Dependency,
            "sandbox_failed",
            format!("the sandbox could not be set up: {}", failure.message),
        ),
        _ => Failure::new(
            Category::Timeout,
            "deadline_exceeded",
            "the script was ended because its call was over",
        ),
    }
}

/// Makes the failure of a program that ended with a code other than zero.
pub(in crate::dispatch) fn exited(response: &ExecuteResponse, code: i32) -> Failure {
    let stderr = String::from_utf8_lossy(&response.stderr);
    let last = stderr
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let said: String = last.trim().chars().take(300).collect();
    let message = match said.as_str() {
        "" => format!("the script ended with the code {code} and said nothing"),
        said => format!("the script ended with the code {code}: {said}"),
    };
    Failure::new(Category::Runtime, "script_exited", message).details(details(
        response,
        "exited",
        Some(code),
    ))
}

/// Returns the last characters of a text.
pub(in crate::dispatch) fn tail(text: &str, characters: usize) -> String {
    let skip = text.chars().count().saturating_sub(characters);
    text.chars().skip(skip).collect()
}

fn details(response: &ExecuteResponse, verdict: &str, code: Option<i32>) -> Value {
    let mut details = Map::new();
    details.insert("verdict".to_owned(), json!(verdict));
    if let Some(code) = code {
        details.insert("exit_code".to_owned(), json!(code));
    }
    let stderr = tail(&String::from_utf8_lossy(&response.stderr), MAX_STDERR_CHARS);
    details.insert("stderr".to_owned(), json!(stderr));
    Value::Object(details)
}

fn name_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Exited(_) => "exited",
        Kind::Signalled(_) => "signalled",
        Kind::Wall(_) => "wall",
        Kind::Cpu(_) => "cpu",
        Kind::Memory(_) => "memory",
        Kind::Processes(_) => "processes",
        Kind::Output(_) => "output",
        Kind::Disk(_) => "disk",
        Kind::ForbiddenSyscall(_) => "forbidden_syscall",
        Kind::NetworkDenied(_) => "network_denied",
        Kind::Policy(_) => "policy",
        Kind::Cancelled(_) => "cancelled",
        Kind::LauncherFailure(_) => "launcher_failure",
    }
}

fn seconds(duration: Option<&prost_types::Duration>) -> String {
    let duration = duration
        .copied()
        .and_then(|duration| std::time::Duration::try_from(duration).ok());
    format!("{} s", duration.unwrap_or_default().as_secs_f64())
}
