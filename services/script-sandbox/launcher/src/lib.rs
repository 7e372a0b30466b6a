//! Sets up isolation for one script and reports the end of the script.
//!
//! The service starts the program of this crate once per script, with an empty environment and a
//! Unix stream socket as standard input. Over that socket come the
//! [`LaunchPlan`](sandbox_protocol::plan::LaunchPlan) and the script's own descriptors, and
//! [`Report`](sandbox_protocol::report::Report)s go back. Three processes take part:
//!
//! - the **supervisor** stays outside: it creates the namespaces, writes their id maps, joins the
//!   cgroups, waits, and kills everything when the service orders that or dies;
//! - the **init** is the first process inside (pid 1 of the pid namespace where there is one): it
//!   builds the root, gives up its privileges, places files and reaps orphans;
//! - the **payload** limits itself for good (rlimits, landlock, seccomp) and becomes the script.
//!
//! Everything here is single-threaded and synchronous: a process that is about to fork and to drop
//! its rights must not share its memory with a thread that holds a lock.
#![expect(
    unsafe_code,
    reason = "isolation is made of raw system calls; they are all wrapped in `sys`"
)]

pub mod confine;
pub mod place;
pub mod processes;
pub mod seccomp;
pub mod supervisor;

mod init;
mod payload;
mod privileges;
mod root;
mod sys;
