//! Why a blob could not be stored or read, or the store could not be opened.

use std::{io, path::PathBuf};

use crate::digest::BlobDigest;

/// Why a blob could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// No blob of this caller has the digest.
    #[error("there is no blob {0}; upload it")]
    NotFound(BlobDigest),
    /// What lies on the disk is not what the digest says. It has been removed.
    #[error("the blob {0} was damaged and has been removed; upload it again")]
    Corrupt(BlobDigest),
    /// More bytes than a blob may have.
    #[error("blob exceeds the maximum size of {maximum} bytes")]
    TooLarge {
        /// How many it may have.
        maximum: u64,
        /// How many came, or were announced.
        observed: u64,
    },
    /// No room, even without everything that may go.
    #[error(
        "limit reached: bytes in blobs of {whose} (maximum {maximum}); blobs in use are not evicted"
    )]
    NoRoom {
        /// Whose budget is used up.
        whose: &'static str,
        /// The budget.
        maximum: u64,
        /// What would be in use with one more.
        observed: u64,
    },
    /// The content is not what was announced.
    #[error("content has the digest {observed}")]
    OtherContent {
        /// What came.
        observed: BlobDigest,
    },
    /// The disk failed.
    #[error("the disk of the blobs failed")]
    Disk(#[from] io::Error),
}

/// Why the directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be made, read or written.
    #[error("cannot use {} for blobs", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process uses it.
    #[error("{} holds the blobs of another process that runs; set another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}
