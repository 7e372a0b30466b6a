//! Notices to servers and streams that they are to end.

use std::{io, time::Duration};

use tokio_util::sync::CancellationToken;

/// The time that an aborted process has for killing its children.
const ABORT_GRACE: Duration = Duration::from_millis(500);

/// Notifies a handler that its server or connection is about to go away.
///
/// A unary handler need not care. A long stream sends its drain record and ends; it cannot see
/// the connection's own notice.
#[derive(Clone, Debug)]
pub struct Drain(CancellationToken);

impl Drain {
    /// Returns the drain of a request; in process it never starts.
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request
            .extensions()
            .get::<Self>()
            .cloned()
            .unwrap_or_else(Self::never)
    }

    /// Returns a drain that never starts.
    pub fn never() -> Self {
        Self(CancellationToken::new())
    }

    pub(crate) fn new(token: CancellationToken) -> Self {
        Self(token)
    }

    /// Waits until the drain starts.
    pub async fn started(&self) {
        self.0.cancelled().await;
    }
}

/// The signal for servers to end: first in order, then at once. Clones belong together.
#[derive(Clone, Debug)]
pub struct Shutdown {
    pub(crate) drain: CancellationToken,
    pub(crate) abort: CancellationToken,
}

/// Ends the servers that hold the matching [`Shutdown`].
#[derive(Clone, Debug)]
pub struct ShutdownHandle(Shutdown);

impl ShutdownHandle {
    /// Lets servers finish their open calls and streams.
    pub fn drain(&self) {
        self.0.drain.cancel();
    }

    /// Ends servers at once.
    pub fn abort(&self) {
        self.0.drain.cancel();
        self.0.abort.cancel();
    }
}

impl Shutdown {
    /// Drains at the first SIGTERM or SIGINT. At the second it aborts and ends the process, which
    /// may wait for more than its servers.
    ///
    /// # Errors
    /// An I/O error when the signals cannot be caught.
    pub fn on_signals() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (shutdown, handle) = Self::manual();
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
            tracing::info!("shutdown requested: finishing open work");
            handle.drain();
            let code = tokio::select! {
                _ = terminate.recv() => 128 + SignalKind::terminate().as_raw_value(),
                _ = interrupt.recv() => 128 + SignalKind::interrupt().as_raw_value(),
            };
            tracing::warn!("shutdown requested again: aborting open work");
            handle.abort();
            tokio::time::sleep(ABORT_GRACE).await;
            std::process::exit(code);
        });
        Ok(shutdown)
    }

    /// Leaves the shutdown to the handle. A dropped handle does nothing.
    pub fn manual() -> (Self, ShutdownHandle) {
        let shutdown = Self {
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        (shutdown.clone(), ShutdownHandle(shutdown))
    }

    /// Waits until servers have to finish. For the parts of a program that are not servers.
    pub async fn started(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until servers are aborted.
    pub async fn aborted(&self) {
        self.abort.cancelled().await;
    }
}
