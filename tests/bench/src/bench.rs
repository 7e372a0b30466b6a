//! The benchmarks, one file each.

mod agents;
mod cached;
mod call;
mod durable;
mod edges;
mod files;
mod follow;
mod hooks;
mod outstanding;
mod packages;
mod parse;
mod plugins;
mod postgres;
mod script;
mod serve;
mod tenants;
mod tracing;
mod waits;
mod workflow;

use std::fmt;

use clap::ValueEnum;

use crate::harness::Effort;
use crate::table::Figure;

/// The families of figures that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Benchmark {
    /// Parsing of model text.
    Parse,
    /// A tool call through gateway and registry.
    Call,
    /// Many callers at once, of one process and of five.
    Outstanding,
    /// Nodes of a workflow, in memory.
    Workflow,
    /// Results of nodes that are reused.
    Cached,
    /// Steps that survive power loss.
    Durable,
    /// Steps in PostgreSQL.
    Postgres,
    /// Runs that wait.
    Waits,
    /// Turns and scenes of agents.
    Agents,
    /// Following and resuming a run.
    Follow,
    /// Following a run at the edges.
    Edges,
    /// Scripts in the sandbox.
    Script,
    /// Scripts with numpy, pandas and matplotlib.
    Packages,
    /// Cells of a conversation with files.
    Files,
    /// The start of the program, and its memory while idle.
    Serve,
    /// Many plugins in one server.
    Plugins,
    /// Hooks of plugins.
    Hooks,
    /// Tenants beside each other.
    Tenants,
    /// The cost of tracing.
    Tracing,
}

impl Benchmark {
    /// All, in the order of the table.
    pub(crate) const ALL: [Benchmark; 19] = [
        Benchmark::Parse,
        Benchmark::Call,
        Benchmark::Outstanding,
        Benchmark::Workflow,
        Benchmark::Cached,
        Benchmark::Durable,
        Benchmark::Postgres,
        Benchmark::Waits,
        Benchmark::Agents,
        Benchmark::Follow,
        Benchmark::Edges,
        Benchmark::Script,
        Benchmark::Packages,
        Benchmark::Files,
        Benchmark::Serve,
        Benchmark::Plugins,
        Benchmark::Hooks,
        Benchmark::Tenants,
        Benchmark::Tracing,
    ];

    /// Measures the figures of the family.
    ///
    /// # Errors
    /// The obstacle to measuring on this machine.
    pub(crate) async fn run(self, effort: &Effort) -> anyhow::Result<Vec<Figure>> {
        match self {
            Benchmark::Parse => parse::run(effort),
            Benchmark::Call => call::run(effort).await,
            Benchmark::Outstanding => outstanding::run(effort).await,
            Benchmark::Workflow => workflow::run(effort).await,
            Benchmark::Cached => cached::run(effort).await,
            Benchmark::Durable => durable::run(effort).await,
            Benchmark::Postgres => postgres::run(effort).await,
            Benchmark::Waits => waits::run(effort).await,
            Benchmark::Agents => agents::run(effort).await,
            Benchmark::Follow => follow::run(effort).await,
            Benchmark::Edges => edges::run(effort).await,
            Benchmark::Packages => packages::run(effort).await,
            Benchmark::Files => files::run(effort).await,
            Benchmark::Script => script::run(effort).await,
            Benchmark::Serve => serve::run(effort).await,
            Benchmark::Plugins => plugins::run(effort).await,
            Benchmark::Hooks => hooks::run(effort).await,
            Benchmark::Tenants => tenants::run(effort).await,
            Benchmark::Tracing => tracing::run(effort).await,
        }
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no benchmark is hidden");
        f.write_str(value.get_name())
    }
}
