//! What is done thousands of times; one file each.

use std::fmt;

use clap::ValueEnum;

mod executions;

/// One thing that is done thousands of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Scripts of every runtime that end well, fail, are killed and are cancelled.
    Executions,
}

impl Scenario {
    /// Every scenario, in the order in which they run.
    pub(crate) const ALL: [Scenario; 1] = [Scenario::Executions];

    /// Does it so often and tells what was counted.
    ///
    /// # Errors
    /// What went wrong, or everything that is left behind.
    pub(crate) async fn run(self, times: u32) -> anyhow::Result<String> {
        match self {
            Scenario::Executions => executions::run(times).await,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
