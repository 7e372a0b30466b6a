//! The run log over its public API: one suite for every implementation, then faults.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

/// Turns each case into a test on every log, and on a router in front of each.
macro_rules! on_every_log {
    ($($case:ident)*) => {
        on_every_log!(@log sqlite, sqlite, $($case)*);
        on_every_log!(@log memory, memory, $($case)*);
        on_every_log!(@log postgres, postgres, $($case)*);
    };
    (@log $module:ident, $log:ident, $($case:ident)*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $case() {
                    // A host without PostgreSQL does not run its cases.
                    let Some(log) = crate::fixture::$log().await else { return };
                    super::$case(log).await;
                }
            )*
        }
    };
}

mod appender;
mod batched;
mod conformance;
mod crash;
mod deletion;
mod fixture;
mod follow;
mod lists;
mod migration;
mod model;
mod reopen;
mod retention;
mod server;
mod storage_full;
mod tamper;
mod tenants;
mod transfer;
