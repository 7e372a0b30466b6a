//! Stand-ins for the services that the registry calls.

pub(crate) mod agents;
pub(crate) mod clock;
pub(crate) mod conversations;
pub(crate) mod peer;
pub(crate) mod workflow;
