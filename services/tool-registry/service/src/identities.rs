//! Principals, their keys and their rights.
//!
//! All of them are held in memory and replaced as a whole by a change, after it is stored. So a look-up takes
//! microseconds, and no credential makes the store work.
//!
//! - [`rights`]: the present rights of a principal.
//! - `credential`, `tickets`: the texts of credentials, and open tickets.
//! - `proof`: the keys or tokens behind credentials.
//! - `issued`: the principals whom tokens of issuers prove.
//! - [`issuers`]: issuers, and their keys.
//! - `change`: creating, replacing and revoking keys, and changing principals.

mod change;
mod credential;
mod issued;
pub mod issuers;
mod proof;
pub mod rights;
mod tickets;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use contracts::tavern::access::v1::Permission;
use core_types::{Clock, Principal, Tenant, Timestamp};
use sql_store::Database;
use tokio::sync::{RwLock, RwLockReadGuard};
use tool_domain::identity::{Account, Accounts, IssuedPrincipals, IssuerToken, Key, KeyOrigin};

pub use change::{Imported, Made, NotChanged};
pub(crate) use issued::Issued;
pub use issuers::Issuers;
use proof::{Proof, Prover};
pub use rights::Rights;
use tickets::Tickets;

use crate::store::{
    StoreError,
    identities::{IdentityStore, SealingKey},
};
use crate::tenants::Tenants;

/// The longest life of the token of a login.
const LOGIN: Duration = Duration::from_secs(12 * 60 * 60);

/// A digest that no secret has: the work for an unknown id is the work for a wrong secret.
const NO_DIGEST: &str = "----------------------------------------------------------------";

/// Principals, their keys and their rights. Clone, cheap.
#[derive(Clone)]
pub struct Identities {
    inner: Arc<Inner>,
}

struct Inner {
    /// Replaced as a whole by a change. Locked for the time of a pointer copy only.
    accounts: std::sync::RwLock<Arc<Accounts>>,
    /// Held by one change at a time, over its write to the store.
    changing: tokio::sync::Mutex<()>,
    /// Held for reading from a look-up of rights to the dispatch that they permit, and for writing by a change
    /// before its answer.
    dispatching: RwLock<()>,
    issuers: Issuers,
    /// Locked for a look-up or a change, never across an await.
    issued: std::sync::RwLock<IssuedPrincipals>,
    store: Arc<dyn IdentityStore>,
    sealing_key: SealingKey,
    tickets: Tickets,
    tenants: Tenants,
    clock: Arc<dyn Clock>,
    proven: bool,
}

/// A caller: a principal with the rights that its credential leaves it.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The rights.
    pub rights: Rights,
    /// The id of the key that proved it, or that stands for the token of an issuer; empty where neither did.
    pub key_id: String,
    /// The time at which the credential expires; `None` where neither a key nor a token proved the caller.
    pub expires: Option<Timestamp>,
}

/// The reason for which a credential is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProven {
    /// It proves no principal.
    #[error("the credential proves no principal")]
    Credential,
    /// The tenant of the principal is closed.
    #[error("the tenant `{0}` is closed")]
    Closed(Tenant),
}

/// The reason for which there is no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTicket {
    /// The credential is refused.
    NotProven(NotProven),
    /// So many tickets are open: of the key, of its tenant or of all.
    TooMany {
        /// The number.
        maximum: usize,
    },
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identities")
    }
}

impl Identities {
    /// Loads every principal from an open database with the tables of this service. Tokens of `issuers` prove
    /// principals too. `proven` is whether the services that call prove themselves, without which there is no first
    /// key.
    ///
    /// # Errors
    /// [`StoreError`] when the database does not work or a row is damaged.
    pub async fn load(
        database: Database,
        issuers: Issuers,
        clock: Arc<dyn Clock>,
        proven: bool,
    ) -> Result<Self, StoreError> {
        let tenants = Tenants::load(Arc::new(database.clone()), Arc::clone(&clock)).await?;
        let (accounts, sealing_key) = database.load(core_types::secret_bytes()).await?;
        let issued = database.load_issued().await?;
        Ok(Self {
            inner: Arc::new(Inner {
                accounts: std::sync::RwLock::new(Arc::new(accounts)),
                changing: tokio::sync::Mutex::default(),
                dispatching: RwLock::default(),
                issuers,
                issued: std::sync::RwLock::new(issued),
                store: Arc::new(database),
                sealing_key,
                tickets: Tickets::default(),
                tenants,
                clock,
                proven,
            }),
        })
    }

    /// Returns the tenants of the principals.
    pub fn tenants(&self) -> &Tenants {
        &self.inner.tenants
    }

    /// Whether no key was ever made and there is no issuer, so that everyone is [`Principal::LOCAL`] with every right.
    pub fn is_open(&self) -> bool {
        self.are_open(&self.accounts())
    }

    /// Returns the present rights of a principal, whichever key proved it; none for one that does not exist, or
    /// whose keys were all revoked. An issued principal has those of its last token, for a while after its end.
    /// [`Principal::LOCAL`] has the rights of the principal of the first key, once there is one.
    pub fn rights(&self, principal: &Principal) -> Rights {
        let accounts = self.accounts();
        match self.are_open(&accounts) {
            true => Rights::of_everyone(),
            false => Rights::of(self.active(&accounts, principal).as_ref(), &[]),
        }
    }

    /// Whether a principal exists, be its keys revoked or not. None does while no key was ever made.
    pub(crate) fn knows(&self, principal: &Principal) -> bool {
        let accounts = self.accounts();
        let exists = accounts.get(principal).is_some() || self.knows_issued(principal);
        !self.are_open(&accounts) && exists
    }

    /// Begins a dispatch. No change is answered before the guard is dropped, so that a call leaves with rights
    /// that are looked up meanwhile, or not at all. Hold it for a write of the ledger at most.
    pub(crate) async fn dispatching(&self) -> RwLockReadGuard<'_, ()> {
        self.inner.dispatching.read().await
    }

    /// Returns the principals of a tenant that can decide about calls: with the permission `approve`, a key that
    /// proves it, and a group; an empty group means any.
    pub(crate) fn approvers(&self, tenant: Tenant, group: &str) -> Vec<Principal> {
        let (accounts, now) = (self.accounts(), self.now());
        let approve = Permission::Approve;
        let is_approver = |account: &&Arc<Account>| {
            let mut keys = account.keys.iter().filter(|key| key.is_valid(now));
            (group.is_empty() || account.groups.iter().any(|own| own == group))
                && Rights::of(Some(account), &[]).permits(approve)
                && keys.any(|key| key.permits(approve.name()))
        };
        let approvers = accounts.all_of(tenant).filter(is_approver);
        let approvers = approvers.map(|account| account.name.clone());
        approvers
            .chain(self.issued_approvers(tenant, group))
            .collect()
    }

    /// Returns the caller whom a credential proves. A ticket is used up. While no key and no issuer exists, every
    /// text and none proves [`Principal::LOCAL`].
    ///
    /// # Errors
    /// [`NotProven`], whatever is wrong with the credential.
    pub async fn resolve(&self, credential: &str) -> Result<Caller, NotProven> {
        if self.is_open() {
            return Ok(Caller::everyone());
        }
        if IssuerToken::is_shape_of(credential) {
            return self.resolve_token(credential).await;
        }
        let (accounts, now) = (self.accounts(), self.now());
        let proof = match credential::is_ticket(credential) {
            true => self.inner.tickets.take(credential, now),
            false => self.proof_of_key_or_login(&accounts, credential, now),
        };
        self.caller(&accounts, &proof.ok_or(NotProven::Credential)?, now)
    }

    /// Returns the present rights of a principal, narrowed by the key that proved it; an empty `key_id` narrows
    /// nothing.
    ///
    /// # Errors
    /// [`NotProven`] for a principal that does not exist, is blocked or whose keys were all revoked, and for a key that
    /// is not its own or ended.
    pub fn resolve_principal(
        &self,
        principal: &Principal,
        key_id: &str,
    ) -> Result<Caller, NotProven> {
        let (accounts, now) = (self.accounts(), self.now());
        if self.are_open(&accounts) {
            return Ok(Caller::everyone());
        }
        let account = self.active(&accounts, principal);
        let account = account.ok_or(NotProven::Credential)?;
        self.check_open(&account)?;
        if key_id.is_empty() {
            return Ok(Caller {
                rights: Rights::of(Some(&account), &[]),
                key_id: String::new(),
                expires: None,
            });
        }
        let proof = match principal.issuer_and_subject() {
            Some(_) => proof::end_of_token(key_id).map(|expires| Proof {
                by: Prover::Token(principal.clone()),
                expires,
            }),
            None => account.key(key_id).map(|key| Proof {
                by: Prover::Key(key_id.to_owned()),
                expires: key.expires,
            }),
        };
        self.caller(&accounts, &proof.ok_or(NotProven::Credential)?, now)
    }

    /// Returns a token that stands for a key or a token of an issuer for 12 h or until it ends, and the caller;
    /// without a token while no key exists.
    ///
    /// # Errors
    /// [`NotProven`], for the token of a login or a ticket too.
    pub async fn login(&self, credential: &str) -> Result<(String, Caller), NotProven> {
        if self.is_open() {
            return Ok((String::new(), Caller::everyone()));
        }
        let token = self.proof_of_token(credential).await?;
        let (accounts, now) = (self.accounts(), self.now());
        let proof = token.or_else(|| proof_of_key(&accounts, credential, now));
        let mut proof = proof.ok_or(NotProven::Credential)?;
        // A token has whole seconds.
        let (seconds, _) = proof.expires.min(now.plus(LOGIN)).seconds_and_nanos();
        let expires = Timestamp::from_seconds_and_nanos(seconds, 0);
        proof.expires = expires.ok_or(NotProven::Credential)?;
        let caller = self.caller(&accounts, &proof, now)?;
        let token = credential::seal(&self.inner.sealing_key, &proof.by.sealed(), proof.expires);
        Ok((token, caller))
    }

    /// Returns a ticket that stands for a key, a token of an issuer or of a login, and the time at which it expires.
    pub(crate) async fn issue_ticket(
        &self,
        credential: &str,
    ) -> Result<(String, Timestamp), NoTicket> {
        if self.is_open() {
            // Any text is a ticket.
            return Ok((credential::new_ticket(), self.now().plus(tickets::LIFE)));
        }
        let token = self.proof_of_token(credential).await;
        let token = token.map_err(NoTicket::NotProven)?;
        let (accounts, now) = (self.accounts(), self.now());
        let proof = token.or_else(|| self.proof_of_key_or_login(&accounts, credential, now));
        let proof = proof.ok_or(NoTicket::NotProven(NotProven::Credential))?;
        let caller = self.caller(&accounts, &proof, now);
        let caller = caller.map_err(NoTicket::NotProven)?;
        let tenant = caller.rights.principal().map(Principal::tenant);
        let ticket = self.inner.tickets.open(proof, tenant, now);
        ticket.map_err(|maximum| NoTicket::TooMany { maximum })
    }

    /// Returns every principal of a tenant in the order of the names.
    pub(crate) fn list(&self, tenant: Tenant) -> Vec<Arc<Account>> {
        self.accounts().all_of(tenant).cloned().collect()
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn proof_of_key_or_login(
        &self,
        accounts: &Accounts,
        credential: &str,
        now: Timestamp,
    ) -> Option<Proof> {
        let login = credential::unseal(&self.inner.sealing_key, credential);
        let login = login.and_then(|(prover, expires)| {
            let by = Prover::unsealed(prover)?;
            Some(Proof { by, expires })
        });
        login.or_else(|| proof_of_key(accounts, credential, now))
    }

    /// Returns the caller of a proof whose key has not ended, or whose principal is not blocked.
    fn caller(
        &self,
        accounts: &Accounts,
        proof: &Proof,
        now: Timestamp,
    ) -> Result<Caller, NotProven> {
        let id = match &proof.by {
            Prover::Key(id) => id,
            Prover::Token(principal) => return self.caller_of_token(principal, proof.expires, now),
        };
        let key = accounts
            .key(id)
            .filter(|(_, key)| key.is_valid(now) && now < proof.expires);
        let (account, key) = key.ok_or(NotProven::Credential)?;
        self.check_open(account)?;
        Ok(Caller {
            rights: Rights::of(Some(account), &key.scopes),
            key_id: key.id.clone(),
            expires: Some(proof.expires.min(key.expires)),
        })
    }

    /// Returns a principal that may act.
    fn active(&self, accounts: &Accounts, principal: &Principal) -> Option<Arc<Account>> {
        match principal.issuer_and_subject() {
            Some(_) => self.active_issued(principal),
            None => accounts.active(principal).cloned(),
        }
    }

    fn are_open(&self, accounts: &Accounts) -> bool {
        accounts.is_open() && self.inner.issuers.is_empty()
    }

    fn check_open(&self, account: &Account) -> Result<(), NotProven> {
        let tenant = account.name.tenant();
        match self.inner.tenants.is_open(tenant) {
            true => Ok(()),
            false => Err(NotProven::Closed(tenant)),
        }
    }

    fn accounts(&self) -> Arc<Accounts> {
        let accounts = self.inner.accounts.read();
        accounts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Caller {
    fn everyone() -> Self {
        Self {
            rights: Rights::of_everyone(),
            key_id: String::new(),
            expires: None,
        }
    }
}

/// Returns the key that a text is, made here or imported.
fn proof_of_key(accounts: &Accounts, text: &str, now: Timestamp) -> Option<Proof> {
    let proof = |key: &Key| Proof {
        by: Prover::Key(key.id.clone()),
        expires: key.expires,
    };
    let Some((id, secret)) = credential::read_key(text) else {
        let imported = accounts.imported(&credential::digest(text));
        let imported = imported.filter(|(_, key)| !text.is_empty() && key.is_valid(now));
        return imported.map(|(_, key)| proof(key));
    };
    let found = accounts.key(id).map(|(_, key)| key);
    let found = found.filter(|key| key.origin == KeyOrigin::Made);
    let stored = found.map_or(NO_DIGEST, |key| &key.sha256);
    let is_proven = credential::is_equal(stored, &credential::digest(secret));
    found.filter(|_| is_proven).map(proof)
}
