//! The place of the keys of an issuer.

use async_trait::async_trait;

/// Reads the set of keys of an issuer from its place.
#[async_trait]
pub trait KeySource: std::fmt::Debug + Send + Sync {
    /// Returns the bytes of the set, within some seconds.
    ///
    /// # Errors
    /// [`NotRead`].
    async fn read(&self) -> Result<Vec<u8>, NotRead>;
}

/// The reason for which a set of keys was not read.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// The server cannot be reached, or its certificate is not valid.
    #[error("the issuer cannot be reached: {0}")]
    Unreachable(String),
    /// The server answers with another status than 200. Redirects are not followed.
    #[error("the issuer answers with the status {0}")]
    Status(u16),
    /// The set has too many bytes.
    #[error("the set of keys has more than {0} bytes")]
    Large(usize),
    /// It takes too long.
    #[error("the set of keys is not there within {0} s")]
    Slow(u64),
}
