//! The connections to one service.
//!
//! A server accepts a bounded number of calls on one connection; one more waits at the client. So
//! streams, which may last for days, have connections of their own, and each lane opens another
//! connection as soon as its present ones are well used.

use std::sync::{
    Arc, LazyLock, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tonic::transport::{Channel, Endpoint};

use crate::{methods::Methods, tls::client::Connector, windows};

/// Calls on one connection before the next is opened: a third of the streams that a server accepts
/// on one by default.
const CALLS_PER_CONNECTION: usize = 64;

/// The most connections of a lane: both together are half of the connections that a server accepts
/// from one peer by default, as is the number of streams on them. Further calls share them.
const MAX_CONNECTIONS: usize = 8;

/// Bytes of a stream that wait for a reader who is slower than the service.
const STREAM_WINDOW: u32 = 64 << 10;

static METHODS: LazyLock<Methods> = LazyLock::new(|| {
    Methods::read(
        &[contracts::FILE_DESCRIPTOR_SET],
        &Default::default(),
        &Default::default(),
    )
});

/// The connections to one service.
#[derive(Debug)]
pub(super) struct Pool {
    calls: Lane,
    streams: Lane,
}

impl Pool {
    /// Opens connections with TLS where there is a connector for it.
    pub(super) fn new(endpoint: Endpoint, tls: Option<Connector>) -> Self {
        let streams = endpoint
            .clone()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(windows::CONNECTION);
        Self {
            calls: Lane::new(endpoint, tls.clone()),
            streams: Lane::new(streams, tls),
        }
    }

    /// Returns the connection for a call of the method at `path`, and the place that it takes there.
    pub(super) fn enter(&self, path: &str) -> (Channel, LanePermit) {
        if METHODS.find(path).is_some_and(|method| method.long) {
            self.streams.enter()
        } else {
            self.calls.enter()
        }
    }
}

/// Connections for one sort of calls.
#[derive(Debug)]
struct Lane {
    endpoint: Endpoint,
    tls: Option<Connector>,
    /// Locked for as long as it takes to choose one, never across an await.
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    /// The calls that are in flight on it.
    calls: Arc<AtomicUsize>,
}

/// A place on a connection, free again when dropped.
#[derive(Debug)]
pub(super) struct LanePermit(Arc<AtomicUsize>);

impl Drop for LanePermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lane {
    fn new(endpoint: Endpoint, tls: Option<Connector>) -> Self {
        Self {
            endpoint,
            tls,
            connections: Mutex::default(),
        }
    }

    fn connect(&self) -> Channel {
        match &self.tls {
            Some(connector) => self.endpoint.connect_with_connector_lazy(connector.clone()),
            None => self.endpoint.connect_lazy(),
        }
    }

    /// Takes the first connection that is not well used, so that connections that are no longer
    /// needed fall silent and end by their age.
    fn enter(&self) -> (Channel, LanePermit) {
        let used = |connection: &Connection| connection.calls.load(Ordering::Relaxed);
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let free = connections
            .iter()
            .position(|connection| used(connection) < CALLS_PER_CONNECTION);
        let chosen = match free {
            None if connections.len() < MAX_CONNECTIONS => {
                connections.push(Connection {
                    channel: self.connect(),
                    calls: Arc::default(),
                });
                connections.last()
            }
            None => connections.iter().min_by_key(|connection| used(connection)),
            Some(index) => connections.get(index),
        };
        let connection = chosen.expect("a lane without connections opens one");
        connection.calls.fetch_add(1, Ordering::Relaxed);
        (
            connection.channel.clone(),
            LanePermit(connection.calls.clone()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: &str = "/tavern.run.v1.RunService/WatchRun";
    const CANCEL: &str = "/tavern.run.v1.RunService/CancelRun";

    fn connections(lane: &Lane) -> Vec<usize> {
        let connections = lane.connections.lock().unwrap();
        let used = |connection: &Connection| connection.calls.load(Ordering::Relaxed);
        connections.iter().map(used).collect()
    }

    #[tokio::test]
    async fn streams_travel_apart_and_a_lane_grows_to_its_bound() {
        let pool = Pool::new(Endpoint::from_static("http://127.0.0.1:1"), None);
        let enter =
            |count| -> Vec<LanePermit> { (0..count).map(|_| pool.enter(WATCH).1).collect() };
        let mut held = enter(120);
        assert_eq!(connections(&pool.streams), [64, 56]);
        assert!(connections(&pool.calls).is_empty());
        let cancel = pool.enter(CANCEL);
        assert_eq!(connections(&pool.calls), [1]);
        drop(cancel);
        assert_eq!(connections(&pool.calls), [0]);

        held.extend(enter(8 * 64 - 120 + 8));
        assert_eq!(connections(&pool.streams), [65; 8]);
        drop(held);
        let _one = enter(1);
        assert_eq!(connections(&pool.streams), [1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
