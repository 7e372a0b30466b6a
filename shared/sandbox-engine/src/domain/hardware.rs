//! What the kernel reports of the processor that scripts share, in its own words.
//!
//! No word of it decides anything: isolation ends at what all scripts share, and code of
//! strangers who must not learn from each other needs a virtual machine for each.

/// Whether threads of several programs run on one core at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multithreading {
    /// They do.
    On,
    /// They do not.
    Off,
    /// The kernel does not report it.
    #[default]
    Unknown,
}

/// What the kernel reports of one flaw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Its name.
    pub name: String,
    /// The kernel's words; empty if they could not be read.
    pub state: String,
}

/// What the kernel reports of the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The flaws by name; empty if nothing is reported.
    pub flaws: Vec<Flaw>,
    /// Whether cores are shared.
    pub multithreading: Multithreading,
    /// Whether loads of this process may overtake stores; empty if nothing is reported.
    pub store_bypass: String,
    /// Whether its indirect branches are predicted; empty if nothing is reported.
    pub indirect_branches: String,
}
