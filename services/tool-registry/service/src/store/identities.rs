//! Principals with their keys.

use async_trait::async_trait;
use core_types::{Principal, Tenant};
use sql_store::SqliteDatabase;
use sqlx::Row;
use tool_domain::identity::{Account, Accounts};

use crate::store::StoreError;

/// The bytes of the key by which tokens are sealed.
pub(crate) type SealingKey = [u8; 32];

/// Keeps principals, each with its keys.
///
/// Every method fails with a [`StoreError`] when the database does not work or a row is damaged.
#[async_trait]
pub(crate) trait IdentityStore: Send + Sync {
    /// Returns every principal, and the sealing key; `fresh` becomes it where there is none.
    async fn load(&self, fresh: SealingKey) -> Result<(Accounts, SealingKey), StoreError>;

    /// Saves principals in one step: new ones, and the new state of others. `heir` is the principal of the
    /// first key; `None` leaves it.
    async fn save(&self, accounts: &[Account], heir: Option<&Principal>) -> Result<(), StoreError>;

    /// Removes every principal of a tenant.
    async fn remove_of(&self, tenant: Tenant) -> Result<(), StoreError>;
}

/// Principals on SQLite.
#[derive(Clone)]
pub(crate) struct SqliteIdentities {
    database: SqliteDatabase,
}

impl SqliteIdentities {
    /// Takes an open database with the migrations of the service applied.
    pub(crate) fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

/// The row of the state of identities, which the installation has once.
const INSTALLATION: &str = "default";

#[async_trait]
impl IdentityStore for SqliteIdentities {
    async fn load(&self, fresh: SealingKey) -> Result<(Accounts, SealingKey), StoreError> {
        let tenant = INSTALLATION;
        let made = sqlx::query(
            "INSERT INTO identity (tenant, sealing_key) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        );
        let made = made.bind(tenant).bind(fresh.as_slice());
        made.execute(self.database.writer()).await?;
        let row = sqlx::query("SELECT sealing_key, heir FROM identity WHERE tenant = ?1");
        let row = row.bind(tenant).fetch_one(self.database.reader()).await?;
        let sealing_key: Vec<u8> = row.try_get(0)?;
        let sealing_key = SealingKey::try_from(sealing_key);
        let sealing_key = sealing_key.map_err(|_| damaged("identity", "sealing_key"))?;
        let heir: Option<String> = row.try_get(1)?;
        let heir = heir.map(|name| Principal::new(&name)).transpose();
        let heir = heir.map_err(|_| damaged("identity", "heir"))?;

        let rows = sqlx::query_scalar("SELECT account_json FROM principal ORDER BY tenant, name");
        let rows: Vec<String> = rows.fetch_all(self.database.reader()).await?;
        let accounts = rows.iter().map(|json| serde_json::from_str(json));
        let accounts: Result<Vec<Account>, _> = accounts.collect();
        let accounts = accounts.map_err(|_| damaged("principal", "account_json"))?;
        Ok((Accounts::new(heir, accounts), sealing_key))
    }

    async fn save(&self, accounts: &[Account], heir: Option<&Principal>) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for account in accounts {
            let json = serde_json::to_string(account).expect("an account has text keys only");
            let statement = sqlx::query(
                "INSERT INTO principal (tenant, name, account_json) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (tenant, name) DO UPDATE SET account_json = excluded.account_json",
            );
            let tenant = account.name.tenant();
            let statement = statement.bind(tenant.as_str().to_owned());
            let statement = statement.bind(account.name.name()).bind(json);
            statement.execute(&mut *transaction).await?;
        }
        if let Some(heir) = heir {
            let statement =
                sqlx::query("UPDATE identity SET heir = coalesce(heir, ?2) WHERE tenant = ?1");
            let statement = statement.bind(INSTALLATION).bind(heir.as_str());
            statement.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn remove_of(&self, tenant: Tenant) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM principal WHERE tenant = ?1");
        let statement = statement.bind(tenant.as_str());
        statement.execute(self.database.writer()).await?;
        Ok(())
    }
}

fn damaged(table: &'static str, column: &'static str) -> StoreError {
    StoreError::Damaged { table, column }
}
