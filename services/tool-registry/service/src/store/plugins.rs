//! Packages of plugins.

use async_trait::async_trait;
use sql_store::{Database, Statement};

use crate::store::StoreError;

/// Keeps packages by the digest of their files.
///
/// Every method fails with a [`StoreError`] when the database does not work.
#[async_trait]
pub(crate) trait PackageStore: std::fmt::Debug + Send + Sync {
    /// Stores an archive. One that is there stays as it is.
    async fn put(&self, digest: &str, archive: &[u8]) -> Result<(), StoreError>;

    /// Returns an archive.
    async fn get(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes every archive but these.
    async fn retain(&self, digests: &[&str]) -> Result<(), StoreError>;
}

#[async_trait]
impl PackageStore for Database {
    async fn put(&self, digest: &str, archive: &[u8]) -> Result<(), StoreError> {
        let statement = Statement::new(
            "INSERT INTO plugin_package (digest, archive) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        );
        let statement = statement.bind(digest).bind(archive.to_vec());
        Ok(self.execute(statement).await?)
    }

    async fn get(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let statement = Statement::new("SELECT archive FROM plugin_package WHERE digest = $1");
        let row = self.reader().fetch_optional(statement.bind(digest)).await?;
        Ok(row.map(|(archive,)| archive))
    }

    async fn retain(&self, digests: &[&str]) -> Result<(), StoreError> {
        let mut statement = Statement::new("DELETE FROM plugin_package");
        if !digests.is_empty() {
            statement.push(" WHERE digest NOT IN (");
            statement.push_list(digests.iter().copied()).push(")");
        }
        Ok(self.execute(statement).await?)
    }
}
