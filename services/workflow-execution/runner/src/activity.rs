//! The activity of a run apart from its waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Counts the work in progress in a run apart from waits. Clones share a count.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: AtomicUsize,
    /// Notified when the count becomes zero.
    quiet: Notify,
}

/// Work in progress until this is dropped.
#[derive(Debug)]
pub(super) struct Active(Activity);

impl Activity {
    /// Notes that work begins.
    pub(super) fn begin(&self) -> Active {
        self.inner.count.fetch_add(1, Ordering::SeqCst);
        Active(self.clone())
    }

    /// Whether the run has no work in progress but waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.inner.count.load(Ordering::SeqCst) == 0
    }

    /// Waits until no work is in progress.
    pub(super) async fn until_quiet(&self) {
        while !self.is_quiet() {
            self.inner.quiet.notified().await;
        }
    }

    /// Waits until the run has had no work but waits for about this long.
    pub(super) async fn quiet_for(&self, time: Duration) {
        loop {
            self.inner.quiet.notified().await;
            tokio::time::sleep(time).await;
            if self.is_quiet() {
                return;
            }
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let Activity { inner } = &self.0;
        if inner.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            inner.quiet.notify_one();
        }
    }
}
