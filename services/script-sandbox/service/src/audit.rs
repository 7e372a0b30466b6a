//! The audit log: the scripts that ran, their callers and their ends.
//!
//! There are two records for each script, streamed script and cell that ran, one at its start and
//! one at its end, and one for each valid request that was refused. Request ids with other content
//! and cells that their session does not accept leave none. A start without an end is left by a
//! service that was killed. A session has two records, one when it can be used and one when it has
//! ended. A repeated request that is answered from memory has none of its own, as no script ran;
//! the interpreters of the self-test and the waiting ones have none either, as no caller requested
//! them.
//!
//! A record is a log event of the target [`telemetry::AUDIT_TARGET`]. It holds names, figures and
//! the digest of the source, and no text that a script wrote, received or kept secret. Names of
//! callers are printable ASCII; all other content of a field is ours. A [`Record`] that is dropped
//! writes itself, so that a task that panics or is dropped leaves its record as well.

use std::time::Duration;

use blob_store::BlobDigest;
use sandbox_engine::domain::{
    isolation::{IsolationLevel, MemoryEnforcement},
    outcome::Outcome,
    owner::Owner,
    script::{Content, Program, Script},
    usage::Usage,
    verdict::{
        Verdict,
        class::{Reached, milliseconds},
    },
};
use tracing::Span;

use crate::{
    domain::session::{CellOutcome, EndReason, SessionEnd, SessionInfo},
    error::Refusal,
    metrics,
};

/// The longest name of a runtime that is recorded before the runtime is known.
const MAX_RUNTIME_BYTES: usize = 64;

/// The kind of a record about a script whose answer comes at its end.
pub(crate) const SCRIPT: &str = "script";
/// A streamed script.
pub(crate) const STREAM: &str = "stream";
/// A session.
const SESSION: &str = "session";
/// A cell of a session.
const CELL: &str = "cell";

/// A pending record; it is made once.
#[derive(Debug)]
#[must_use = "a record that is dropped reports the run as lost"]
pub(crate) struct Record {
    what: &'static str,
    owner: Owner,
    request_id: String,
    effect_id: String,
    session_id: String,
    cell: Option<u64>,
    runtime: String,
    /// `None` also if audit records are not collected.
    source_sha256: Option<String>,
    /// The span of the call to which the record belongs, in whatever task it is made.
    span: Span,
    state: RecordState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    /// No code runs so far.
    Waiting,
    /// It runs, or is about to.
    Running,
    /// The record is made, or none is wanted.
    Recorded,
}

/// The content of a record about an event.
#[derive(Debug, Default)]
struct Facts {
    verdict: &'static str,
    reached: Option<Reached>,
    code: Option<i32>,
    reason: Option<EndReason>,
    isolation: Option<IsolationLevel>,
    enforcement: Option<MemoryEnforcement>,
    wall_time: Option<Duration>,
    usage: Option<Usage>,
}

impl Facts {
    fn of(verdict: &Verdict, usage: Usage) -> Self {
        Self {
            verdict: verdict.class(),
            reached: verdict.reached(),
            code: verdict.code(),
            wall_time: Some(usage.wall_time),
            usage: Some(usage),
            ..Self::default()
        }
    }
}

impl Record {
    /// The record of a script.
    pub(crate) fn of_script(what: &'static str, script: &Script) -> Self {
        let mut record = Self::of(what, &script.owner, &script.runtime, Span::current());
        record.effect_id.clone_from(&script.effect_id);
        record.source_sha256 = is_heard().then(|| source_digest(script)).flatten();
        record
    }

    /// The record of a session.
    pub(crate) fn of_session(id: &str, request_id: &str, script: &Script) -> Self {
        let mut record = Self::of(SESSION, &script.owner, &script.runtime, Span::current());
        id.clone_into(&mut record.session_id);
        request_id.clone_into(&mut record.request_id);
        record
    }

    /// The record of a cell that runs for the call with this span.
    pub(crate) fn of_cell(session: &SessionInfo, number: u64, source: &str, span: Span) -> Self {
        let mut record = Self::of(CELL, &session.owner, &session.runtime, span);
        record.session_id.clone_from(&session.id);
        record.cell = Some(number);
        record.source_sha256 = is_heard().then(|| BlobDigest::of(source.as_bytes()).to_string());
        record.state = RecordState::Running;
        record.record("started", &Facts::default());
        record
    }

    fn of(what: &'static str, owner: &Owner, runtime: &str, span: Span) -> Self {
        let plain = runtime.len() <= MAX_RUNTIME_BYTES
            && runtime.bytes().all(|byte| byte.is_ascii_graphic());
        Self {
            what,
            owner: owner.clone(),
            request_id: String::new(),
            effect_id: String::new(),
            session_id: String::new(),
            cell: None,
            runtime: if plain { runtime } else { "unknown" }.to_owned(),
            source_sha256: None,
            span,
            state: RecordState::Waiting,
        }
    }

    /// Records that it is about to run, in the runtime of this name.
    pub(crate) fn admitted(&mut self, runtime: &str) {
        runtime.clone_into(&mut self.runtime);
        self.state = RecordState::Running;
        // The start of a session is recorded when it can be used.
        if self.what != SESSION {
            self.record("started", &Facts::default());
        }
    }

    /// Records a refusal. An invalid request leaves no record.
    pub(crate) fn refused(&mut self, refusal: Refusal) -> Refusal {
        self.state = RecordState::Recorded;
        if let Some(verdict) = class_of(&refusal) {
            self.refuse(verdict);
        }
        refusal
    }

    fn refuse(&self, verdict: &'static str) {
        metrics::refused(self.what, verdict);
        self.record(
            "refused",
            &Facts {
                verdict,
                ..Facts::default()
            },
        );
    }

    /// Drops the record: the answer is the one of an earlier request, which has its own.
    pub(crate) fn replayed(mut self) {
        self.state = RecordState::Recorded;
    }

    /// Records the end of a script.
    pub(crate) fn ended(mut self, outcome: &Outcome) {
        self.end(&Facts {
            isolation: outcome.isolation,
            enforcement: Some(outcome.enforcement),
            ..Facts::of(&outcome.verdict, outcome.usage)
        });
    }

    /// Records that a session can be used; its end is another record.
    pub(crate) fn opened(&self, session: &SessionInfo) {
        let facts = Facts {
            isolation: Some(session.isolation),
            enforcement: Some(session.enforcement),
            ..Facts::default()
        };
        self.record("opened", &facts);
    }

    /// Records the end of a session.
    pub(crate) fn session_ended(mut self, session: &SessionInfo, end: &SessionEnd) {
        self.end(&Facts {
            reason: Some(end.reason),
            isolation: Some(session.isolation),
            enforcement: Some(session.enforcement),
            ..Facts::of(&end.verdict, end.usage)
        });
    }

    /// Records the end of a cell. Memory and processor time are recorded for its session, which is
    /// one process.
    pub(crate) fn cell_ended(
        &mut self,
        outcome: CellOutcome,
        reached: Option<Reached>,
        wall_time: Duration,
    ) {
        self.end(&Facts {
            verdict: outcome.name(),
            reached,
            wall_time: Some(wall_time),
            ..Facts::default()
        });
    }

    fn end(&mut self, facts: &Facts) {
        self.state = RecordState::Recorded;
        self.record("ended", facts);
        metrics::ended(
            self.what,
            &self.runtime,
            facts.verdict,
            facts.wall_time,
            facts.usage.as_ref(),
        );
    }

    fn record(&self, event: &'static str, facts: &Facts) {
        let usage = facts.usage.as_ref();
        let tenant = self.owner.principal().tenant();
        // Strings are written with escapes, as only displayed values are not.
        tracing::info!(
            target: telemetry::AUDIT_TARGET,
            parent: &self.span,
            what = self.what,
            event,
            verdict = some(facts.verdict),
            limit = facts.reached.map(|reached| reached.limit),
            observed = facts.reached.map(|reached| reached.observed),
            unit = facts.reached.map(|reached| reached.unit),
            code = facts.code,
            reason = facts.reason.map(tracing::field::debug),
            tenant = some(tenant.as_str()).filter(|_| !tenant.is_default()),
            principal = some(self.owner.principal().recorded()),
            caller_id = self.owner.caller_id(),
            request_id = some(&self.request_id),
            effect_id = some(&self.effect_id),
            session_id = some(&self.session_id),
            cell = self.cell,
            runtime = self.runtime.as_str(),
            source_sha256 = self.source_sha256.as_deref(),
            isolation = facts.isolation.map(IsolationLevel::name),
            memory_enforcement = facts.enforcement.map(MemoryEnforcement::name),
            warm_start = usage.map(|usage| usage.warm_start),
            wall_ms = facts.wall_time.map(milliseconds),
            cpu_ms = usage.map(|usage| milliseconds(usage.cpu_time)),
            setup_ms = usage.map(|usage| milliseconds(usage.setup_time)),
            memory_bytes = usage.map(|usage| usage.max_memory),
            processes = usage.map(|usage| usage.max_processes),
            disk_bytes = usage.map(|usage| usage.max_disk),
            trace_id = telemetry::context::trace_id(&self.span),
            "untrusted code"
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        match self.state {
            RecordState::Waiting => self.refuse("abandoned"),
            RecordState::Running => self.end(&Facts {
                verdict: "lost",
                ..Facts::default()
            }),
            RecordState::Recorded => {}
        }
    }
}

/// Returns whether audit records are collected.
fn is_heard() -> bool {
    tracing::enabled!(target: telemetry::AUDIT_TARGET, tracing::Level::INFO)
}

/// The digest of the file that is the script.
fn source_digest(script: &Script) -> Option<String> {
    let digest = match &script.program {
        Program::Source(source) => BlobDigest::of(source.as_bytes()),
        Program::Entry(path) => {
            let file = script.files.iter().find(|file| file.path == *path)?;
            match &file.content {
                Content::Bytes(bytes) => BlobDigest::of(bytes),
                Content::Blob(digest) => *digest,
            }
        }
        Program::Driver => return None,
    };
    Some(digest.to_string())
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The reason for refusing a valid request; `None` for one that was never accepted.
fn class_of(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Runtime { .. } => Some("runtime_unavailable"),
        Refusal::Packages(_) => Some("packages_unavailable"),
        Refusal::Isolation { .. } => Some("isolation_unavailable"),
        Refusal::Busy { .. } => Some("overloaded"),
        Refusal::Blobs(_) => Some("blob_unavailable"),
        Refusal::Quota { .. } => Some("limit_exceeded"),
        Refusal::TenantLimit(_) => Some("tenant_limit"),
        Refusal::TenantClosed(_) => Some("tenant_closed"),
        Refusal::Lost => Some("lost"),
        Refusal::ShutDown { .. } => Some("draining"),
        Refusal::Invalid(_)
        | Refusal::RequestIdReused { .. }
        | Refusal::SessionNotFound { .. }
        | Refusal::SessionEnded { .. }
        | Refusal::SessionBusy { .. } => None,
    }
}

#[cfg(test)]
mod tests;
