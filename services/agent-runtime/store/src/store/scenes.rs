//! Scenes that were put.

use super::{AgentStore, StoreError};

impl AgentStore {
    /// Returns the texts of all scenes, by id.
    ///
    /// # Errors
    /// A database that does not work.
    pub async fn scenes(&self) -> Result<Vec<String>, StoreError> {
        let texts = sqlx::query_scalar("SELECT text FROM scenes ORDER BY scene_id");
        Ok(texts.fetch_all(self.database.reader()).await?)
    }

    /// Stores a scene.
    ///
    /// # Errors
    /// A database that does not work.
    pub async fn put_scene(&self, id: &str, text: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "INSERT INTO scenes (scene_id, text) VALUES (?1, ?2) \
             ON CONFLICT (scene_id) DO UPDATE SET text = excluded.text",
        )
        .bind(id)
        .bind(text)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }

    /// Deletes a scene. Returns whether there was one.
    ///
    /// # Errors
    /// A database that does not work.
    pub async fn delete_scene(&self, id: &str) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let deleted = sqlx::query("DELETE FROM scenes WHERE scene_id = ?1")
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}
