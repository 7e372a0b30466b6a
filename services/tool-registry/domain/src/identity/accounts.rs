//! Every principal of an installation, and the decisions about changes.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use core_types::{Principal, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    key::{Key, KeyOrigin},
    tool_rights::ToolRights,
};

/// The role with every permission.
pub const ADMIN: &str = "admin";

/// The permission to change principals and keys.
pub const ADMINISTER: &str = "administer";

/// The most principals of a tenant.
pub const MAX_PRINCIPALS: usize = 10_000;

/// The most principals of all tenants, which are in memory.
pub const MAX_PRINCIPALS_OF_ALL: usize = 100_000;

/// The most keys of a principal that are valid at once, and the most ended ones that are kept.
pub const MAX_KEYS: usize = 64;

/// A principal as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The name.
    pub name: Principal,
    /// The names of its roles in its tenant.
    pub roles: Vec<String>,
    /// The names of its roles in the tenant `system`, beside those that a principal of that tenant has.
    #[serde(default)]
    pub system_roles: Vec<String>,
    /// Its groups, as rules for approvals name them.
    pub groups: Vec<String>,
    /// The tools that it may call.
    pub tools: ToolRights,
    /// The time of its creation.
    pub created: Timestamp,
    /// Its keys, the newest first.
    pub keys: Vec<Key>,
}

/// Every principal of an installation. A change makes another value.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    /// The principal of the first key, which has the runs and schedules of [`Principal::LOCAL`].
    heir: Option<Principal>,
    by_name: BTreeMap<String, Arc<Account>>,
    /// The principals by the ids of their keys.
    owners: HashMap<String, Principal>,
    /// The ids of imported keys by their digests.
    imported: HashMap<String, String>,
}

/// The reason for which a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No key exists, and the change would not make an administrator.
    #[error("no key exists yet; make the first one with `tavern keys bootstrap`")]
    Open,
    /// The first key exists.
    #[error("the installation has its first key; ask an administrator for another")]
    Bootstrapped,
    /// No principal has the name.
    #[error("no principal has the name `{0}`")]
    NoPrincipal(String),
    /// No key has the id.
    #[error("no key has the id `{0}`")]
    NoKey(String),
    /// The principal has no key that can be replaced.
    #[error("the principal `{0}` has no key that is valid; create one")]
    NoValidKey(String),
    /// The key is expired or revoked.
    #[error("is expired or revoked; create a key")]
    Ended,
    /// The roles of a principal that exists differ from the given ones.
    #[error(
        "differ from those of the principal ({0}); leave them out, or change them with PutPrincipal"
    )]
    OtherRoles(String),
    /// The caller administers its tenant only, and the change is about rights in the whole installation.
    #[error(
        "keys of a principal that has roles for the installation, and a change of these roles, need the permission \
         `administer` in the tenant `system`"
    )]
    OfInstallation,
    /// No administrator with a key would be left.
    #[error("`{0}` is the last administrator with a key")]
    LastAdministrator(String),
    /// There are too many principals or keys.
    #[error("there are too many {limit}")]
    Limit {
        /// The limit that would be passed.
        limit: &'static str,
        /// Its value.
        maximum: usize,
    },
}

/// The installations that get an administrator by a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regain {
    /// An installation without a key.
    Never,
    /// Also one whose administrators have no valid key.
    WithoutAdministrator,
    /// Every one: the keys of the principal are lost, and are revoked.
    LostKeys,
}

/// The part of an installation that the caller who makes a change administers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A tenant.
    Tenant,
    /// The whole installation.
    Installation,
}

/// The keys that a change is about.
#[derive(Clone, Copy, Debug)]
pub enum Chosen<'a> {
    /// The key with this id, of a principal of the tenant.
    Key(&'a str, Tenant),
    /// The keys of this principal.
    Of(&'a Principal),
}

impl Authority {
    /// Checks that it is over the whole installation where a principal has roles for it.
    fn check(self, account: &Account) -> Result<(), Refusal> {
        match self == Self::Tenant && !account.system_roles.is_empty() {
            true => Err(Refusal::OfInstallation),
            false => Ok(()),
        }
    }
}

impl Account {
    /// Makes a principal without rights and keys.
    pub fn new(name: Principal, now: Timestamp) -> Self {
        Self {
            name,
            roles: Vec::new(),
            system_roles: Vec::new(),
            groups: Vec::new(),
            tools: ToolRights::default(),
            created: now,
            keys: Vec::new(),
        }
    }

    /// Returns its key with an id.
    pub fn key(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Whether every key of the principal was revoked, so that its runs and schedules may do nothing either. The
    /// expiry of a key ends no run.
    pub fn is_revoked(&self) -> bool {
        !self.keys.is_empty() && self.keys.iter().all(|key| key.revoked.is_some())
    }

    /// Returns the names of the roles for the installation.
    pub fn roles_in_system(&self) -> impl Iterator<Item = &String> {
        let own = match self.name.tenant() == Tenant::SYSTEM {
            true => self.roles.as_slice(),
            false => &[],
        };
        own.iter().chain(&self.system_roles)
    }

    /// Whether it administers its tenant, and can prove it.
    fn is_administrator(&self, now: Timestamp) -> bool {
        self.roles.iter().any(|role| role == ADMIN) && self.has_administering_key(now)
    }

    /// Whether it administers the installation, and can prove it.
    fn is_system_administrator(&self, now: Timestamp) -> bool {
        self.roles_in_system().any(|role| role == ADMIN) && self.has_administering_key(now)
    }

    fn has_administering_key(&self, now: Timestamp) -> bool {
        let administers = |key: &Key| key.is_valid(now) && key.permits(ADMINISTER);
        self.keys.iter().any(administers)
    }

    /// Adds a key, and forgets those that ended long ago.
    fn with_key(mut self, key: Key, now: Timestamp) -> Result<Self, Refusal> {
        let valid = |account: &Self| account.keys.iter().filter(|key| key.is_valid(now)).count();
        self.keys.insert(0, key);
        if valid(&self) > MAX_KEYS {
            return Err(Refusal::Limit {
                limit: "valid keys of a principal",
                maximum: MAX_KEYS,
            });
        }
        let mut ended = 0;
        self.keys.retain(|key| {
            ended += usize::from(!key.is_valid(now));
            key.is_valid(now) || (key.is_kept(now) && ended <= MAX_KEYS)
        });
        Ok(self)
    }
}

impl Accounts {
    /// Takes every principal, and the principal of the first key.
    pub fn new(heir: Option<Principal>, accounts: impl IntoIterator<Item = Account>) -> Self {
        let none = Self {
            heir,
            ..Self::default()
        };
        accounts.into_iter().fold(none, Self::with)
    }

    /// Returns these accounts with one added or replaced.
    #[must_use]
    pub fn with(mut self, account: Account) -> Self {
        let name = account.name.as_str().to_owned();
        if let Some(earlier) = self.by_name.get(&name) {
            for key in &earlier.keys {
                self.owners.remove(&key.id);
                self.imported.remove(&key.sha256);
            }
        }
        for key in &account.keys {
            self.owners.insert(key.id.clone(), account.name.clone());
            if key.origin == KeyOrigin::Imported {
                self.imported.insert(key.sha256.clone(), key.id.clone());
            }
        }
        self.by_name.insert(name, Arc::new(account));
        self
    }

    /// Returns these accounts without those of a tenant.
    #[must_use]
    pub fn without(self, tenant: Tenant) -> Self {
        let others = self.all().filter(|account| account.name.tenant() != tenant);
        let others: Vec<Account> = others.map(|account| Account::clone(account)).collect();
        Self::new(self.heir, others)
    }

    /// Returns these accounts as they are after the first key.
    #[must_use]
    pub fn inherited_by(mut self, heir: Principal) -> Self {
        self.heir.get_or_insert(heir);
        self
    }

    /// Whether no key was ever made, so that everyone is [`Principal::LOCAL`].
    pub fn is_open(&self) -> bool {
        self.heir.is_none()
    }

    /// Returns the principal of the first key; `None` before there is one.
    pub fn heir(&self) -> Option<&Principal> {
        self.heir.as_ref()
    }

    /// Returns a principal that may act: none that does not exist or [is revoked](Account::is_revoked).
    pub fn active(&self, name: &Principal) -> Option<&Arc<Account>> {
        self.get(name).filter(|account| !account.is_revoked())
    }

    /// Returns a principal. [`Principal::LOCAL`] is the principal of the first key.
    pub fn get(&self, name: &Principal) -> Option<&Arc<Account>> {
        let name = match name.is_local() {
            true => self.heir.as_ref()?,
            false => name,
        };
        self.by_name.get(name.as_str())
    }

    /// Returns a key and its principal by the id of the key.
    pub fn key(&self, id: &str) -> Option<(&Arc<Account>, &Key)> {
        let account = self.get(self.owners.get(id)?)?;
        Some((account, account.key(id)?))
    }

    /// Returns an imported key and its principal by the digest.
    pub fn imported(&self, sha256: &str) -> Option<(&Arc<Account>, &Key)> {
        self.key(self.imported.get(sha256)?)
    }

    /// Returns every principal in the order of the names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.by_name.values()
    }

    /// Returns every principal of a tenant in the order of the names.
    pub fn all_of(&self, tenant: Tenant) -> impl Iterator<Item = &Arc<Account>> {
        self.all()
            .filter(move |account| account.name.tenant() == tenant)
    }

    /// Whether an administrator of the installation has a valid key.
    pub fn has_administrator(&self, now: Timestamp) -> bool {
        self.all()
            .any(|account| account.is_system_administrator(now))
    }

    /// Decides about the first key, or the key by which an installation regains an administrator.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn bootstrap(
        &self,
        name: &Principal,
        key: Key,
        regain: Regain,
        now: Timestamp,
    ) -> Result<Account, Refusal> {
        let regains = match regain {
            Regain::Never => false,
            Regain::WithoutAdministrator => !self.has_administrator(now),
            Regain::LostKeys => true,
        };
        if !self.is_open() && !regains {
            return Err(Refusal::Bootstrapped);
        }
        let mut account = self.get_or_new(name, now)?;
        if regain == Regain::LostKeys {
            let valid = account.keys.iter_mut().filter(|key| key.is_valid(now));
            valid.for_each(|key| key.revoke(now));
        }
        for roles in [&mut account.roles, &mut account.system_roles] {
            if !roles.iter().any(|role| role == ADMIN) {
                roles.push(ADMIN.to_owned());
            }
        }
        account.with_key(key, now)
    }

    /// Decides about a key for a principal, which is made with `roles` if it does not exist. A key of a principal
    /// with roles for the installation needs an authority over it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn create_key(
        &self,
        (name, authority): (&Principal, Authority),
        roles: &[String],
        key: Key,
        now: Timestamp,
    ) -> Result<Account, Refusal> {
        if self.is_open() {
            return Err(Refusal::Open);
        }
        let account = match self.get(name) {
            Some(account) => {
                authority.check(account)?;
                if !roles.is_empty() && !is_same_set(roles, &account.roles) {
                    return Err(Refusal::OtherRoles(account.roles.join(", ")));
                }
                Account::clone(account)
            }
            None if roles.is_empty() => {
                return Err(Refusal::NoPrincipal(name.name().to_owned()));
            }
            None => Account {
                roles: roles.to_vec(),
                ..self.get_or_new(name, now)?
            },
        };
        account.with_key(key, now)
    }

    /// Decides about the replacement of a key: the new key, of `id` and `sha256`, has its scopes and its life.
    /// The replaced key works for `overlap`; other keys of the family end, so that two are left. A key of a principal
    /// with roles for the installation needs an authority over it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn rotate(
        &self,
        (chosen, authority): (Chosen<'_>, Authority),
        (id, sha256): (String, String),
        overlap: Duration,
        now: Timestamp,
    ) -> Result<(Account, String), Refusal> {
        let (account, replaced) = match chosen {
            Chosen::Key(id, tenant) => self.key_of(id, tenant)?,
            Chosen::Of(name) => {
                let account = self.existing(name)?;
                let key = account.keys.iter().find(|key| key.is_valid(now));
                let missing = || Refusal::NoValidKey(name.name().to_owned());
                (account, key.ok_or_else(missing)?)
            }
        };
        authority.check(account)?;
        if !replaced.is_valid(now) {
            return Err(Refusal::Ended);
        }
        let (scopes, days) = (replaced.scopes.clone(), replaced.days);
        let key = Key {
            family: replaced.family.clone(),
            ..Key::new((id, sha256), KeyOrigin::Made, scopes, days, now)
        };
        let (replaced, mut account) = (replaced.id.clone(), Account::clone(account));
        for earlier in &mut account.keys {
            if earlier.id == replaced {
                earlier.expires = earlier.expires.min(now.plus(overlap));
            } else if earlier.family == key.family && earlier.is_valid(now) {
                earlier.revoke(now);
            }
        }
        Ok((account.with_key(key, now)?, replaced))
    }

    /// Decides about revoking keys. Returns the principal and the ids of the keys.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn revoke(
        &self,
        chosen: Chosen<'_>,
        really: bool,
        now: Timestamp,
    ) -> Result<(Account, Vec<String>), Refusal> {
        let (account, ids) = match chosen {
            Chosen::Key(id, tenant) => {
                let (account, _) = self.key_of(id, tenant)?;
                (account, vec![id.to_owned()])
            }
            Chosen::Of(name) => {
                let account = self.existing(name)?;
                let ids = account.keys.iter().map(|key| key.id.clone());
                (account, ids.collect())
            }
        };
        let mut account = Account::clone(account);
        let keys = account.keys.iter_mut().filter(|key| ids.contains(&key.id));
        keys.for_each(|key| key.revoke(now));
        Ok((self.unless_last(account, really, now)?, ids))
    }

    /// Decides about the roles, groups and tools of a principal, which is made if it does not exist. The keys of
    /// `account` and its roles for the installation are not read: these are set to `system_roles` where it is given,
    /// and a change of them needs an authority over the installation.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn put(
        &self,
        account: Account,
        (system_roles, authority): (Option<Vec<String>>, Authority),
        really: bool,
        now: Timestamp,
    ) -> Result<Account, Refusal> {
        let stored = self.get_or_new(&account.name, now)?;
        let system_roles = system_roles.filter(|set| !is_same_set(set, &stored.system_roles));
        if system_roles.is_some() && authority == Authority::Tenant {
            return Err(Refusal::OfInstallation);
        }
        let account = Account {
            system_roles: system_roles.unwrap_or(stored.system_roles),
            created: stored.created,
            keys: stored.keys,
            ..account
        };
        self.unless_last(account, really, now)
    }

    /// Returns a key of a tenant and its principal.
    fn key_of(&self, id: &str, tenant: Tenant) -> Result<(&Arc<Account>, &Key), Refusal> {
        let found = self
            .key(id)
            .filter(|(account, _)| account.name.tenant() == tenant);
        found.ok_or_else(|| Refusal::NoKey(id.to_owned()))
    }

    fn existing(&self, name: &Principal) -> Result<&Arc<Account>, Refusal> {
        let missing = || Refusal::NoPrincipal(name.name().to_owned());
        self.by_name.get(name.as_str()).ok_or_else(missing)
    }

    fn get_or_new(&self, name: &Principal, now: Timestamp) -> Result<Account, Refusal> {
        match self.by_name.get(name.as_str()) {
            Some(account) => Ok(Account::clone(account)),
            None => {
                let of_tenant = self.all_of(name.tenant()).count();
                for (limit, count, maximum) in [
                    ("principals", of_tenant, MAX_PRINCIPALS),
                    (
                        "principals of all tenants",
                        self.by_name.len(),
                        MAX_PRINCIPALS_OF_ALL,
                    ),
                ] {
                    if count >= maximum {
                        return Err(Refusal::Limit { limit, maximum });
                    }
                }
                Ok(Account::new(name.clone(), now))
            }
        }
    }

    /// Refuses a change that leaves no administrator where there was one, of the tenant or of the installation.
    fn unless_last(
        &self,
        account: Account,
        really: bool,
        now: Timestamp,
    ) -> Result<Account, Refusal> {
        let before = self.by_name.get(account.name.as_str());
        let is_last = |is_administrator: fn(&Account, Timestamp) -> bool,
                       tenant: Option<Tenant>| {
            let mut others = self.all().filter(|other| {
                other.name != account.name && tenant.is_none_or(|it| other.name.tenant() == it)
            });
            before.is_some_and(|before| is_administrator(before, now))
                && !is_administrator(&account, now)
                && !others.any(|other| is_administrator(other, now))
        };
        let is_last = is_last(Account::is_administrator, Some(account.name.tenant()))
            || is_last(Account::is_system_administrator, None);
        match is_last && !really {
            true => Err(Refusal::LastAdministrator(account.name.name().to_owned())),
            false => Ok(account),
        }
    }
}

/// Whether two lists have the same values, in any order and number.
fn is_same_set(one: &[String], other: &[String]) -> bool {
    one.iter().all(|value| other.contains(value)) && other.iter().all(|value| one.contains(value))
}
