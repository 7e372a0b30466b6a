//! Waiting for a condition.

use std::time::{Duration, Instant};

/// The longest wait for a condition. It bounds a failing test and is no expectation.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `condition` until it returns a value.
///
/// # Errors
/// A condition that returns no value in a minute; the message names `what`.
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
