//! From the wire to the domain.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use blob_store::BlobDigest;
use contracts::tavern::sandbox::v1::{
    self as wire, CreateSessionRequest, ExecuteRequest, execute_request,
};
use prost::Message;
use sandbox_engine::domain::{
    collect::{self, Caps},
    isolation::{IsolationLevel, MemoryEnforcement},
    limits::{Limits, RequestedLimits, Span},
    script::{Content, InputFile, Network, Program, Script},
    violation::Violation,
};
use sha2::{Digest as _, Sha256};

/// A request that is answered once for each id.
pub(super) trait Repeatable: Message {
    fn request_id(&self) -> &str;
    fn environment(&mut self) -> &mut HashMap<String, String>;
}

impl Repeatable for ExecuteRequest {
    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn environment(&mut self) -> &mut HashMap<String, String> {
        &mut self.environment
    }
}

impl Repeatable for CreateSessionRequest {
    fn request_id(&self) -> &str {
        &self.request_id
    }

    fn environment(&mut self) -> &mut HashMap<String, String> {
        &mut self.environment
    }
}

/// What distinguishes two requests of the same id: everything in them, the order of variables aside.
/// The request is as it was afterwards.
pub(super) fn digest(request: &mut impl Repeatable) -> [u8; 32] {
    if request.request_id().is_empty() {
        return [0; 32];
    }
    let mut hash = Sha256::new();
    let variables = mem::take(request.environment());
    let sorted: BTreeMap<&String, &String> = variables.iter().collect();
    for text in sorted.into_iter().flat_map(|(name, value)| [name, value]) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.update(request.encode_to_vec());
    *request.environment() = variables;
    hash.finalize().into()
}

/// Refuses a request that names no runtime.
pub(super) fn runtime(name: &str, refuse: &mut impl FnMut(&str, &str)) {
    if name.is_empty() {
        refuse(
            "runtime",
            "must not be empty; ListRuntimes names what there is",
        );
    }
}

/// The least that a script is content with.
pub(super) fn minima(
    isolation: i32,
    memory_enforcement: i32,
    refuse: &mut impl FnMut(&str, &str),
) -> (Option<IsolationLevel>, Option<MemoryEnforcement>) {
    let isolation = level(isolation).unwrap_or_else(|()| {
        refuse("minimum_isolation", "is no known level");
        None
    });
    let enforcement = enforcement(memory_enforcement).unwrap_or_else(|()| {
        refuse("minimum_memory_enforcement", "is no known kind");
        None
    });
    (isolation, enforcement)
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
    most_collected: &Caps,
) -> Result<Script, Vec<Violation>> {
    let mut problems = Vec::new();
    let mut refuse = |field: &str, problem: &str| {
        problems.push(Violation {
            field: field.to_owned(),
            problem: problem.to_owned(),
        });
    };
    runtime(&request.runtime, &mut refuse);
    let program = request.program.map(program);
    if program.is_none() {
        refuse("program", "must be set: source_text or entry_path");
    }
    let (minimum_isolation, minimum_enforcement) = minima(
        request.minimum_isolation,
        request.minimum_memory_enforcement,
        &mut refuse,
    );
    let network = network(request.network).unwrap_or_else(|()| {
        refuse("network", "is no known policy");
        Network::Refuse
    });
    let files = files(request.files, &mut refuse);
    let limits = match asked(&request.limits.unwrap_or_default()).resolve(default, maximum) {
        Ok(limits) => limits,
        Err(more) => {
            problems.extend(more);
            *default
        }
    };
    let mut environment: Vec<(String, String)> = request.environment.into_iter().collect();
    environment.sort();
    let collect = request.collect.map(wanted);
    let collect = collect.and_then(|asked| match asked.resolve(most_collected) {
        Ok(collect) => Some(collect),
        Err(more) => {
            problems.extend(more);
            None
        }
    });
    let script = Script {
        runtime: request.runtime,
        program: program.unwrap_or(Program::Source(String::new())),
        files,
        arguments: request.arguments,
        stdin: request.stdin,
        environment,
        input_json: request.input_json,
        effect_id: request.effect_id,
        conversation_id: request.conversation_id,
        traceparent,
        limits,
        minimum_isolation,
        minimum_enforcement,
        collect,
        network,
        caller: request.caller_id,
    };
    if problems.is_empty() {
        return Ok(script);
    }
    let more = script.problems().into_iter();
    // Without a program there is nothing to say about its text.
    problems.extend(more.filter(|problem| problem.field != "source_text"));
    Err(problems)
}

fn program(program: execute_request::Program) -> Program {
    match program {
        execute_request::Program::SourceText(source) => Program::Source(source),
        execute_request::Program::EntryPath(path) => Program::Entry(path),
    }
}

pub(super) fn files(
    files: Vec<wire::InputFile>,
    refuse: &mut impl FnMut(&str, &str),
) -> Vec<InputFile> {
    let mut read = Vec::with_capacity(files.len());
    for (index, file) in files.into_iter().enumerate() {
        let field = format!("files[{index}].blob_sha256");
        let mut content = Content::Bytes(file.content);
        if !file.blob_sha256.is_empty() {
            if content.brought() > 0 {
                refuse(&field, "must not be set together with `content`");
            }
            match BlobDigest::parse(&file.blob_sha256) {
                Some(digest) => content = Content::Blob(digest),
                None => refuse(&field, "must be 64 lower-case hexadecimal digits"),
            }
        }
        read.push(InputFile {
            path: file.path,
            content,
            executable: file.executable,
        });
    }
    read
}

fn wanted(collect: wire::Collect) -> collect::RequestedCollect {
    collect::RequestedCollect {
        patterns: collect.patterns,
        files: collect.max_files,
        file_bytes: collect.max_file_bytes,
        total_bytes: collect.max_total_bytes,
        depth: collect.max_depth,
        time: collect.max_time.map(span),
        as_blobs: collect.as_blobs,
    }
}

fn network(value: i32) -> Result<Network, ()> {
    use wire::NetworkPolicy as Wire;
    Ok(match Wire::try_from(value).map_err(|_| ())? {
        Wire::Unspecified | Wire::Refuse => Network::Refuse,
        Wire::End => Network::End,
    })
}

pub(super) fn span(duration: prost_types::Duration) -> Span {
    let prost_types::Duration { seconds, nanos } = duration;
    Span { seconds, nanos }
}

/// The number of a signal that may be sent.
pub(super) fn signal(value: i32) -> Option<i32> {
    use wire::ScriptSignal as Wire;
    Some(match Wire::try_from(value).ok()? {
        Wire::Unspecified => return None,
        Wire::Hup => libc::SIGHUP,
        Wire::Int => libc::SIGINT,
        Wire::Quit => libc::SIGQUIT,
        Wire::Usr1 => libc::SIGUSR1,
        Wire::Usr2 => libc::SIGUSR2,
        Wire::Term => libc::SIGTERM,
        Wire::Cont => libc::SIGCONT,
        Wire::Winch => libc::SIGWINCH,
    })
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

pub(super) fn asked(limits: &wire::Limits) -> RequestedLimits {
    RequestedLimits {
        wall_time: limits.wall_time.map(span),
        cpu_time: limits.cpu_time.map(span),
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
