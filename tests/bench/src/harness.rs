//! Warm-up, rounds and clocks.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;

/// The extent of measuring, and its directory.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Whether a rough answer will do.
    pub(crate) quick: bool,
    /// The number of events of the log in which a watch is resumed.
    pub(crate) log_events: u64,
    directory: PathBuf,
}

impl Effort {
    /// Creates the effort from the command line; data go to fresh directories in `directory`.
    pub(crate) fn new(quick: bool, log_events: u64, directory: PathBuf) -> Self {
        Self {
            quick,
            log_events,
            directory,
        }
    }

    /// Returns the number of rounds: `full`, or a tenth of it when a rough answer will do.
    pub(crate) fn times(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(2) } else { full }
    }

    /// Creates a fresh directory on the file system that is measured.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn fresh_directory(&self) -> anyhow::Result<tempfile::TempDir> {
        let directory = &self.directory;
        tempfile::Builder::new()
            .prefix("tavern-bench-")
            .tempdir_in(directory)
            .with_context(|| format!("no directory can be made in {}", directory.display()))
    }
}

/// Returns the seconds that `work` takes.
pub(crate) fn seconds_of<T>(work: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    std::hint::black_box(work());
    begin.elapsed().as_secs_f64()
}

/// Repeats `work` one after the other and returns the seconds of each.
///
/// # Errors
/// The first failure of `work`.
pub(crate) async fn one_by_one<F, Fut>(times: usize, mut work: F) -> anyhow::Result<Vec<f64>>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let mut seconds = Vec::with_capacity(times);
    for _ in 0..times {
        let begin = Instant::now();
        work().await?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

/// Lets `tasks` tasks repeat `work` `each` times at once, and returns its rate per
/// second.
///
/// # Errors
/// The first failure of `work`.
pub(crate) async fn at_once<F, Fut>(tasks: usize, each: usize, work: F) -> anyhow::Result<f64>
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let begin = Instant::now();
    let mut set = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let work = work.clone();
        set.spawn(async move {
            for _ in 0..each {
                work(task).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = set.join_next().await {
        ended??;
    }
    Ok((tasks * each) as f64 / begin.elapsed().as_secs_f64())
}
