//! A call that people approve before it leaves (rules G801 to G807).

mod digest;
mod state;

pub use digest::{digest_of, digest_to_remember, shown};
pub use state::{Approval, Consent, DecideError, Decision, State};
