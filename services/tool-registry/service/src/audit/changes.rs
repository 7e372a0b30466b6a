//! Intents and outcomes of administrative changes.
//!
//! Changes of the same things follow each other from intent to outcome. So after a crash at most one change of some
//! things is open, and the things, compared with their HMAC in the intent, tell whether it was made.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use contracts::tavern::registry::v1::{
    AuditActor, AuditChangeEnded, AuditChangeIntended, AuditOutcome, AuditValues,
    audit_entry::Event,
};
use core_types::IdSource;
use tokio::sync::{Mutex, MutexGuard};
use tonic::Code;

use super::{
    chain::{Chain, entry},
    failure::AuditFailure,
    states::{Subject, Things},
};

/// Changes of things that hash to one of these follow each other.
const STRIPES: usize = 1_024;

/// A change that is about to be made.
#[derive(Clone, Debug)]
pub(crate) struct AuditedChange {
    /// `package.Service/Method`.
    pub(crate) method: String,
    pub(crate) actor: AuditActor,
    pub(crate) subject: Subject,
    /// Names in the request.
    pub(crate) values: Vec<AuditValues>,
    /// The HMAC of the request.
    pub(crate) request: String,
}

/// The end of a change, as its caller has it.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) code: Code,
    /// The ids of keys in the answer.
    pub(crate) key_ids: Vec<String>,
}

/// Records changes. Clone, cheap.
#[derive(Clone)]
pub(crate) struct AuditedChanges {
    chain: Chain,
    things: Things,
    ids: Arc<dyn IdSource>,
    stripes: Arc<[Mutex<()>]>,
}

impl AuditedChanges {
    pub(super) fn new(chain: Chain, things: Things, ids: Arc<dyn IdSource>) -> Self {
        Self {
            chain,
            things,
            ids,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) fn things(&self) -> &Things {
        &self.things
    }

    /// Records the intent of a change, makes the change, and records its outcome. Drive it to its end: a change
    /// whose future is dropped has its outcome at the next start only.
    ///
    /// # Errors
    /// [`AuditFailure`]: the intent cannot be recorded, and nothing was changed.
    pub(crate) async fn make<T>(
        &self,
        change: AuditedChange,
        make: impl Future<Output = (T, Ended)>,
    ) -> Result<T, AuditFailure> {
        let _alone = self.lock(&change.subject).await;
        let from = self.state(&change.subject).await;
        let recorded = self.things.recorded(&change.subject);
        let intended = AuditChangeIntended {
            change_id: self.ids.next_uuid().simple().to_string(),
            method: change.method,
            actor: Some(change.actor),
            subject: Some(recorded.clone()),
            values: change.values,
            request: change.request,
            from,
        };
        let intent = entry(Event::ChangeIntended(intended.clone()));
        self.chain.append(vec![intent]).await?;
        let (made, ended) = make.await;
        let mut subject = recorded;
        for key_id in ended.key_ids {
            if !subject.key_ids.contains(&key_id) {
                subject.key_ids.push(key_id);
            }
        }
        let outcome = outcome(ended.code);
        let code = match outcome {
            AuditOutcome::Done => String::new(),
            _ => name_of(ended.code).to_owned(),
        };
        let ended = AuditChangeEnded {
            change_id: intended.change_id,
            method: intended.method,
            actor: intended.actor,
            subject: Some(subject),
            outcome: outcome.into(),
            code,
            to: self.state(&change.subject).await,
            found_at_start: false,
        };
        let ended = entry(Event::ChangeEnded(ended));
        self.chain.append_or_wait(ended).await;
        Ok(made)
    }

    /// Records the outcomes of changes that a crash cut off.
    pub(super) async fn recover(&self) -> Result<(), AuditFailure> {
        let (mut ended, mut later) = (HashSet::new(), HashSet::new());
        let mut open = Vec::new();
        self.chain
            .backwards(|_, entry| {
                // No change before such a record is open.
                if entry.open_changes == 0 {
                    return false;
                }
                match entry.event {
                    Some(Event::ChangeEnded(outcome)) => {
                        ended.insert(outcome.change_id);
                    }
                    Some(Event::ChangeIntended(intended)) => {
                        let subject = intended.subject.as_ref().and_then(Things::subject);
                        // A later change of the things says nothing about this one.
                        let is_last = later.insert(subject.as_ref().map(Subject::lock));
                        if !ended.contains(&intended.change_id) {
                            open.push((intended, subject.filter(|_| is_last)));
                        }
                    }
                    _ => {}
                }
                true
            })
            .await?;
        for (intended, subject) in open.into_iter().rev() {
            let (outcome, to) = self.found(&intended.from, subject.as_ref()).await;
            let (change_id, method) = (&intended.change_id, &intended.method);
            tracing::warn!(
                change_id,
                method,
                outcome = outcome.as_str_name(),
                "a change was cut off"
            );
            let ended = AuditChangeEnded {
                change_id: intended.change_id,
                method: intended.method,
                actor: intended.actor,
                subject: intended.subject,
                outcome: outcome.into(),
                code: String::new(),
                to,
                found_at_start: true,
            };
            let ended = entry(Event::ChangeEnded(ended));
            // A disk that is full keeps no service from starting; the record waits.
            self.chain.append_or_wait(ended).await;
        }
        Ok(())
    }

    /// Returns the outcome of a change that was cut off, and the HMAC of its things.
    async fn found(&self, from: &str, subject: Option<&Subject>) -> (AuditOutcome, String) {
        let to = match subject {
            Some(subject) => self.state(subject).await,
            None => String::new(),
        };
        let outcome = match () {
            () if to.is_empty() || from.is_empty() => AuditOutcome::Unknown,
            () if to == from => AuditOutcome::Failed,
            () => AuditOutcome::Done,
        };
        (outcome, to)
    }

    /// Returns the HMAC of things; empty where they cannot be read.
    async fn state(&self, subject: &Subject) -> String {
        let state = self.things.state(subject).await;
        state.unwrap_or_else(|error| {
            tracing::warn!(%error, "the things of a change cannot be read for the audit");
            String::new()
        })
    }

    async fn lock(&self, subject: &Subject) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        subject.lock().hash(&mut hasher);
        let index = hasher.finish() % self.stripes.len() as u64;
        let index = usize::try_from(index).expect("a remainder of a length is an index");
        self.stripes[index].lock().await
    }
}

fn outcome(code: Code) -> AuditOutcome {
    match code {
        Code::Ok => AuditOutcome::Done,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Aborted => AuditOutcome::Refused,
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => AuditOutcome::Failed,
    }
}

/// Returns the name of a status as gRPC writes it.
fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
