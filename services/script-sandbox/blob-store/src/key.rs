//! One blob of one caller.

use crate::{BlobDigest, caller::Caller};

/// One blob of one caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) caller: Caller,
    pub(crate) digest: BlobDigest,
}

impl Key {
    pub(crate) fn new(caller: &Caller, digest: BlobDigest) -> Self {
        Self {
            caller: caller.clone(),
            digest,
        }
    }
}
