//! The principals whom tokens of issuers prove.

use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use contracts::tavern::access::v1::Permission;
use core_types::{Principal, Tenant, Timestamp};
use tool_domain::identity::{Account, IssuedPrincipals, IssuerToken, LastToken, TokenFault};

use super::proof::{self, Proof, Prover};
use super::{Caller, Identities, NotChanged, NotProven, Rights};

/// An issued principal as administrators see it.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) name: Principal,
    /// Its last token; `None` for a principal that is blocked only.
    pub(crate) last: Option<LastToken>,
    /// The time since which it is blocked.
    pub(crate) blocked: Option<Timestamp>,
}

impl Identities {
    /// Begins to read the keys of issuers, now and hourly.
    pub(crate) fn begin_reading_keys(&self) {
        self.inner.issuers.begin_reading();
    }

    /// Returns the `iss` of the issuer of a principal.
    pub(crate) fn iss_of(&self, principal: &Principal) -> Option<&str> {
        self.inner.issuers.iss_of(principal)
    }

    /// Returns the issued principals of a tenant in the order of the names.
    pub(crate) fn list_issued(&self, tenant: Tenant) -> Vec<Issued> {
        let all = self.issued().all_of(tenant).into_iter();
        let all = all.map(|(name, last, blocked)| Issued {
            name,
            last,
            blocked,
        });
        all.collect()
    }

    /// Returns the time since which an issued principal is blocked; `None` for one that is not.
    pub(crate) fn blocked_since(&self, name: &Principal) -> Option<Timestamp> {
        self.issued().blocked_since(name)
    }

    /// Blocks an issued principal, whether or not a token has proven it: no token proves it then, and its runs and
    /// schedules may do nothing.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub(crate) async fn block(&self, name: &Principal) -> Result<Issued, NotChanged> {
        let _changing = self.inner.changing.lock().await;
        let block = self.issued().decide_block(name, self.now())?;
        self.inner.store.save_block(&block).await?;
        self.issued_mut().block(block);
        // Calls that leave with the earlier rights have left when the change is answered.
        drop(self.inner.dispatching.write().await);
        Ok(self.issued_as_it_is(name))
    }

    /// Ends the block of an issued principal.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub(crate) async fn unblock(&self, name: &Principal) -> Result<Issued, NotChanged> {
        let _changing = self.inner.changing.lock().await;
        self.inner.store.remove_block(name).await?;
        self.issued_mut().unblock(name);
        Ok(self.issued_as_it_is(name))
    }

    /// Returns the caller whom a token proves, with the rights that this token gives.
    pub(super) async fn resolve_token(&self, text: &str) -> Result<Caller, NotProven> {
        let token = self.admit(text).await?;
        Ok(caller(&token.account, token.ends))
    }

    /// Returns the proof that a token is; `None` for every text of another shape.
    pub(super) async fn proof_of_token(&self, text: &str) -> Result<Option<Proof>, NotProven> {
        if !IssuerToken::is_shape_of(text) {
            return Ok(None);
        }
        let token = self.admit(text).await?;
        Ok(Some(Proof {
            by: Prover::Token(token.account.name.clone()),
            expires: token.ends,
        }))
    }

    /// Returns the caller whom a token of an issuer proved, until its end.
    pub(super) fn caller_of_token(
        &self,
        principal: &Principal,
        ends: Timestamp,
        now: Timestamp,
    ) -> Result<Caller, NotProven> {
        let account = self.active_issued(principal).filter(|_| now < ends);
        let account = account.ok_or(NotProven::Credential)?;
        self.check_open(&account)?;
        Ok(caller(&account, ends))
    }

    /// Returns an issued principal that may act.
    pub(super) fn active_issued(&self, principal: &Principal) -> Option<Arc<Account>> {
        let (issued, now) = (self.issued(), self.now());
        let last = issued.active(principal);
        let last = last.filter(|last| self.inner.issuers.keeps(last, now))?;
        Some(Arc::clone(&last.account))
    }

    /// Whether a token has proven a principal, be it blocked or not.
    pub(super) fn knows_issued(&self, principal: &Principal) -> bool {
        self.issued().last(principal).is_some()
    }

    /// Returns the issued principals of a tenant that can decide about calls.
    pub(super) fn issued_approvers(&self, tenant: Tenant, group: &str) -> Vec<Principal> {
        let now = self.now();
        let is_approver = |last: &&LastToken| {
            let groups = &last.account.groups;
            now < last.ends
                && (group.is_empty() || groups.iter().any(|own| own == group))
                && Rights::of(Some(&last.account), &[]).permits(Permission::Approve)
        };
        let issued = self.issued();
        let approvers = issued.active_of(tenant).filter(is_approver);
        let mut names: Vec<Principal> = approvers.map(|last| last.account.name.clone()).collect();
        names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        names
    }

    /// Forgets the issued principals of a tenant.
    pub(super) fn forget_issued(&self, tenant: Tenant) {
        self.issued_mut().forget(tenant);
    }

    /// Checks a token, and keeps its rights if it is the last one of its principal.
    async fn admit(&self, text: &str) -> Result<LastToken, NotProven> {
        let now = self.now();
        let token = self.inner.issuers.admit(text, now).await;
        let token = token.map_err(|_| NotProven::Credential)?;
        let name = &token.account.name;
        if self.issued().is_blocked(name) {
            self.inner.issuers.refuse(name, TokenFault::Blocked, now);
            return Err(NotProven::Credential);
        }
        // Nothing of a tenant that is removed is kept.
        self.check_open(&token.account)?;
        let kept = self.issued_mut().keep(token.clone());
        if kept.is_last {
            let (identities, last) = (self.clone(), token.clone());
            let stored = async move {
                let stored = identities
                    .inner
                    .store
                    .save_last(&last, &kept.forgotten)
                    .await;
                if let Err(error) = stored {
                    let principal = &last.account.name;
                    tracing::error!(%principal, %error, "the rights of a token are not stored: after a restart the \
                        runs of its principal have none until its next token");
                }
            };
            // It is stored also where the caller leaves.
            let _ = tokio::spawn(stored).await;
        }
        Ok(token)
    }

    fn issued_as_it_is(&self, name: &Principal) -> Issued {
        let issued = self.issued();
        Issued {
            name: name.clone(),
            last: issued.last(name).cloned(),
            blocked: issued.blocked_since(name),
        }
    }

    fn issued(&self) -> RwLockReadGuard<'_, IssuedPrincipals> {
        let issued = self.inner.issued.read();
        issued.unwrap_or_else(PoisonError::into_inner)
    }

    fn issued_mut(&self) -> RwLockWriteGuard<'_, IssuedPrincipals> {
        let issued = self.inner.issued.write();
        issued.unwrap_or_else(PoisonError::into_inner)
    }
}

fn caller(account: &Arc<Account>, ends: Timestamp) -> Caller {
    Caller {
        rights: Rights::of(Some(account), &[]),
        key_id: proof::id_of_token(ends),
        expires: Some(ends),
    }
}
