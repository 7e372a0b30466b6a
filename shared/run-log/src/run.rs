//! Runs as the log knows them: identity, state and how they are listed.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use core_types::{Durability, RequestId, RunId, RunIdError, Timestamp};

use crate::Hash;

/// A caller's name for a request, and what the request said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Within what the name is unique, such as tenant and method.
    pub scope: String,
    /// The caller's name for the request.
    pub request_id: RequestId,
    /// A digest of the request's body, by which a repeat is told from a reuse of the name.
    pub body_hash: Hash,
}

/// A run that is about to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// What sort of run it is, in the owner's words.
    pub kind: String,
    /// What it is about, such as a conversation id; empty for nothing. Runs are found by it.
    pub subject: String,
    /// The request that asked for it; a repeat of it finds this run again.
    pub request: Option<RequestKey>,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// When it was created.
    pub created: Timestamp,
    /// When it must have ended.
    pub deadline: Option<Timestamp>,
    /// What an acknowledged event of it survives.
    pub durability: Durability,
    /// What the owner needs to resume it; the log never looks inside.
    pub meta: Bytes,
}

impl NewRun {
    /// Returns a durable run without subject, request, parent, deadline and meta.
    pub fn new(id: RunId, kind: impl Into<String>, created: Timestamp) -> Self {
        Self {
            id,
            kind: kind.into(),
            subject: String::new(),
            request: None,
            parent: None,
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
    /// It can still be appended to.
    Open,
    /// It has ended, with the owner's code of how.
    Finished(i32),
}

/// What the log says about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its id.
    pub id: RunId,
    /// What sort of run it is, in the owner's words.
    pub kind: String,
    /// What it is about; empty for nothing.
    pub subject: String,
    /// The request that asked for it.
    pub request: Option<RequestKey>,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// Whether it has ended.
    pub state: RunState,
    /// When it was created.
    pub created: Timestamp,
    /// The time of its terminal event.
    pub finished: Option<Timestamp>,
    /// When it must have ended.
    pub deadline: Option<Timestamp>,
    /// What an acknowledged event of it survives.
    pub durability: Durability,
    /// What the owner needs to resume it.
    pub meta: Bytes,
    /// The sequence of its last event; zero when it has none.
    pub last_sequence: u64,
}

impl RunSummary {
    /// Returns where a list goes on after this run.
    pub fn cursor(&self) -> RunCursor {
        RunCursor {
            created: self.created,
            id: self.id,
        }
    }
}

/// Which runs a list gives. All conditions must hold; the default gives every run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs about this subject.
    pub subject: Option<String>,
    /// Only runs of this kind.
    pub kind: Option<String>,
    /// Only runs that this run started.
    pub parent: Option<RunId>,
    /// Only runs in this state.
    pub state: StateFilter,
}

/// Which states a list gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StateFilter {
    /// Every state.
    #[default]
    Any,
    /// Runs that have not ended.
    Open,
    /// Runs that have ended.
    Finished,
}

/// The order of a list: by creation, then by the text of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The youngest run first.
    NewestFirst,
    /// The oldest run first.
    OldestFirst,
}

/// The place of a run in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCursor {
    pub(crate) created: Timestamp,
    pub(crate) id: RunId,
}

impl RunCursor {
    /// Returns what lists are sorted by. The id counts as text, as in the database.
    pub(crate) fn sort_key(&self) -> (Timestamp, String) {
        (self.created, self.id.to_string())
    }
}

/// A text that is no place in a list of runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no place in a list of runs; start the list again")]
pub struct RunCursorError {
    /// What was wrong with the id in it, if that was the reason.
    #[source]
    id: Option<RunIdError>,
}

impl fmt::Display for RunCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.created.unix_nanos(), self.id)
    }
}

impl FromStr for RunCursor {
    type Err = RunCursorError;

    fn from_str(text: &str) -> Result<Self, RunCursorError> {
        let (created, id) = text.split_once('/').ok_or(RunCursorError { id: None })?;
        let created: i64 = created.parse().map_err(|_| RunCursorError { id: None })?;
        let id = id
            .parse()
            .map_err(|error| RunCursorError { id: Some(error) })?;
        Ok(Self {
            created: Timestamp::from_unix_nanos(created),
            id,
        })
    }
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPage {
    /// The runs, in the order that was asked for.
    pub runs: Vec<RunSummary>,
    /// Where the list goes on; `None` at its end.
    pub next: Option<RunCursor>,
}

impl RunPage {
    /// Makes a page of at most `limit` from up to `limit + 1` runs.
    pub(crate) fn cut(mut runs: Vec<RunSummary>, limit: usize) -> Self {
        let more = runs.len() > limit;
        runs.truncate(limit);
        let next = runs.last().filter(|_| more).map(RunSummary::cursor);
        Self { runs, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core_types::RunOwner;

    #[test]
    fn a_cursor_reads_back_as_it_was_written() {
        let id = RunId::new(RunOwner::Workflow, uuid::Uuid::from_u128(7));
        let cursor = RunCursor {
            created: Timestamp::from_unix_nanos(12),
            id,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in [
            "",
            "12",
            "x/flow_00000000000000000000000000000007",
            "12/flow",
        ] {
            assert!(text.parse::<RunCursor>().is_err(), "{text}");
        }
    }
}
