//! The system call allow-list.
//!
//! [`policy`] states the answer to each call, [`compile`] turns that into the kernel's filter
//! language. A call that the policy does not name is answered with ENOSYS, as a kernel without the
//! call would; calls of foreign interfaces (i386, x32) kill the process.

pub mod compile;
pub mod policy;

pub use compile::compile;
pub use policy::{Answer, Condition, Entry, Profile};

#[cfg(test)]
mod tests;
