//! What is decided about sessions.

use std::time::Duration;

use sandbox_engine::domain::{
    isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
    limits::{Limits, Span, time_within},
    stream::Stream,
    usage::Usage,
    verdict::Verdict,
    violation::Violation,
};

/// How long a session may go without a cell.
pub const IDLE_TIME: TimeRange = TimeRange::minutes(10, 60);

/// How long a session may live.
pub const TOTAL_TIME: TimeRange = TimeRange::minutes(60, 12 * 60);

/// How much processor time a session may use; its other limits are those of scripts.
pub const CPU_TIME: TimeRange = TimeRange::minutes(5, 60);

/// A time that a request may name.
#[derive(Clone, Copy, Debug)]
pub struct TimeRange {
    /// What a request gets that names none.
    pub default: Duration,
    /// The most that a request can ask for.
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

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The interpreter ended; the verdict says how.
    Interpreter,
    /// No cell ran for the idle time.
    Idle,
    /// The total lifetime was over.
    Lifetime,
    /// A caller deleted it.
    Deleted,
    /// A cell did not obey its interruption.
    NotInterrupted,
    /// The driver's channel carried something that is not a message of it.
    ChannelBroken,
    /// The interpreter did not become ready.
    NotReady,
    /// The service is ending.
    Shutdown,
    /// Another session needed its place.
    Evicted,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEnd {
    /// Why.
    pub reason: EndReason,
    /// How the interpreter ended.
    pub verdict: Verdict,
    /// What was used.
    pub usage: Usage,
    /// More about it; may be empty.
    pub detail: String,
    /// When it ended, in nanoseconds since the Unix epoch.
    pub at: i64,
}

impl SessionEnd {
    /// One sentence.
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

/// Whether a session can be used.
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

/// What callers may know of a session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The id.
    pub id: String,
    /// Whose it is.
    pub caller: String,
    /// The runtime's own name.
    pub runtime: String,
    /// Its name among the sessions of its caller and runtime; may be empty.
    pub key: String,
    /// Whether it can be used.
    pub state: SessionState,
    /// The limits.
    pub limits: Limits,
    /// How long it may go without a cell.
    pub idle_time: Duration,
    /// How long it may live.
    pub total_time: Duration,
    /// When it was made, in nanoseconds since the Unix epoch.
    pub created: i64,
    /// How many cells were begun.
    pub cells: u64,
    /// When it last became idle, in nanoseconds since the Unix epoch; 0 before.
    pub idle_since: i64,
    /// Whether another session may take its place while it is idle.
    pub evictable: bool,
    /// The level.
    pub isolation: IsolationLevel,
    /// Layers that it does not have.
    pub missing: Vec<MissingLayer>,
    /// What enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
}

impl SessionInfo {
    /// Whether it has the key of another session, of the same caller and runtime.
    pub fn has_key_of(&self, other: &Self) -> bool {
        !self.key.is_empty()
            && (&self.caller, &self.runtime, &self.key)
                == (&other.caller, &other.runtime, &other.key)
    }

    /// Why it ended; `None` if it has not.
    pub fn end(&self) -> Option<&SessionEnd> {
        match &self.state {
            SessionState::Ended(end) => Some(end),
            _ => None,
        }
    }
}

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellOutcome {
    /// It ran to its end.
    Succeeded,
    /// It ended with an error.
    Raised,
    /// It was interrupted.
    Interrupted,
    /// It ran too long.
    WallExceeded,
    /// It wrote too much.
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

/// Why a cell was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// It ran too long.
    Wall,
    /// It wrote too much.
    Output,
    /// A caller asked for it, or the caller of the cell has gone.
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

/// How a cell ended, as its driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverOutcome {
    /// To its end.
    Ok,
    /// With an error.
    Error,
    /// By an interruption.
    Interrupted,
}

/// How a cell ended, from what its driver says and why it was interrupted. A limit that was passed
/// is reported whatever the cell made of it.
pub fn cell_outcome(reported: DriverOutcome, interruption: Option<Interruption>) -> CellOutcome {
    match (interruption, reported) {
        (Some(Interruption::Wall), _) => CellOutcome::WallExceeded,
        (Some(Interruption::Output), _) => CellOutcome::OutputExceeded,
        (_, DriverOutcome::Ok) => CellOutcome::Succeeded,
        (Some(Interruption::Asked), DriverOutcome::Interrupted) => CellOutcome::Interrupted,
        // Code can raise what an interruption raises.
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
