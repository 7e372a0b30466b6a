//! The audit log: who had what run, and how that ended.
//!
//! There are two records for each script, streamed script and cell that ran, one when it starts and one
//! when it has ended, and one for each that was refused although its request was sound, but for request
//! ids that have other content and cells that their session does not take. A start without an end is
//! what a service leaves that was killed. A session has two, one when it can be used and one when it has
//! ended. A
//! repeated request that is answered from memory has none of its own, as nothing ran; the interpreters
//! of the self-test and those that wait have none either, as no caller asked for them.
//!
//! A record is a log event of the target [`telemetry::AUDIT_TARGET`]. It holds names, figures and the
//! digest of the source, and nothing that a script wrote, was given or kept secret. Names of callers
//! are printable ASCII; whatever else stands in a field is ours. A [`Record`] that is dropped writes
//! itself, so that a task that panics or is thrown away leaves its record as well.

use std::time::Duration;

use blob_store::BlobDigest;
use sandbox_engine::domain::{
    isolation::{IsolationLevel, MemoryEnforcement},
    outcome::Outcome,
    script::{Content, Program, Script},
    usage::Usage,
    verdict::class::{Reached, milliseconds},
};
use tracing::Span;

use crate::{
    domain::session::{CellOutcome, EndReason, SessionEnd, SessionInfo},
    error::Refusal,
    metrics,
};

/// The longest name of a runtime that is recorded before it is known.
const MAX_RUNTIME_BYTES: usize = 64;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A script whose answer comes at its end.
    Script,
    /// A streamed script.
    Stream,
    /// A session.
    Session,
    /// A cell of a session.
    Cell,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Stream => "stream",
            Self::Session => "session",
            Self::Cell => "cell",
        }
    }
}

/// A record that is still to be made; it is made once.
#[derive(Debug)]
#[must_use = "a record that is dropped reports the run as lost"]
pub(crate) struct Record {
    subject: Subject,
    /// The span of the call, which the record belongs to whatever task makes it.
    span: Span,
    state: RecordState,
}

/// What is known before anything runs.
#[derive(Debug)]
struct Subject {
    what: What,
    caller: String,
    request_id: String,
    effect_id: String,
    session_id: String,
    cell: Option<u64>,
    runtime: String,
    /// `None` also if audit records are not collected.
    source_sha256: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    /// Nothing runs so far.
    Waiting,
    /// It runs, or is about to.
    Running,
    /// The record is made, or there is to be none.
    Recorded,
}

/// What a record reports.
#[derive(Clone, Copy, Debug, Default)]
enum Event {
    /// It has not been let run.
    #[default]
    Refused,
    /// A session can be used.
    Opened,
    /// It is about to run.
    Started,
    /// It ran, and has ended.
    Ended,
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Opened => "opened",
            Self::Started => "started",
            Self::Ended => "ended",
        }
    }
}

/// What a record says beyond that.
#[derive(Debug, Default)]
struct Facts {
    event: Event,
    verdict: &'static str,
    reached: Option<Reached>,
    code: Option<i32>,
    reason: Option<EndReason>,
    isolation: Option<IsolationLevel>,
    enforcement: Option<MemoryEnforcement>,
    wall_time: Option<Duration>,
    usage: Option<Usage>,
}

impl Record {
    /// The record of a script.
    pub(crate) fn of_script(what: What, request_id: &str, script: &Script) -> Self {
        let source_sha256 = is_heard().then(|| source_digest(script)).flatten();
        let subject = Subject {
            effect_id: script.effect_id.clone(),
            source_sha256,
            ..Subject::of(what, request_id, &script.caller, &script.runtime)
        };
        Self::new(subject, Span::current(), RecordState::Waiting)
    }

    /// The record of a session.
    pub(crate) fn of_session(id: &str, request_id: &str, script: &Script) -> Self {
        let subject = Subject {
            session_id: id.to_owned(),
            ..Subject::of(What::Session, request_id, &script.caller, &script.runtime)
        };
        Self::new(subject, Span::current(), RecordState::Waiting)
    }

    /// The record of a cell that is begun for the call with this span.
    pub(crate) fn of_cell(session: &SessionInfo, number: u64, source: &str, span: Span) -> Self {
        let digest = || BlobDigest::of(source.as_bytes()).to_string();
        let subject = Subject {
            session_id: session.id.clone(),
            cell: Some(number),
            source_sha256: is_heard().then(digest),
            ..Subject::of(What::Cell, "", &session.caller, &session.runtime)
        };
        let record = Self::new(subject, span, RecordState::Running);
        record.started();
        record
    }

    fn new(subject: Subject, span: Span, state: RecordState) -> Self {
        Self {
            subject,
            span,
            state,
        }
    }

    /// It is about to run, in the runtime of this name.
    pub(crate) fn admitted(&mut self, runtime: &str) {
        runtime.clone_into(&mut self.subject.runtime);
        self.state = RecordState::Running;
        // The start of a session is recorded when it can be used.
        if self.subject.what != What::Session {
            self.started();
        }
    }

    fn started(&self) {
        self.record(&Facts {
            event: Event::Started,
            ..Facts::default()
        });
    }

    /// It is refused. A request that was never sound leaves no record.
    pub(crate) fn refused(&mut self, refusal: Refusal) -> Refusal {
        self.state = RecordState::Recorded;
        if let Some(verdict) = class_of(&refusal) {
            self.record(&Facts {
                event: Event::Refused,
                verdict,
                ..Facts::default()
            });
        }
        refusal
    }

    /// The answer is that of an earlier request, which has its record.
    pub(crate) fn replayed(mut self) {
        self.state = RecordState::Recorded;
    }

    /// A script has ended.
    pub(crate) fn ended(mut self, outcome: &Outcome) {
        self.state = RecordState::Recorded;
        self.record(&Facts {
            event: Event::Ended,
            verdict: outcome.verdict.class(),
            reached: outcome.verdict.reached(),
            code: outcome.verdict.code(),
            isolation: outcome.isolation,
            enforcement: Some(outcome.enforcement),
            usage: Some(outcome.usage),
            ..Facts::default()
        });
    }

    /// A session can be used; its end is another record.
    pub(crate) fn opened(&self, session: &SessionInfo) {
        self.record(&Facts {
            event: Event::Opened,
            isolation: Some(session.isolation),
            enforcement: Some(session.enforcement),
            ..Facts::default()
        });
    }

    /// A session has ended.
    pub(crate) fn session_ended(mut self, session: &SessionInfo, end: &SessionEnd) {
        self.state = RecordState::Recorded;
        self.record(&Facts {
            event: Event::Ended,
            verdict: end.verdict.class(),
            reached: end.verdict.reached(),
            code: end.verdict.code(),
            reason: Some(end.reason),
            isolation: Some(session.isolation),
            enforcement: Some(session.enforcement),
            usage: Some(end.usage),
            ..Facts::default()
        });
    }

    /// A cell has ended. Memory and processor time are recorded for its session, which is one process.
    pub(crate) fn cell_ended(
        &mut self,
        outcome: CellOutcome,
        reached: Option<Reached>,
        wall_time: Duration,
    ) {
        self.state = RecordState::Recorded;
        self.record(&Facts {
            event: Event::Ended,
            verdict: outcome.name(),
            reached,
            wall_time: Some(wall_time),
            ..Facts::default()
        });
    }

    fn record(&self, facts: &Facts) {
        let Subject {
            what,
            caller,
            request_id,
            effect_id,
            session_id,
            cell,
            runtime,
            source_sha256,
        } = &self.subject;
        let usage = facts.usage.as_ref();
        let wall_time = facts.wall_time.or(usage.map(|usage| usage.wall_time));
        match facts.event {
            Event::Ended => metrics::ended(what.name(), runtime, facts.verdict, wall_time, usage),
            Event::Refused => metrics::refused(what.name(), facts.verdict),
            Event::Opened | Event::Started => {}
        }
        // Strings are written with escapes, as only displayed values are not.
        tracing::info!(
            target: telemetry::AUDIT_TARGET,
            parent: &self.span,
            what = what.name(),
            event = facts.event.name(),
            verdict = some(facts.verdict),
            limit = facts.reached.map(|reached| reached.limit),
            observed = facts.reached.map(|reached| reached.observed),
            unit = facts.reached.map(|reached| reached.unit),
            code = facts.code,
            reason = facts.reason.map(tracing::field::debug),
            caller_id = caller.as_str(),
            request_id = some(request_id),
            effect_id = some(effect_id),
            session_id = some(session_id),
            cell = cell,
            runtime = runtime.as_str(),
            source_sha256 = source_sha256.as_deref(),
            isolation = facts.isolation.map(IsolationLevel::name),
            memory_enforcement = facts.enforcement.map(MemoryEnforcement::name),
            warm_start = usage.map(|usage| usage.warm_start),
            wall_ms = wall_time.map(milliseconds),
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
        let (event, verdict) = match self.state {
            RecordState::Waiting => (Event::Refused, "abandoned"),
            RecordState::Running => (Event::Ended, "lost"),
            RecordState::Recorded => return,
        };
        self.record(&Facts {
            event,
            verdict,
            ..Facts::default()
        });
    }
}

impl Subject {
    fn of(what: What, request_id: &str, caller: &str, runtime: &str) -> Self {
        let plain = runtime.len() <= MAX_RUNTIME_BYTES
            && runtime.bytes().all(|byte| byte.is_ascii_graphic());
        Self {
            what,
            caller: caller.to_owned(),
            request_id: request_id.to_owned(),
            effect_id: String::new(),
            session_id: String::new(),
            cell: None,
            runtime: if plain { runtime } else { "unknown" }.to_owned(),
            source_sha256: None,
        }
    }
}

/// Returns whether a record goes anywhere at all.
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
    };
    Some(digest.to_string())
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Why something sound was refused; `None` for what was never accepted.
fn class_of(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Runtime { .. } => Some("runtime_unavailable"),
        Refusal::Isolation { .. } => Some("isolation_unavailable"),
        Refusal::Busy { .. } => Some("overloaded"),
        Refusal::Blobs(_) => Some("blob_unavailable"),
        Refusal::Quota { .. } => Some("limit_exceeded"),
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
