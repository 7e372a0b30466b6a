//! Times of schedules, and the policies for missed and overlapping times.
//!
//! The crate is pure; the owner of the schedules keeps them, reads the clock and starts the runs
//! that are due.
//!
//! - [`timing`]: the times of a schedule.
//! - [`due`]: the times since the last look, due and missed.
//! - [`overlap`]: the policies for a time while an earlier run continues.

pub mod due;
pub mod overlap;
pub mod timing;

pub use due::{CatchUp, Due, Missed, due};
pub use overlap::{Decision, Overlap, Settled, settle};
pub use timing::{Timing, TimingError, utc};
