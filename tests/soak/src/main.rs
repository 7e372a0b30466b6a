//! Repeats each activity of the sandbox thousands of times and fails on any remains.
//!
//! Each scenario is one file of [`scenario`]. It reports its counts, and fails if there is anything
//! that was not there before: a process, a mount, a file, a cgroup, a network namespace, a
//! descriptor, or memory that keeps growing.

mod left;
mod race;
mod scenario;
mod service;

use std::process::ExitCode;

use clap::Parser;

use scenario::Scenario;

/// Repeats each activity of the sandbox thousands of times and fails on any remains.
#[derive(Debug, Parser)]
struct Arguments {
    /// Runs only these; may be given several times.
    #[arg(long, value_enum)]
    only: Vec<Scenario>,
    /// The repetitions of each scenario.
    #[arg(long, default_value_t = 10_000)]
    times: u32,
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that reports to a person"
)]
#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen = if arguments.only.is_empty() {
        Scenario::ALL.to_vec()
    } else {
        arguments.only
    };
    let mut code = ExitCode::SUCCESS;
    for scenario in chosen {
        println!("== {scenario}, {} times", arguments.times);
        match scenario.run(arguments.times).await {
            Ok(counted) => println!("{counted}\nnothing is left behind\n"),
            Err(error) => {
                eprintln!("FAILED: {error:#}\n");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
