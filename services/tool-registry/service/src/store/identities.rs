//! Principals with their keys.

use async_trait::async_trait;
use core_types::{Principal, Tenant, Timestamp};
use sql_store::SqliteDatabase;
use sqlx::Row;
use tool_domain::identity::{Account, Accounts, Block, IssuedPrincipals, LastToken};

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

    /// Returns the issued principals.
    async fn load_issued(&self) -> Result<IssuedPrincipals, StoreError>;

    /// Saves the last token of a principal, unless a later one is saved, and removes those of others.
    async fn save_last(&self, token: &LastToken, forgotten: &[Principal])
    -> Result<(), StoreError>;

    /// Saves the block of a principal.
    async fn save_block(&self, block: &Block) -> Result<(), StoreError>;

    /// Removes the block of a principal.
    async fn remove_block(&self, name: &Principal) -> Result<(), StoreError>;

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

    async fn load_issued(&self) -> Result<IssuedPrincipals, StoreError> {
        let rows = "SELECT token_json FROM issued_principal ORDER BY tenant, name";
        let rows: Vec<String> = sqlx::query_scalar(rows)
            .fetch_all(self.database.reader())
            .await?;
        let last = rows.iter().map(|json| serde_json::from_str(json));
        let last: Result<Vec<LastToken>, _> = last.collect();
        let last = last.map_err(|_| damaged("issued_principal", "token_json"))?;

        let rows = sqlx::query("SELECT tenant, name, since FROM blocked_principal");
        let rows = rows.fetch_all(self.database.reader()).await?;
        let mut blocks = Vec::with_capacity(rows.len());
        for row in rows {
            let (tenant, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let name = Principal::new(&format!("{tenant}/{name}"));
            blocks.push(Block {
                name: name.map_err(|_| damaged("blocked_principal", "name"))?,
                since: Timestamp::from_unix_nanos(row.try_get(2)?),
            });
        }
        Ok(IssuedPrincipals::stored(last, blocks))
    }

    async fn save_last(
        &self,
        token: &LastToken,
        forgotten: &[Principal],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        let json = serde_json::to_string(token).expect("a token has text keys only");
        let name = &token.account.name;
        // Two tokens of a principal may be saved in another order than they came.
        let statement = sqlx::query(
            "INSERT INTO issued_principal (tenant, name, issued, ends, token_json) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT (tenant, name) DO UPDATE SET \
             issued = excluded.issued, ends = excluded.ends, token_json = excluded.token_json \
             WHERE (excluded.issued, excluded.ends) >= (issued_principal.issued, issued_principal.ends)",
        );
        let statement = statement.bind(name.tenant().as_str().to_owned());
        let statement = statement.bind(name.name()).bind(token.issued.unix_nanos());
        let statement = statement.bind(token.ends.unix_nanos()).bind(json);
        statement.execute(&mut *transaction).await?;
        for name in forgotten {
            let statement =
                sqlx::query("DELETE FROM issued_principal WHERE tenant = ?1 AND name = ?2");
            let statement = statement.bind(name.tenant().as_str().to_owned());
            let statement = statement.bind(name.name());
            statement.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn save_block(&self, block: &Block) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO blocked_principal (tenant, name, since) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        );
        let statement = statement.bind(block.name.tenant().as_str().to_owned());
        let statement = statement.bind(block.name.name());
        let statement = statement.bind(block.since.unix_nanos());
        statement.execute(self.database.writer()).await?;
        Ok(())
    }

    async fn remove_block(&self, name: &Principal) -> Result<(), StoreError> {
        let statement =
            sqlx::query("DELETE FROM blocked_principal WHERE tenant = ?1 AND name = ?2");
        let statement = statement.bind(name.tenant().as_str().to_owned());
        let statement = statement.bind(name.name());
        statement.execute(self.database.writer()).await?;
        Ok(())
    }

    async fn remove_of(&self, tenant: Tenant) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for statement in [
            "DELETE FROM principal WHERE tenant = ?1",
            "DELETE FROM issued_principal WHERE tenant = ?1",
            "DELETE FROM blocked_principal WHERE tenant = ?1",
        ] {
            let statement = sqlx::query(statement).bind(tenant.as_str().to_owned());
            statement.execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}

fn damaged(table: &'static str, column: &'static str) -> StoreError {
    StoreError::Damaged { table, column }
}
