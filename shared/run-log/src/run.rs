//! Runs as the log knows them: identity, state and lists.

use bytes::Bytes;
use core_types::{Durability, Principal, RequestId, RunCursor, RunId, Tenant, Timestamp};

use crate::Hash;

/// A caller's name for a request, and the hash of its body. It is unique within the tenant of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The scope within which the tenant's names are unique, such as the method.
    pub scope: String,
    /// The caller's name for the request.
    pub request_id: RequestId,
    /// A digest of the request's body, which distinguishes a repeat from a reuse of the name.
    pub body_hash: Hash,
}

/// A run that is about to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The principal to which it belongs.
    pub owner: Principal,
    /// The kind of the run, in the words of its service.
    pub kind: String,
    /// The subject that it executes, such as a workflow id; may be empty. Runs are listed by it.
    pub subject: String,
    /// The conversation that it belongs to; may be empty. Runs are listed by it.
    pub conversation: String,
    /// The request that created it; a repeat of it finds this run again.
    pub request: Option<RequestKey>,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The run of which it is a fork.
    pub forks: Option<RunId>,
    /// The time of its creation.
    pub created: Timestamp,
    /// The time by which it must have ended.
    pub deadline: Option<Timestamp>,
    /// The faults that its acknowledged events survive.
    pub durability: Durability,
    /// The owner's data for resuming it; the log never looks inside.
    pub meta: Bytes,
}

impl NewRun {
    /// Returns a durable run of `local` without subject, request, parent, origin, deadline and meta.
    pub fn new(id: RunId, kind: impl Into<String>, created: Timestamp) -> Self {
        Self {
            id,
            owner: Principal::LOCAL,
            kind: kind.into(),
            subject: String::new(),
            conversation: String::new(),
            request: None,
            parent: None,
            forks: None,
            created,
            deadline: None,
            durability: Durability::Sync,
            meta: Bytes::new(),
        }
    }
}

/// Whether a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run accepts further events.
    Open,
    /// The run has ended, with the owner's code of its end.
    Finished(i32),
}

/// The log's record of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// The principal to which it belongs.
    pub owner: Principal,
    /// The kind of the run, in the words of its service.
    pub kind: String,
    /// The subject that it executes; may be empty.
    pub subject: String,
    /// The conversation that it belongs to; may be empty.
    pub conversation: String,
    /// The request that created it.
    pub request: Option<RequestKey>,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The run of which it is a fork.
    pub forks: Option<RunId>,
    /// Whether it has ended.
    pub state: RunState,
    /// The owner's code of its phase while it is open; zero at first.
    pub phase: i32,
    /// The time of its creation.
    pub created: Timestamp,
    /// The time of its terminal event.
    pub finished: Option<Timestamp>,
    /// The time by which it must have ended.
    pub deadline: Option<Timestamp>,
    /// The time at which its owner takes it up again; `None` unless it rests.
    pub due: Option<Timestamp>,
    /// The faults that its acknowledged events survive.
    pub durability: Durability,
    /// The owner's data for resuming it.
    pub meta: Bytes,
    /// The sequence of its last event; zero when it has none.
    pub last_sequence: u64,
    /// Its key in the log.
    pub(crate) key: i64,
}

impl RunSummary {
    /// Returns the position at which a list continues after this run.
    pub fn cursor(&self) -> RunCursor {
        RunCursor::new(self.created, self.id)
    }
}

/// The owners whose runs a reader can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The principals of all tenants: for the own work of a service, such as recovery and clean-ups.
    #[default]
    All,
    /// The principals of a tenant.
    Tenant(Tenant),
    /// One principal.
    One(Principal),
}

impl Owners {
    /// Whether `owner` is among them.
    pub fn admit(&self, owner: &Principal) -> bool {
        match self {
            Self::All => true,
            Self::Tenant(tenant) => *tenant == owner.tenant(),
            Self::One(principal) => principal == owner,
        }
    }
}

/// The filter of a list of runs. All conditions must hold; the default returns every run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of these owners.
    pub owners: Owners,
    /// Only runs that execute this subject.
    pub subject: Option<String>,
    /// Only runs of this conversation.
    pub conversation: Option<String>,
    /// Only runs of this kind.
    pub kind: Option<String>,
    /// Only runs that this run started.
    pub parent: Option<RunId>,
    /// Only runs in this state.
    pub state: StateFilter,
    /// Only runs that were created at this time or later.
    pub created_since: Option<Timestamp>,
    /// Only runs that were created before this time.
    pub created_before: Option<Timestamp>,
}

impl RunFilter {
    /// Whether a text has a NUL, which no run has.
    pub(crate) fn names_none(&self) -> bool {
        let mut texts = [&self.subject, &self.conversation, &self.kind].into_iter();
        texts.any(|text| text.as_ref().is_some_and(|text| text.contains('\0')))
    }
}

/// The states of the runs that a list returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateFilter {
    /// Every state.
    #[default]
    Any,
    /// Runs that have not ended.
    Open,
    /// Runs that have not ended and do not rest.
    Awake,
    /// Runs that have not ended and are in one of these phases.
    OpenIn(&'static [i32]),
    /// Runs that have ended.
    Finished,
    /// Runs that have ended with this code of the owner.
    FinishedAs(i32),
}

/// The order of a list: by creation, then by the text of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The youngest run first.
    NewestFirst,
    /// The oldest run first.
    OldestFirst,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPage {
    /// The runs, in the requested order.
    pub runs: Vec<RunSummary>,
    /// The position at which the list continues; `None` at its end.
    pub next: Option<RunCursor>,
}

impl RunPage {
    /// Cuts a page of at most `limit` from up to `limit + 1` runs.
    pub(crate) fn cut(mut runs: Vec<RunSummary>, limit: usize) -> Self {
        let more = runs.len() > limit;
        runs.truncate(limit);
        let next = runs.last().filter(|_| more).map(RunSummary::cursor);
        Self { runs, next }
    }
}
