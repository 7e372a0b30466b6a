//! From the wire to the domain.

use std::collections::BTreeMap;

use contracts::tavern::sandbox::v1::{self as wire, ExecuteRequest, execute_request};
use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::domain::{
    isolation::{IsolationLevel, MemoryEnforcement},
    limits::{Asked, Limits, Span},
    request::{InputFile, Program, Script, Violation},
};

/// What tells two requests of the same id apart: everything in them, the order of variables aside.
pub(super) fn digest(request: &ExecuteRequest) -> [u8; 32] {
    if request.request_id.is_empty() {
        return [0; 32];
    }
    let mut hash = Sha256::new();
    let variables: BTreeMap<&String, &String> = request.environment.iter().collect();
    for text in variables
        .into_iter()
        .flat_map(|(name, value)| [name, value])
    {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let rest = ExecuteRequest {
        environment: Default::default(),
        ..request.clone()
    };
    hash.update(rest.encode_to_vec());
    hash.finalize().into()
}

/// Reads a request; what the domain checks is not checked here.
///
/// # Errors
/// Everything that has no meaning in the domain, and every limit out of range.
pub(super) fn script(
    request: ExecuteRequest,
    traceparent: String,
    default: &Limits,
    maximum: &Limits,
) -> Result<Script, Vec<Violation>> {
    let mut problems = Vec::new();
    let mut refuse = |field: &str, problem: &str| {
        problems.push(Violation {
            field: field.to_owned(),
            problem: problem.to_owned(),
        });
    };
    if request.runtime.is_empty() {
        refuse(
            "runtime",
            "must not be empty; ListRuntimes names what there is",
        );
    }
    let program = match request.program {
        Some(execute_request::Program::SourceText(source)) => Some(Program::Source(source)),
        Some(execute_request::Program::EntryPath(path)) => Some(Program::Entry(path)),
        None => {
            refuse("program", "must be set: source_text or entry_path");
            None
        }
    };
    let minimum_isolation = level(request.minimum_isolation).unwrap_or_else(|()| {
        refuse("minimum_isolation", "is no known level");
        None
    });
    let minimum_enforcement =
        enforcement(request.minimum_memory_enforcement).unwrap_or_else(|()| {
            refuse("minimum_memory_enforcement", "is no known kind");
            None
        });
    let limits = match asked(&request.limits.unwrap_or_default()).resolve(default, maximum) {
        Ok(limits) => limits,
        Err(more) => {
            problems.extend(more);
            *default
        }
    };
    let mut environment: Vec<(String, String)> = request.environment.into_iter().collect();
    environment.sort();
    let files = request.files.into_iter().map(|file| InputFile {
        path: file.path,
        content: file.content,
        executable: file.executable,
    });
    let script = Script {
        runtime: request.runtime,
        program: program.unwrap_or(Program::Source(String::new())),
        files: files.collect(),
        arguments: request.arguments,
        stdin: request.stdin,
        environment,
        input_json: request.input_json,
        effect_id: request.effect_id,
        traceparent,
        limits,
        minimum_isolation,
        minimum_enforcement,
    };
    if problems.is_empty() {
        return Ok(script);
    }
    let more = script.problems().into_iter();
    // Without a program there is nothing to say about its text.
    problems.extend(more.filter(|problem| problem.field != "source_text"));
    Err(problems)
}

fn level(value: i32) -> Result<Option<IsolationLevel>, ()> {
    use wire::IsolationLevel as Wire;
    Ok(match Wire::try_from(value).map_err(|_| ())? {
        Wire::Unspecified => None,
        Wire::Reduced => Some(IsolationLevel::Reduced),
        Wire::FullWithoutProc => Some(IsolationLevel::FullWithoutProc),
        Wire::Full => Some(IsolationLevel::Full),
    })
}

fn enforcement(value: i32) -> Result<Option<MemoryEnforcement>, ()> {
    use wire::MemoryEnforcement as Wire;
    Ok(match Wire::try_from(value).map_err(|_| ())? {
        Wire::Unspecified => None,
        Wire::Sampled => Some(MemoryEnforcement::Sampled),
        Wire::CgroupV2 => Some(MemoryEnforcement::CgroupV2),
        Wire::CgroupV1 => Some(MemoryEnforcement::CgroupV1),
    })
}

fn asked(limits: &wire::Limits) -> Asked {
    let span = |duration: Option<prost_types::Duration>| {
        duration.map(|prost_types::Duration { seconds, nanos }| Span { seconds, nanos })
    };
    Asked {
        wall_time: span(limits.wall_time),
        cpu_time: span(limits.cpu_time),
        memory: limits.memory_bytes,
        processes: limits.processes,
        file: limits.file_bytes,
        disk: limits.disk_bytes,
        disk_files: limits.disk_files,
        open_files: limits.open_files,
        output: limits.output_bytes,
        result: limits.result_bytes,
    }
}
