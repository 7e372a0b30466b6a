//! Packages of plugins.

use async_trait::async_trait;
use sql_store::SqliteDatabase;

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
impl PackageStore for SqliteDatabase {
    async fn put(&self, digest: &str, archive: &[u8]) -> Result<(), StoreError> {
        let statement =
            sqlx::query("INSERT OR IGNORE INTO plugin_package (digest, archive) VALUES (?1, ?2)");
        let statement = statement.bind(digest).bind(archive);
        statement.execute(self.writer()).await?;
        Ok(())
    }

    async fn get(&self, digest: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let row = sqlx::query_scalar("SELECT archive FROM plugin_package WHERE digest = ?1");
        Ok(row.bind(digest).fetch_optional(self.reader()).await?)
    }

    async fn retain(&self, digests: &[&str]) -> Result<(), StoreError> {
        let kept = serde_json::to_string(digests).expect("texts can be written");
        let statement = sqlx::query(
            "DELETE FROM plugin_package WHERE digest NOT IN (SELECT value FROM json_each(?1))",
        );
        statement.bind(kept).execute(self.writer()).await?;
        Ok(())
    }
}
