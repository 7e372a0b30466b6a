//! Calls at the registry and runs in other services, for every owner of runs.
//!
//! A turn, a workflow and an invocation make calls; a turn, a scene and a call start runs of other
//! services. All of them follow one [`policy`]: the number of tries at a service that fails, the
//! time that a call or a run has to end once it was cancelled, and the end that an owner records
//! where the answer is lost.
//!
//! [`carry_out`] is a call from its first request to its end: a [`RemoteCall`] from another process, or an owner's
//! own [`Call`]. [`Tries`] is the same for any other request. [`ChildRun`] is a run in another service: started, followed and
//! cancelled. [`settle_decided`] reads from the ledger the ends of calls that a run's log lacks.

mod calls;
mod child;
mod decided;
mod follow;
pub mod policy;
mod remote;
mod tries;
mod unanswered;

pub use calls::{Below, Call, CallEnd, CallProgress, CallTerms, cancel_words, carry_out};
pub use child::{CancelledRun, ChildRequest, ChildRun, NotStarted, pending_run};
pub use decided::settle_decided;
pub use follow::Followed;
pub use remote::{CallClient, RemoteCall};
pub use tries::Tries;
pub use unanswered::Unanswered;
