//! The surroundings of a scanner: tools, policy and the end of the message.

use call_catalogue::Catalogue;

use crate::{FinishReason, Policy};

/// The tools, the policy and the end of the message, as every scanner reads them.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    pub(crate) catalogue: &'c Catalogue,
    pub(crate) policy: &'c Policy,
    /// The reason why the model stopped; known only at the end.
    pub(crate) finish: FinishReason,
    /// Whether the caller reads the outcome only, and no events.
    pub(crate) quiet: bool,
}
