//! The policy of tries, graces and waits for calls and child runs.
//!
//! A request to a service that is away or busy is repeated for as long as the owner's run has time,
//! with the waits of [`grpc_kit::Backoff`]. A request that fails inside the service is sent
//! [`TRIES`] times, then the call is in doubt. A call or run that is cancelled may take its grace
//! to end, and counts as not ended afterwards.

use std::time::Duration;

/// The most requests about a call to a registry that fails inside.
pub const TRIES: u32 = 5;

/// The longest time that a run waits for its calls and child runs to end once they were cancelled, or for a
/// call whose own time is over: shorter than the 1.5 s after which its service ends a run whose work does not
/// stop, so that the run still reports the work that has not ended.
pub const GRACE: Duration = Duration::from_millis(1_200);

/// The longest time that a call waits for the run that carries it out: longer than these 1.5 s, so
/// that the ledger has the end of that run, and shorter than the 2 s in which a cancel is answered.
pub const RUN_GRACE: Duration = Duration::from_millis(1_800);

/// The wait between two requests to cancel the same call: the first may arrive before the call does.
pub(crate) const CANCEL_AGAIN: Duration = Duration::from_millis(200);

/// The longest time that a service may stay out of reach before the start of a run is given up.
pub const START_PATIENCE: Duration = Duration::from_secs(30);

/// The longest time that a run which is followed may stay out of reach before it is given up.
pub(crate) const OUT_OF_REACH: Duration = Duration::from_secs(10 * 60);
