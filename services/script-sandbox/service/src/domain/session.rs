//! The decisions about sessions.

use std::time::Duration;

use sandbox_engine::domain::{
    isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
    limits::{Limits, Span, time_within},
    owner::Owner,
    stream::Stream,
    usage::Usage,
    verdict::Verdict,
    violation::Violation,
};

/// The default and the maximum time that a session may go without a cell.
pub const IDLE_TIME: TimeRange = TimeRange::minutes(20, 60);

/// The default and the maximum lifetime of a session.
pub const TOTAL_TIME: TimeRange = TimeRange::minutes(60, 12 * 60);

/// The default and the maximum processor time of a session; its other limits are those of scripts.
pub const CPU_TIME: TimeRange = TimeRange::minutes(5, 60);

/// A time that a request may name.
#[derive(Clone, Copy, Debug)]
pub struct TimeRange {
    /// The time of a request that names none.
    pub default: Duration,
    /// The longest that a request can choose.
    pub maximum: Duration,
}

impl TimeRange {
    const fn minutes(default: u64, maximum: u64) -> Self {
        Self {
            default: Duration::from_secs(default * 60),
            maximum: Duration::from_secs(maximum * 60),
        }
    }

    /// Reads a time that a request may leave out.
    pub fn read(self, field: &str, asked: Option<Span>, problems: &mut Vec<Violation>) -> Duration {
        time_within(field, asked, self.default, self.maximum, problems)
    }
}

/// The reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The interpreter ended; the verdict has the details.
    Interpreter,
    /// No cell ran for the idle time.
    Idle,
    /// The total lifetime had passed.
    Lifetime,
    /// A caller deleted it.
    Deleted,
    /// A cell did not obey its interruption.
    NotInterrupted,
    /// The driver's channel carried a malformed or unexpected message.
    ChannelBroken,
    /// The interpreter did not become ready.
    NotReady,
    /// The service is ending.
    Shutdown,
    /// Another session needed its slot.
    Evicted,
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEnd {
    /// The reason.
    pub reason: EndReason,
    /// The verdict on the interpreter.
    pub verdict: Verdict,
    /// The usage.
    pub usage: Usage,
    /// Further detail; may be empty.
    pub detail: String,
    /// The time of the end, in nanoseconds since the Unix epoch.
    pub at: i64,
}

impl SessionEnd {
    /// Returns the end as one sentence.
    pub fn message(&self) -> String {
        let sentence = match self.reason {
            EndReason::Interpreter => "the interpreter ended",
            EndReason::Idle => "no cell ran for the idle time",
            EndReason::Lifetime => "the total lifetime was over",
            EndReason::Deleted => "it was deleted",
            EndReason::NotInterrupted => "a cell did not obey its interruption in time",
            EndReason::ChannelBroken => "the interpreter's own channel was written to by a cell",
            EndReason::NotReady => "the interpreter did not become ready",
            EndReason::Shutdown => "the service is ending",
            EndReason::Evicted => "it waited for a cell and another session needed its place",
        };
        if self.detail.is_empty() {
            sentence.to_owned()
        } else {
            format!("{sentence}: {}", self.detail)
        }
    }
}

/// The state of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionState {
    /// The interpreter is being started.
    Starting,
    /// It waits for a cell.
    Idle,
    /// It runs a cell.
    Running,
    /// It has ended.
    Ended(Box<SessionEnd>),
}

/// A session as callers see it.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The id.
    pub id: String,
    /// Its owner.
    pub owner: Owner,
    /// The runtime's own name.
    pub runtime: String,
    /// The package set that its cells can import; empty for none.
    pub packages: String,
    /// Its name among the sessions of its caller, runtime and package set; may be empty.
    pub key: String,
    /// The state.
    pub state: SessionState,
    /// The limits.
    pub limits: Limits,
    /// The longest time without a cell.
    pub idle_time: Duration,
    /// The longest lifetime.
    pub total_time: Duration,
    /// The time of its start, in nanoseconds since the Unix epoch.
    pub created: i64,
    /// The number of cells begun.
    pub cells: u64,
    /// The time when it last became idle, in nanoseconds since the Unix epoch; 0 before.
    pub idle_since: i64,
    /// Whether it may be ended for another session while it is idle.
    pub evictable: bool,
    /// The level.
    pub isolation: IsolationLevel,
    /// Layers that it lacks.
    pub missing: Vec<MissingLayer>,
    /// The mechanism that enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
}

impl SessionInfo {
    /// Whether it has the same key as another session, of the same owner, runtime and package set.
    pub fn has_key_of(&self, other: &Self) -> bool {
        let same_kind = self.runtime == other.runtime && self.packages == other.packages;
        !self.key.is_empty() && same_kind && (&self.owner, &self.key) == (&other.owner, &other.key)
    }

    /// The end; `None` if it has not ended.
    pub fn end(&self) -> Option<&SessionEnd> {
        match &self.state {
            SessionState::Ended(end) => Some(end),
            _ => None,
        }
    }
}

/// The outcome of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellOutcome {
    /// It ran to its end.
    Succeeded,
    /// It ended with an error.
    Raised,
    /// It was interrupted.
    Interrupted,
    /// It exceeded its wall time.
    WallExceeded,
    /// It exceeded its output.
    OutputExceeded,
    /// The session ended.
    SessionEnded,
}

impl CellOutcome {
    /// Its name, as in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Raised => "raised",
            Self::Interrupted => "interrupted",
            Self::WallExceeded => "wall_exceeded",
            Self::OutputExceeded => "output_exceeded",
            Self::SessionEnded => "session_ended",
        }
    }
}

/// The reason for interrupting a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It exceeded its wall time.
    Wall,
    /// It exceeded its output.
    Output,
    /// A caller requested it, or the caller of the cell has gone.
    Asked,
}

impl Interruption {
    /// The reason as a sentence.
    pub fn sentence(self, limits: &Limits) -> String {
        match self {
            Self::Wall => {
                let seconds = limits.wall_time.as_secs_f64();
                format!("it was interrupted at its time limit of {seconds} s")
            }
            Self::Output => {
                let most = limits.flood(Stream::Stdout);
                format!("it was interrupted because it wrote more than {most} bytes")
            }
            Self::Asked => "its caller had it interrupted, or left".to_owned(),
        }
    }
}

/// The outcome of a cell, as its driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverOutcome {
    /// It ran to its end.
    Ok,
    /// It ended with an error.
    Error,
    /// It was interrupted.
    Interrupted,
}

/// The outcome of a cell, from its driver's report and the reason for its interruption. An exceeded
/// limit is reported whatever the driver's report.
pub fn cell_outcome(reported: DriverOutcome, interruption: Option<Interruption>) -> CellOutcome {
    match (interruption, reported) {
        (Some(Interruption::Wall), _) => CellOutcome::WallExceeded,
        (Some(Interruption::Output), _) => CellOutcome::OutputExceeded,
        (_, DriverOutcome::Ok) => CellOutcome::Succeeded,
        (Some(Interruption::Asked), DriverOutcome::Interrupted) => CellOutcome::Interrupted,
        // Code can raise the error of an interruption itself.
        (_, DriverOutcome::Error | DriverOutcome::Interrupted) => CellOutcome::Raised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_limit_is_reported_whatever_the_cell_made_of_it() {
        use Interruption::{Asked, Output, Wall};
        for (reported, interruption, expected) in [
            (DriverOutcome::Ok, None, CellOutcome::Succeeded),
            (DriverOutcome::Error, None, CellOutcome::Raised),
            (DriverOutcome::Interrupted, None, CellOutcome::Raised),
            (DriverOutcome::Ok, Some(Asked), CellOutcome::Succeeded),
            (
                DriverOutcome::Interrupted,
                Some(Asked),
                CellOutcome::Interrupted,
            ),
            (DriverOutcome::Ok, Some(Wall), CellOutcome::WallExceeded),
            (
                DriverOutcome::Error,
                Some(Output),
                CellOutcome::OutputExceeded,
            ),
        ] {
            assert_eq!(cell_outcome(reported, interruption), expected);
        }
    }
}
