//! One blob of one caller.

use crate::{caller::Caller, digest::BlobDigest};

/// One blob of one caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    caller: Caller,
    digest: BlobDigest,
}

impl Key {
    pub(crate) fn new(caller: &Caller, digest: BlobDigest) -> Self {
        Self {
            caller: caller.clone(),
            digest,
        }
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn digest(&self) -> BlobDigest {
        self.digest
    }
}
