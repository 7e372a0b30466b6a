//! Whether something of a run is under way that is no wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Counts what is under way in a run beside waits. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: AtomicUsize,
    /// Notified when nothing is left.
    quiet: Notify,
}

/// Something that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Active(Activity);

impl Activity {
    /// Notes that something begins.
    pub(super) fn begin(&self) -> Active {
        self.inner.count.fetch_add(1, Ordering::SeqCst);
        Active(self.clone())
    }

    /// Whether nothing is under way but waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.inner.count.load(Ordering::SeqCst) == 0
    }

    /// Waits until nothing has been under way but waits for about this long.
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
