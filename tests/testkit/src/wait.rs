//! Waiting for a condition.

use std::time::{Duration, Instant};

/// How long a condition may take to come true. It bounds a failing test and is no expectation.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks `condition` again and again until it gives something.
///
/// # Errors
/// Names `what` when nothing came in a minute.
pub async fn eventually<T, F, Fut>(what: &str, mut condition: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let begin = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return Ok(found);
        }
        anyhow::ensure!(begin.elapsed() < PATIENCE, "waited a minute for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
