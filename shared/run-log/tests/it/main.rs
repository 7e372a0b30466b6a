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
    };
    (@log $module:ident, $log:ident, $($case:ident)*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(crate::fixture::$log().await).await;
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
mod storage_full;
mod tamper;
mod tenants;
