//! The position of a run in a list of runs.

use std::{fmt, str::FromStr};

use crate::{RunId, RunIdError, Timestamp};

/// The position of a run in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCursor {
    created: Timestamp,
    id: RunId,
}

impl RunCursor {
    /// Returns the position of a run that was created at this time.
    pub fn new(created: Timestamp, id: RunId) -> Self {
        Self { created, id }
    }

    /// Returns the creation time of the run.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Returns the id of the run.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Returns the key by which lists are sorted. The id counts as text, as in the database.
    pub fn sort_key(&self) -> (Timestamp, String) {
        (self.created, self.id.to_string())
    }
}

/// A text that is no position in a list of runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a place in a list of runs; start the list again")]
pub struct RunCursorError {
    /// The fault of the id in it, if that was the reason.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunOwner;

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
