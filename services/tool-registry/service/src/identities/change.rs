//! Creating, replacing and revoking keys, and changing principals.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use core_types::{Principal, Tenant, Timestamp};
use tool_domain::identity::{
    Account, Accounts, Key, KeyOrigin, Refusal,
    accounts::{Authority, Chosen, Regain},
    key::MAX_DAYS,
};

use super::{Identities, credential};
use crate::store::StoreError;

/// A key that was just made.
pub struct Made {
    /// The key with its secret, which is stored nowhere.
    pub secret_key: String,
    /// The id of the key.
    pub key_id: String,
    /// The id of the key that it replaces; empty if it replaces none.
    pub replaced: String,
    /// Its principal.
    pub account: Account,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Made");
        shown.field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// An approver of a file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The name of the principal.
    pub name: Principal,
    /// The roles of the file, which become groups.
    pub groups: Vec<String>,
    /// The SHA-256 of the key in lower-case hexadecimal digits.
    pub sha256: String,
}

/// The reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum NotChanged {
    /// The services that call do not prove themselves.
    #[error(
        "there are no keys where services do not prove themselves: give each a certificate of `tavern certs`, or start \
         `tavern serve`"
    )]
    Unproven,
    /// It is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Principals of these places in the request exist without the key.
    #[error("principals of the names exist")]
    Taken(Vec<usize>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Identities {
    /// Makes the first principal and its key, or the key by which an installation regains an administrator.
    /// `days` is from 1 to 365.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn bootstrap(
        &self,
        name: &Principal,
        days: u32,
        regain: Regain,
    ) -> Result<Made, NotChanged> {
        if !self.inner.proven {
            return Err(NotChanged::Unproven);
        }
        self.make(|accounts, key, now| {
            let key = Key::new(key, KeyOrigin::Made, Vec::new(), days, now);
            Ok((accounts.bootstrap(name, key, regain, now)?, String::new()))
        })
        .await
    }

    /// Makes a key for a principal, which is made with `roles` if it does not exist. `days` is from 1 to 365.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn create_key(
        &self,
        of: (&Principal, Authority),
        roles: &[String],
        scopes: &[String],
        days: u32,
    ) -> Result<Made, NotChanged> {
        self.make(|accounts, key, now| {
            let key = Key::new(key, KeyOrigin::Made, scopes.to_vec(), days, now);
            Ok((accounts.create_key(of, roles, key, now)?, String::new()))
        })
        .await
    }

    /// Makes a key in the place of another, which works for `overlap`.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn rotate(
        &self,
        chosen: (Chosen<'_>, Authority),
        overlap: Duration,
    ) -> Result<Made, NotChanged> {
        self.make(|accounts, key, now| accounts.rotate(chosen, key, overlap, now))
            .await
    }

    /// Revokes a key, or all keys of a principal. Returns the principal and the ids of the keys.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn revoke(
        &self,
        chosen: Chosen<'_>,
        really: bool,
    ) -> Result<(Account, Vec<String>), NotChanged> {
        self.change(|accounts, now| {
            let (account, ids) = accounts.revoke(chosen, really, now)?;
            Ok((vec![account.clone()], (account, ids)))
        })
        .await
    }

    /// Sets roles, groups and tools of a principal, which is made if it does not exist, and its roles for the
    /// installation where they are given ([`Accounts::put`]).
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn put(
        &self,
        account: Account,
        system_roles: (Option<Vec<String>>, Authority),
        really: bool,
    ) -> Result<Account, NotChanged> {
        self.change(|accounts, now| {
            let account = accounts.put(account, system_roles, really, now)?;
            Ok((vec![account.clone()], account))
        })
        .await
    }

    /// Makes principals of approvers of a file, with the role of the given name, and keeps their keys for a year.
    /// Principals that have their key are left as they are.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn import(
        &self,
        approvers: &[Imported],
        role: &str,
    ) -> Result<Vec<Account>, NotChanged> {
        self.change(|accounts, now| {
            let mut found = BTreeMap::new();
            let (mut taken, mut next) = (Vec::new(), accounts.clone());
            let roles = [role.to_owned()];
            for (place, approver) in approvers.iter().enumerate() {
                let name = &approver.name;
                let is_owner = |key: &Key| key.sha256 == approver.sha256;
                match accounts.get(name) {
                    Some(account) if account.keys.iter().any(is_owner) => {
                        found.insert(name.as_str(), Account::clone(account));
                        continue;
                    }
                    None if accounts.imported(&approver.sha256).is_none() => {}
                    _ => {
                        taken.push(place);
                        continue;
                    }
                }
                let stored = (credential::new_id(), approver.sha256.clone());
                let key = Key::new(stored, KeyOrigin::Imported, Vec::new(), MAX_DAYS, now);
                let mut account = next.create_key((name, Authority::Tenant), &roles, key, now)?;
                account.groups = approver.groups.clone();
                next = next.with(account.clone());
                found.insert(name.as_str(), account);
            }
            if !taken.is_empty() {
                return Err(NotChanged::Taken(taken));
            }
            let all: Vec<Account> = found.into_values().collect();
            Ok((all.clone(), all))
        })
        .await
    }

    /// Removes every principal of a tenant that is being removed, and its amounts: its keys prove no one then.
    ///
    /// # Errors
    /// The store fails.
    pub async fn remove_of(&self, tenant: Tenant) -> Result<(), StoreError> {
        self.tenants().remove_amounts(tenant).await?;
        let _changing = self.inner.changing.lock().await;
        self.inner.store.remove_of(tenant).await?;
        self.forget_issued(tenant);
        let others = Accounts::clone(&self.accounts()).without(tenant);
        self.put_in_force(others).await;
        Ok(())
    }

    /// Makes a key by a decision about its id and digest, which returns the principal and the replaced key.
    async fn make(
        &self,
        decide: impl FnOnce(
            &Accounts,
            (String, String),
            Timestamp,
        ) -> Result<(Account, String), Refusal>,
    ) -> Result<Made, NotChanged> {
        let key = credential::new_key();
        let key_id = key.stored.0.clone();
        let (account, replaced) = self
            .change(|accounts, now| {
                let (account, replaced) = decide(accounts, key.stored, now)?;
                Ok((vec![account.clone()], (account, replaced)))
            })
            .await?;
        Ok(Made {
            secret_key: key.text,
            key_id,
            replaced,
            account,
        })
    }

    /// Decides about a change and carries it out, one at a time. The first key makes its principal the heir.
    async fn change<T>(
        &self,
        decide: impl FnOnce(&Accounts, Timestamp) -> Result<(Vec<Account>, T), NotChanged>,
    ) -> Result<T, NotChanged> {
        let _changing = self.inner.changing.lock().await;
        let accounts = self.accounts();
        let (changed, answer) = decide(&accounts, self.now())?;
        let with_key = changed.iter().find(|account| !account.keys.is_empty());
        let heir = with_key
            .filter(|_| accounts.is_open())
            .map(|account| account.name.clone());
        self.inner.store.save(&changed, heir.as_ref()).await?;
        let next = changed
            .into_iter()
            .fold(Accounts::clone(&accounts), Accounts::with);
        let next = match heir {
            Some(heir) => next.inherited_by(heir),
            None => next,
        };
        self.put_in_force(next).await;
        Ok(answer)
    }

    async fn put_in_force(&self, next: Accounts) {
        {
            let accounts = self.inner.accounts.write();
            *accounts.unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        }
        // Calls that leave with the earlier rights have left when the change is answered.
        drop(self.inner.dispatching.write().await);
    }
}
