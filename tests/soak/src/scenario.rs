//! The activities that are repeated thousands of times; one file each.

use std::fmt;

use clap::ValueEnum;

mod cancels;
mod crowds;
mod executions;
mod limits;
mod outputs;
mod paths;
mod places;
mod swaps;

/// One thing that is done thousands of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Scripts of every runtime that end well, fail, are killed and are cancelled.
    Executions,
    /// A name that is swapped for a link while its script uses it.
    Paths,
    /// Directories that are swapped for links while files are placed below them.
    Placing,
    /// Files that are swapped for links while they are collected.
    Collecting,
    /// Directories that are swapped for links while they are measured.
    Measuring,
    /// Files that are swapped for links until the end of their script.
    Swaps,
    /// Processes that fork while they are killed.
    Crowds,
    /// The end of a script against a caller that disconnects.
    Cancels,
    /// The end of a script against its time limit.
    Limits,
    /// Output at the moment of the end.
    Outputs,
}

impl Scenario {
    /// Every scenario, in the order in which they run.
    pub(crate) const ALL: [Scenario; 10] = [
        Scenario::Executions,
        Scenario::Paths,
        Scenario::Placing,
        Scenario::Collecting,
        Scenario::Measuring,
        Scenario::Swaps,
        Scenario::Crowds,
        Scenario::Cancels,
        Scenario::Limits,
        Scenario::Outputs,
    ];

    /// Runs the scenario `times` times and returns its counts.
    ///
    /// # Errors
    /// The failure, or all remains.
    pub(crate) async fn run(self, times: u32) -> anyhow::Result<String> {
        match self {
            Scenario::Executions => executions::run(times).await,
            Scenario::Paths => paths::run(times).await,
            Scenario::Placing => places::placing(times),
            Scenario::Collecting => places::collecting(times),
            Scenario::Measuring => places::measuring(times),
            Scenario::Swaps => swaps::run(times).await,
            Scenario::Crowds => crowds::run(times).await,
            Scenario::Cancels => cancels::run(times).await,
            Scenario::Limits => limits::run(times).await,
            Scenario::Outputs => outputs::run(times).await,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
