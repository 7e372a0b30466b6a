//! Accepting connections, also while the system has no files left for one.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use crate::lines::Lines;

use super::{
    connection::{self, Endpoint},
    gate::{Gate, Refused},
};

/// The shortest time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The pause of accepting when the system has no files or memory left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

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
    let mut refusals = Lines::default();
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
                    if let Some(refused) = refusals.count(setting, LOG_INTERVAL, Instant::now()) {
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
