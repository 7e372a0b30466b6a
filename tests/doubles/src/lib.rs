//! Neighbours of a service, for its tests.
//!
//! Where a neighbour decides something, it is the real one, in process: [`TestRegistry`] starts
//! tool-registry on a directory of its own. Only its tools are played ([`PlayedTools`]), in place
//! of the sandbox. Where the neighbour decides nothing, a double is enough; `tests/it` checks that
//! it answers like the real service. The issuer of tokens is a program in Python.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod identities;
mod leaving;
mod passing;
mod registry;
mod registry_double;
mod sandbox;
mod tools;

pub use identities::IdentityDouble;
pub use leaving::leave_after;
pub use passing::{Passing, Way};
pub use registry::TestRegistry;
pub use registry_double::RegistryDouble;
pub use sandbox::{Mode, UnconfinedSandbox};
pub use testkit::TestIssuer;
pub use tools::{Behaviour, PlayedTools};
