//! The kernel's report of the processor that scripts share, in its own words.
//!
//! No decision depends on it: isolation ends at the hardware that all scripts share, and scripts of
//! mutually untrusted callers need a virtual machine each.

/// The kernel's report of the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The names of its flaws, sorted, each with the kernel's words, which are empty if they could not be
    /// read; none if nothing is reported.
    pub flaws: Vec<(String, String)>,
    /// Whether threads of several programs run on one core at the same time, if that is known.
    pub multithreading: Option<bool>,
    /// Whether loads of this process may overtake stores; empty if nothing is reported.
    pub store_bypass: String,
    /// Whether its indirect branches are predicted; empty if nothing is reported.
    pub indirect_branches: String,
}
