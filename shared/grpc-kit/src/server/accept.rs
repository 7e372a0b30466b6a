//! Accepting connections, also while the system has no files left for one.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::{
    connection::{self, Endpoint},
    gate::{Gate, Refused},
};

/// The shortest time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The pause of accepting when the system has no files or memory left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The log of refusals: the first is logged at once, and then one line per [`LOG_INTERVAL`] for
/// each setting, however many refusals there are.
#[derive(Debug, Default)]
struct RefusalLog(HashMap<&'static str, (Instant, u64)>);

impl RefusalLog {
    /// Counts a refusal and returns the number of refusals for the line that is due; `None` without
    /// such a line.
    fn count(&mut self, setting: &'static str, now: Instant) -> Option<u64> {
        let Some((logged, unreported)) = self.0.get_mut(setting) else {
            self.0.insert(setting, (now, 0));
            return Some(1);
        };
        *unreported += 1;
        if now.saturating_duration_since(*logged) < LOG_INTERVAL {
            return None;
        }
        *logged = now;
        Some(std::mem::take(unreported))
    }
}

/// The connections of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    /// Connections from before the server began to end.
    pub(super) begun: TaskTracker,
    /// Connections since then.
    pub(super) late: TaskTracker,
}

/// Accepts connections for ever; each becomes a task of `connections`.
pub(super) async fn run(
    listener: TcpListener,
    gate: Gate,
    endpoint: Arc<Endpoint>,
    connections: Connections,
) {
    let mut refusals = RefusalLog::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match gate.enter(peer) {
                Ok(permit) => {
                    // Read once: a connection that waited for another step than the server would
                    // hold up the end.
                    let ending = endpoint.ends.go_away.is_cancelled();
                    let tasks = match ending {
                        true => &connections.late,
                        false => &connections.begun,
                    };
                    // Counted by its token, which an upgrade to another protocol keeps.
                    let task = tasks.token();
                    tokio::spawn(connection::run(
                        endpoint.clone(),
                        stream,
                        peer,
                        (permit, task),
                        ending,
                    ));
                }
                Err(Refused { setting, maximum }) => {
                    if let Some(refused) = refusals.count(setting, Instant::now()) {
                        log_refusal(peer, setting, maximum, refused);
                    }
                }
            },
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "accepting pauses");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn log_refusal(peer: SocketAddr, setting: &str, maximum: Option<usize>, refused: u64) {
    match maximum {
        Some(maximum) => tracing::warn!(
            %peer, setting, maximum, refused,
            "connection refused: limit reached; if the peer is a proxy or a mesh, raise the setting \
             `server.{setting}`"
        ),
        None => tracing::warn!(
            %peer, refused,
            "connection refused: the peer is no proxy that the setting `server.{setting}` lists"
        ),
    }
}

/// Returns whether an error concerns only the connection that was about to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_at_once_and_then_together() {
        let mut log = RefusalLog::default();
        let begin = Instant::now();
        assert_eq!(log.count("a", begin), Some(1));
        assert_eq!(log.count("b", begin), Some(1));
        for _ in 0..9 {
            assert_eq!(log.count("a", begin), None);
        }
        assert_eq!(log.count("a", begin + LOG_INTERVAL), Some(10));
        assert_eq!(log.count("a", begin + LOG_INTERVAL), None);
    }
}
