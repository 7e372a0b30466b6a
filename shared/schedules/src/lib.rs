//! Times of schedules, and what is done when they are missed or overlap.
//!
//! Everything here is a function of its parameters; the owner of the schedules keeps them, asks the
//! clock and starts what is due.
//!
//! - [`timing`]: which times a schedule has.
//! - [`due`]: which of the times since the last look are run, and which are missed.
//! - [`overlap`]: what becomes of a time while an earlier run continues.

pub mod due;
pub mod overlap;
pub mod timing;

pub use due::{CatchUp, Due, Missed, due};
pub use overlap::{Decision, Overlap, Settled, settle};
pub use timing::{Timing, TimingError, utc};
