//! From the wire to the domain. The contract has checked each field by itself.

use std::{collections::HashMap, time::Duration};

use blob_store::{BlobDigest, BlobSettings};
use contracts::tavern::sandbox::v1::{self as wire, ExecuteRequest, execute_request};
use core_types::Principal;
use sandbox_engine::domain::{
    collect::{Caps, CollectSpec},
    isolation::{IsolationLevel, MemoryEnforcement},
    limits::{Limits, RequestedLimits, Span, time_within},
    owner::Owner,
    script::{Content, InputFile, Network, PlacedWorkspace, Program, Script, ScriptSpec},
    violation::Violation,
    workspace::{WorkspaceCaps, WorkspaceFile, WorkspaceSpec},
};

use crate::runner::sandbox::Sandbox;

/// Reads a request of a principal whose limits take the default and are at most the maximum.
///
/// # Errors
/// Everything that is wrong.
pub(super) fn script(
    sandbox: &Sandbox,
    principal: &Principal,
    mut request: ExecuteRequest,
    bounds: (Limits, Limits),
) -> Result<Script, Vec<Violation>> {
    let mut problems = Vec::new();
    let mut files = files(std::mem::take(&mut request.files), &mut problems);
    let workspace = request.workspace.take().and_then(|workspace| {
        let spec = workspace_spec(workspace, &sandbox.settings().blobs, &mut problems)?;
        let first = files.len();
        files.extend(spec.files.into_iter().map(|file| InputFile {
            path: file.path,
            content: Content::Blob(file.digest),
            executable: false,
        }));
        Some(PlacedWorkspace {
            first,
            caps: spec.caps,
            directories: spec.directories,
        })
    });
    let spec = ScriptSpec {
        files,
        workspace,
        minimum_isolation: level(request.minimum_isolation()),
        minimum_enforcement: enforcement(request.minimum_memory_enforcement()),
        network: match request.network() {
            wire::NetworkPolicy::End => Network::End,
            wire::NetworkPolicy::Refuse | wire::NetworkPolicy::Unspecified => Network::Refuse,
        },
        collect: (request.collect)
            .and_then(|collect| collect_spec(&collect, &sandbox.settings().blobs, &mut problems)),
        program: match request.program {
            Some(execute_request::Program::EntryPath(path)) => Program::Entry(path),
            Some(execute_request::Program::SourceText(source)) => Program::Source(source),
            None => Program::Source(String::new()),
        },
        runtime: request.runtime,
        packages: request.packages,
        arguments: request.arguments,
        stdin: request.stdin,
        environment: variables(request.environment),
        input_json: request.input_json,
        options_json: request.options_json,
        effect_id: request.effect_id,
        conversation_id: request.conversation_id,
        traceparent: telemetry::context::current_traceparent().unwrap_or_default(),
        owner: Owner::new(principal, request.caller_id),
        limits: limits(request.limits, bounds, &mut problems),
    };
    Script::new(spec, problems)
}

pub(super) fn variables(environment: HashMap<String, String>) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = environment.into_iter().collect();
    variables.sort();
    variables
}

pub(super) fn files(files: Vec<wire::InputFile>, problems: &mut Vec<Violation>) -> Vec<InputFile> {
    let mut read = Vec::with_capacity(files.len());
    for (index, file) in files.into_iter().enumerate() {
        let field = format!("files[{index}].blob_sha256");
        let mut content = Content::Bytes(file.content);
        if !file.blob_sha256.is_empty() {
            if content.brought() > 0 {
                let problem = "must not be set together with `content`";
                problems.push(Violation::new(&field, problem));
            }
            content = match blob_digest(&field, &file.blob_sha256, problems) {
                Some(digest) => Content::Blob(digest),
                None => content,
            };
        }
        read.push(InputFile {
            path: file.path,
            content,
            executable: file.executable,
        });
    }
    read
}

pub(super) fn blob_digest(
    field: &str,
    text: &str,
    problems: &mut Vec<Violation>,
) -> Option<BlobDigest> {
    let digest = BlobDigest::parse(text);
    if digest.is_none() {
        problems.push(Violation::new(
            field,
            "must be 64 lower-case hexadecimal digits",
        ));
    }
    digest
}

fn collect_spec(
    collect: &wire::Collect,
    blobs: &BlobSettings,
    problems: &mut Vec<Violation>,
) -> Option<CollectSpec> {
    /// The longest time that collecting may take.
    const LONGEST: Duration = Duration::from_secs(30);
    let asked = collect.max_time.map(span);
    let default = Caps::DEFAULT.within(blobs);
    let caps = Caps {
        files: collect.max_files.unwrap_or(default.files),
        file_bytes: collect.max_file_bytes.unwrap_or(default.file_bytes),
        total_bytes: collect.max_total_bytes.unwrap_or(default.total_bytes),
        depth: collect.max_depth.unwrap_or(default.depth),
        time: time_within("collect.max_time", asked, default.time, LONGEST, problems),
    };
    let spec = CollectSpec::new(&collect.patterns, caps, blobs, collect.as_blobs);
    spec.map_err(|more| problems.extend(more)).ok()
}

/// Reads the files of a workspace; `None` if something is wrong.
pub(super) fn workspace_spec(
    workspace: wire::Workspace,
    blobs: &BlobSettings,
    problems: &mut Vec<Violation>,
) -> Option<WorkspaceSpec> {
    let default = WorkspaceCaps::DEFAULT;
    let caps = WorkspaceCaps {
        file_bytes: workspace.max_file_bytes.unwrap_or(default.file_bytes),
        total_bytes: workspace.max_total_bytes.unwrap_or(default.total_bytes),
        entries: workspace.max_entries.unwrap_or(default.entries),
    };
    let before = problems.len();
    let mut files = Vec::with_capacity(workspace.files.len());
    for (index, file) in workspace.files.into_iter().enumerate() {
        let field = format!("workspace.files[{index}].sha256");
        let digest = blob_digest(&field, &file.sha256, problems);
        files.extend(digest.map(|digest| WorkspaceFile {
            path: file.path,
            digest,
            size: file.size_bytes,
        }));
    }
    let spec = WorkspaceSpec::new(files, workspace.directories, caps, blobs);
    let spec = spec.map_err(|more| problems.extend(more)).ok();
    spec.filter(|_| problems.len() == before)
}

pub(super) fn span(duration: prost_types::Duration) -> Span {
    let prost_types::Duration { seconds, nanos } = duration;
    Span { seconds, nanos }
}

/// The number of a signal that may be sent; the contract rejects any other value.
pub(super) fn signal(signal: wire::ScriptSignal) -> i32 {
    use wire::ScriptSignal as Wire;
    match signal {
        Wire::Hup => libc::SIGHUP,
        Wire::Int => libc::SIGINT,
        Wire::Quit => libc::SIGQUIT,
        Wire::Usr1 => libc::SIGUSR1,
        Wire::Usr2 => libc::SIGUSR2,
        Wire::Term => libc::SIGTERM,
        Wire::Unspecified | Wire::Cont => libc::SIGCONT,
        Wire::Winch => libc::SIGWINCH,
    }
}

pub(super) fn level(level: wire::IsolationLevel) -> Option<IsolationLevel> {
    use wire::IsolationLevel as Wire;
    match level {
        Wire::Unspecified => None,
        Wire::Reduced => Some(IsolationLevel::Reduced),
        Wire::FullWithoutProc => Some(IsolationLevel::FullWithoutProc),
        Wire::Full => Some(IsolationLevel::Full),
    }
}

pub(super) fn enforcement(enforcement: wire::MemoryEnforcement) -> Option<MemoryEnforcement> {
    use wire::MemoryEnforcement as Wire;
    match enforcement {
        Wire::Unspecified => None,
        Wire::Sampled => Some(MemoryEnforcement::Sampled),
        Wire::CgroupV2 => Some(MemoryEnforcement::CgroupV2),
        Wire::CgroupV1 => Some(MemoryEnforcement::CgroupV1),
    }
}

pub(super) fn limits(
    asked: Option<wire::Limits>,
    (default, maximum): (Limits, Limits),
    problems: &mut Vec<Violation>,
) -> Limits {
    let limits = asked.unwrap_or_default();
    let asked = RequestedLimits {
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
    };
    asked.resolve(&default, &maximum).unwrap_or_else(|more| {
        problems.extend(more);
        default
    })
}
