//! Tenants with their limits.

use async_trait::async_trait;
use core_types::Tenant;
use sql_store::{Database, Statement};
use tool_domain::tenant::{DayAmount, TenantRecord};

use crate::store::StoreError;

/// The number of days for which amounts are kept.
const KEPT_DAYS: i64 = 31;

/// Keeps tenants.
///
/// Every method fails with a [`StoreError`] when the database does not work or a row is damaged.
#[async_trait]
pub(crate) trait TenantStore: Send + Sync {
    /// Returns every tenant that was changed or created.
    async fn load(&self) -> Result<Vec<TenantRecord>, StoreError>;

    /// Saves a tenant.
    async fn save(&self, tenant: &TenantRecord) -> Result<(), StoreError>;

    /// Returns the amounts that tenants used in a day.
    async fn amounts_of(&self, day: i64) -> Result<Vec<DayAmount>, StoreError>;

    /// Stores amounts in the place of earlier ones, and deletes those of days that are over for a month.
    async fn set_amounts(&self, amounts: &[DayAmount]) -> Result<(), StoreError>;

    /// Removes the amounts of a tenant.
    async fn remove_amounts(&self, tenant: Tenant) -> Result<(), StoreError>;
}

#[async_trait]
impl TenantStore for Database {
    async fn load(&self) -> Result<Vec<TenantRecord>, StoreError> {
        let rows = Statement::new("SELECT tenant_json FROM tenant ORDER BY name");
        let rows: Vec<(String,)> = self.reader().fetch_all(rows).await?;
        let records = rows.iter().map(|(json,)| serde_json::from_str(json));
        let records: Result<Vec<TenantRecord>, _> = records.collect();
        records.map_err(|_| StoreError::Damaged {
            table: "tenant",
            column: "tenant_json",
        })
    }

    async fn save(&self, tenant: &TenantRecord) -> Result<(), StoreError> {
        let json = serde_json::to_string(tenant).expect("a tenant has text keys only");
        let statement = Statement::new(
            "INSERT INTO tenant (name, tenant_json) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET tenant_json = excluded.tenant_json",
        );
        let statement = statement.bind(tenant.name.as_str()).bind(json);
        Ok(self.execute(statement).await?)
    }

    async fn amounts_of(&self, day: i64) -> Result<Vec<DayAmount>, StoreError> {
        // The amounts of every tenant: they are sent to the services together.
        let rows =
            Statement::new("SELECT tenant, quantity, amount FROM tenant_usage WHERE day = $1");
        let rows: Vec<(String, i64, i64)> = self.reader().fetch_all(rows.bind(day)).await?;
        let amounts = rows.into_iter().map(|(tenant, quantity, amount)| {
            let damaged = |column| StoreError::Damaged {
                table: "tenant_usage",
                column,
            };
            Ok(DayAmount {
                tenant: Tenant::new(&tenant).map_err(|_| damaged("tenant"))?,
                day,
                quantity: i32::try_from(quantity).map_err(|_| damaged("quantity"))?,
                amount: u64::try_from(amount).map_err(|_| damaged("amount"))?,
            })
        });
        amounts.collect()
    }

    async fn set_amounts(&self, amounts: &[DayAmount]) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for amount in amounts {
            let statement = Statement::new(
                "INSERT INTO tenant_usage (tenant, day, quantity, amount) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (tenant, day, quantity) DO UPDATE SET amount = excluded.amount",
            );
            let statement = statement.bind(amount.tenant.as_str()).bind(amount.day);
            let stored = i64::try_from(amount.amount).unwrap_or(i64::MAX);
            let statement = statement.bind(amount.quantity).bind(stored);
            transaction.session().execute(statement).await?;
        }
        if let Some(day) = amounts.iter().map(|amount| amount.day).max() {
            let old = Statement::new("DELETE FROM tenant_usage WHERE day < $1");
            let old = old.bind(day - KEPT_DAYS);
            transaction.session().execute(old).await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn remove_amounts(&self, tenant: Tenant) -> Result<(), StoreError> {
        let statement = Statement::new("DELETE FROM tenant_usage WHERE tenant = $1");
        Ok(self.execute(statement.bind(tenant.as_str())).await?)
    }
}
