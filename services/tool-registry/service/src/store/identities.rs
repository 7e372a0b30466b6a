//! Principals with their keys.

use async_trait::async_trait;
use core_types::{Principal, Tenant, Timestamp};
use sql_store::{Database, Statement};
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

/// The row of the state of identities, which the installation has once.
const INSTALLATION: &str = "default";

#[async_trait]
impl IdentityStore for Database {
    async fn load(&self, fresh: SealingKey) -> Result<(Accounts, SealingKey), StoreError> {
        let made = Statement::new(
            "INSERT INTO identity (tenant, sealing_key) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        );
        self.execute(made.bind(INSTALLATION).bind(fresh.to_vec()))
            .await?;
        let row = Statement::new("SELECT sealing_key, heir FROM identity WHERE tenant = $1");
        let row = self.reader().fetch_one(row.bind(INSTALLATION)).await?;
        let (sealing_key, heir): (Vec<u8>, Option<String>) = row;
        let sealing_key = SealingKey::try_from(sealing_key);
        let sealing_key = sealing_key.map_err(|_| damaged("identity", "sealing_key"))?;
        let heir = heir.map(|name| Principal::new(&name)).transpose();
        let heir = heir.map_err(|_| damaged("identity", "heir"))?;

        let rows = Statement::new("SELECT account_json FROM principal ORDER BY tenant, name");
        let rows: Vec<(String,)> = self.reader().fetch_all(rows).await?;
        let accounts = rows.iter().map(|(json,)| serde_json::from_str(json));
        let accounts: Result<Vec<Account>, _> = accounts.collect();
        let accounts = accounts.map_err(|_| damaged("principal", "account_json"))?;
        Ok((Accounts::new(heir, accounts), sealing_key))
    }

    async fn save(&self, accounts: &[Account], heir: Option<&Principal>) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for account in accounts {
            let json = serde_json::to_string(account).expect("an account has text keys only");
            let statement = named(
                "INSERT INTO principal (tenant, name, account_json) VALUES ($1, $2, $3) \
                 ON CONFLICT (tenant, name) DO UPDATE SET account_json = excluded.account_json",
                &account.name,
            );
            transaction.session().execute(statement.bind(json)).await?;
        }
        if let Some(heir) = heir {
            let statement =
                Statement::new("UPDATE identity SET heir = coalesce(heir, $2) WHERE tenant = $1");
            let statement = statement.bind(INSTALLATION).bind(heir.as_str());
            transaction.session().execute(statement).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn load_issued(&self) -> Result<IssuedPrincipals, StoreError> {
        let rows = Statement::new("SELECT token_json FROM issued_principal ORDER BY tenant, name");
        let rows: Vec<(String,)> = self.reader().fetch_all(rows).await?;
        let last = rows.iter().map(|(json,)| serde_json::from_str(json));
        let last: Result<Vec<LastToken>, _> = last.collect();
        let last = last.map_err(|_| damaged("issued_principal", "token_json"))?;

        let rows = Statement::new("SELECT tenant, name, since FROM blocked_principal");
        let rows: Vec<(String, String, i64)> = self.reader().fetch_all(rows).await?;
        let blocks = rows.into_iter().map(|(tenant, name, since)| {
            let name = Principal::new(&format!("{tenant}/{name}"));
            Ok(Block {
                name: name.map_err(|_| damaged("blocked_principal", "name"))?,
                since: Timestamp::from_unix_nanos(since),
            })
        });
        let blocks = blocks.collect::<Result<Vec<Block>, StoreError>>()?;
        Ok(IssuedPrincipals::stored(last, blocks))
    }

    async fn save_last(
        &self,
        token: &LastToken,
        forgotten: &[Principal],
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let json = serde_json::to_string(token).expect("a token has text keys only");
        // Two tokens of a principal may be saved in another order than they came.
        let statement = named(
            "INSERT INTO issued_principal (tenant, name, issued, ends, token_json) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (tenant, name) DO UPDATE SET \
             issued = excluded.issued, ends = excluded.ends, token_json = excluded.token_json \
             WHERE (excluded.issued, excluded.ends) >= (issued_principal.issued, issued_principal.ends)",
            &token.account.name,
        );
        let statement = statement.bind(token.issued.unix_nanos());
        let statement = statement.bind(token.ends.unix_nanos()).bind(json);
        transaction.session().execute(statement).await?;
        for name in forgotten {
            let statement = "DELETE FROM issued_principal WHERE tenant = $1 AND name = $2";
            let statement = named(statement, name);
            transaction.session().execute(statement).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn save_block(&self, block: &Block) -> Result<(), StoreError> {
        let statement = named(
            "INSERT INTO blocked_principal (tenant, name, since) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            &block.name,
        );
        let statement = statement.bind(block.since.unix_nanos());
        Ok(self.execute(statement).await?)
    }

    async fn remove_block(&self, name: &Principal) -> Result<(), StoreError> {
        let statement = "DELETE FROM blocked_principal WHERE tenant = $1 AND name = $2";
        Ok(self.execute(named(statement, name)).await?)
    }

    async fn remove_of(&self, tenant: Tenant) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for statement in [
            "DELETE FROM principal WHERE tenant = $1",
            "DELETE FROM issued_principal WHERE tenant = $1",
            "DELETE FROM blocked_principal WHERE tenant = $1",
        ] {
            let statement = Statement::new(statement).bind(tenant.as_str());
            transaction.session().execute(statement).await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// Returns a statement about a principal, whose tenant and name are its first two arguments.
fn named(text: &'static str, principal: &Principal) -> Statement {
    let statement = Statement::new(text).bind(principal.tenant().as_str());
    statement.bind(principal.name())
}

fn damaged(table: &'static str, column: &'static str) -> StoreError {
    StoreError::Damaged { table, column }
}
