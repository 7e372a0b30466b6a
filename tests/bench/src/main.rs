//! Measures Tavern against the floor of the machine.
//!
//! Machines differ and are never quite idle, so every figure has a floor: a bare form of the same
//! work, on the same machine in the same run, such as an echo, a bare write with `fsync` or a bare
//! interpreter. The README of this crate explains the table.

mod bench;
mod harness;
mod machine;
mod series;
mod support;
mod table;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Parser;

use bench::Benchmark;
use harness::Effort;

/// Measures Tavern against the floor of the machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Measures only these; may be given several times.
    #[arg(long, value_enum)]
    only: Vec<Benchmark>,
    /// Repeats a tenth as often: a rough answer in a tenth of the time.
    #[arg(long)]
    quick: bool,
    /// The number of events of the log in which a watch is resumed.
    #[arg(long, default_value_t = 100_000)]
    log_events: u64,
    /// The directory of data, in fresh directories that are removed afterwards; durable steps are
    /// measured on its file system. Default: the system's directory for temporary files.
    #[arg(long)]
    directory: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.only.as_slice() {
        [one] => measure(*one, &arguments),
        [] => measure_each(&Benchmark::ALL),
        several => measure_each(several),
    }
}

/// Lets a process of its own measure each benchmark, so that none of them meets the memory and the
/// threads that another has left behind.
fn measure_each(benchmarks: &[Benchmark]) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("a program knows its own path")?;
    let directory = directory(&Arguments::parse());
    say(&format!(
        "{}; load {}",
        machine::describe(&directory),
        machine::load()
    ));
    let mut code = ExitCode::SUCCESS;
    for benchmark in benchmarks {
        let mut command = Command::new(&program);
        command
            .args(shared_arguments())
            .args(["--only", &benchmark.to_string()]);
        // A family that cannot be measured here does not stop the others.
        if !command.status()?.success() {
            code = ExitCode::FAILURE;
        }
    }
    say(&format!("load at the end {}", machine::load()));
    Ok(code)
}

/// Returns the arguments of this process except the ones that choose benchmarks.
fn shared_arguments() -> Vec<OsString> {
    let mut shared = Vec::new();
    let mut given = std::env::args_os().skip(1);
    while let Some(argument) = given.next() {
        match argument.to_str() {
            Some("--only") => drop(given.next()),
            Some(only) if only.starts_with("--only=") => {}
            _ => shared.push(argument),
        }
    }
    shared
}

/// Measures one benchmark in this process and prints its table.
#[tokio::main]
async fn measure(benchmark: Benchmark, arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let effort = Effort::new(arguments.quick, arguments.log_events, directory(arguments));
    let _telemetry = support::telemetry()?;
    say(&format!("measuring {benchmark}"));
    // On a worker of the runtime, where the work of servers is done too: the thread that waits
    // for `main` is none, and handing over to it and back would be measured as well.
    let measured = tokio::spawn(async move { benchmark.run(&effort).await });
    match measured.await.map_err(anyhow::Error::from).flatten() {
        Ok(figures) => {
            table::write(&benchmark.to_string(), &figures, std::io::stdout().lock())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            say(&format!("{benchmark} could not be measured: {error:#}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn directory(arguments: &Arguments) -> PathBuf {
    arguments
        .directory
        .clone()
        .unwrap_or_else(std::env::temp_dir)
}

/// Reports progress, apart from the table.
fn say(line: &str) {
    // There is no place left to report a failure of this.
    let _ = writeln!(std::io::stderr(), "{line}");
}
