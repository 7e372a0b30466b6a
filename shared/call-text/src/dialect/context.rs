//! What every scanner may ask about.

use call_catalogue::Catalogue;

use crate::{FinishReason, Policy};

/// What a scanner may ask about.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    pub(crate) catalogue: &'c Catalogue,
    pub(crate) policy: &'c Policy,
    /// Why the model stopped; known only at the end.
    pub(crate) finish: FinishReason,
    /// Events are not read: the outcome is all that is asked for.
    pub(crate) quiet: bool,
}
