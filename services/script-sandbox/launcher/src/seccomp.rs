//! The system call allow-list.
//!
//! [`policy`] states what each call may do, [`compile`] turns that into the kernel's filter
//! language. What the policy does not name is answered with ENOSYS, as a kernel without the call
//! would; foreign call interfaces (i386, x32) are answered with death.

pub mod compile;
pub mod policy;

pub use compile::compile;
pub use policy::{Answer, Condition, Entry, Profile};

#[cfg(test)]
mod tests;
