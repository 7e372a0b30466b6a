//! Removal of the rows of a tenant.

use core_types::Tenant;
use sql_store::TenantTable;

use super::{AgentStore, StoreError, knowledge};

/// The tables but for those of documents and requests, which are removed with the documents, and for entries of
/// knowledge bases, which have words beside them.
const TABLES: [TenantTable; 5] = [
    TenantTable {
        name: "conversations",
        key: "conversation_id",
    },
    TenantTable {
        name: "appended_messages",
        key: "conversation_id, batch, position",
    },
    TenantTable {
        name: "private_states",
        key: "conversation_id, profile_id, version",
    },
    TenantTable {
        name: "open_questions",
        key: "run_id",
    },
    TenantTable {
        name: "knowledge_bases",
        key: "kb_id",
    },
];

impl AgentStore {
    /// Deletes at most `limit` rows of each table of a tenant that is being removed. Returns the number of rows
    /// that are left.
    ///
    /// # Errors
    /// A database that does not work.
    pub async fn remove_tenant(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError> {
        let entries = knowledge::remove_entries(&self.database, tenant, limit).await?;
        let rows = sql_store::remove_rows(&self.database, &TABLES, tenant, limit).await?;
        Ok(entries + rows)
    }
}
