//! The failures of storing or reading a blob, and of opening the store.

use std::{
    io,
    path::{Path, PathBuf},
};

use server_files::FilesError;

use crate::BlobDigest;

/// A failure to store or read a blob.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// No blob of this caller has the digest.
    #[error("there is no blob {0}; upload it")]
    NotFound(BlobDigest),
    /// The content on the disk does not match the digest. It has been removed.
    #[error("the blob {0} was damaged and has been removed; upload it again")]
    Corrupt(BlobDigest),
    /// More bytes than a blob may have.
    #[error("blob exceeds the maximum size of {maximum} bytes")]
    TooLarge {
        /// The most bytes that it may have.
        maximum: u64,
        /// The number of bytes received or announced.
        observed: u64,
    },
    /// The budget of the caller has no room, even without everything that may be evicted.
    #[error(
        "limit reached: bytes in blobs of one caller (maximum {maximum}); blobs in use are not evicted"
    )]
    NoRoom {
        /// The budget.
        maximum: u64,
        /// The bytes of the caller that would be in use with this blob.
        observed: u64,
    },
    /// The store has no room, even without everything that may be evicted. The number of bytes in it is not for callers:
    /// most are of others.
    #[error(
        "limit reached: bytes in blobs of all callers together (maximum {maximum}); blobs in use are not evicted"
    )]
    Full {
        /// The size of the store.
        maximum: u64,
    },
    /// The tenant has no room.
    #[error("limit reached: bytes in blobs of the tenant (maximum {maximum})")]
    TenantFull {
        /// The bound of the tenant.
        maximum: u64,
    },
    /// The content does not match the announced digest.
    #[error("content has the digest {observed}")]
    OtherContent {
        /// The digest of the received content.
        observed: BlobDigest,
    },
    /// The disk failed, or the database.
    #[error("the storage of the blobs failed")]
    Storage(#[from] io::Error),
}

impl From<FilesError> for BlobError {
    fn from(error: FilesError) -> Self {
        Self::Storage(error.into())
    }
}

/// A failure to open the directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be made, read or written.
    #[error("cannot use {} for blobs", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process uses it.
    #[error("{} holds the blobs of another process that runs; set another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The blobs of the database cannot be listed.
    #[error(transparent)]
    Server(#[from] FilesError),
}

impl OpenError {
    /// Makes the error of a directory that fails.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Unusable {
            path: path.to_owned(),
            source,
        }
    }
}
