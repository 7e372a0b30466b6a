//! Calls that wait for people before they leave (rules G801 to G807).
//!
//! An approval is stored before its call begins to wait, so a restart loses none: the call's owner
//! repeats its request, and finds the decision made meanwhile. Only [`Approvals::decide`] decides.

mod approvers;
mod policy;

use std::sync::Arc;

use approval_rules::{Ask, Judged, Judgement, Stricter};
use call_outcome::{Category, Failure};
use core_types::{Clock, IdSource, LoadDiagnostic, PerTenant, Principal, Tenant, Timestamp};
use sql_store::Database;
use tokio::sync::{Mutex, broadcast};
use tool_domain::{
    approval::{Approval, DecideError, Decision, State, digest_to_remember},
    catalogue::Catalogue,
    tool::Tool,
};

pub use crate::store::approvals::ApprovalFilter;
use crate::{
    identities::Identities,
    store::{
        StoreError,
        approvals::{ApprovalStore, Stored},
    },
};
pub use approvers::{Decider, NotDecider};
pub use policy::{Approver, Policy, PolicyError};

/// The most approvals of a tenant that wait at once.
const MAX_PENDING: i64 = 1_000;
/// The most tenants that are in memory without a change or a follower of their approvals.
const MAX_TENANTS: usize = 256;
/// The most changes that a follower may lag behind before it reads the pending approvals again.
const CHANGES: usize = 256;

/// A call that is to be approved.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The tool.
    pub tool: &'a Tool,
    /// The arguments as canonical JSON.
    pub arguments: String,
    /// The effect; empty for a call that ends with its caller.
    pub effect_id: &'a str,
    /// The conversation; empty if none.
    pub conversation_id: &'a str,
    /// The principal that the call acts for.
    pub principal: &'a Principal,
    /// The digest of the first request for the effect.
    pub body: String,
    /// The run that makes the call; empty if none does.
    pub run_id: &'a str,
    /// The call as JSON, to start it again after a restart; empty if its owner requests it.
    pub call_json: String,
}

/// The approval of a call, and whether it is new.
#[derive(Debug)]
pub enum FoundApproval {
    /// The effect id belongs to another call, which waits or waited for people.
    OfAnother,
    /// It was approved before for the whole conversation, by this approval.
    Remembered(String),
    /// An approval, pending or not.
    Approval(Box<Approval>),
}

/// The reason for which an approval was not decided.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// No approval has this id.
    #[error("no approval has the id `{0}`")]
    NotFound(String),
    /// The decision does not count.
    #[error("{error}")]
    Refused {
        /// The reason for the refusal.
        error: DecideError,
        /// The approval as it is.
        approval: Box<Approval>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The approvals of this service. Clone, cheap.
#[derive(Clone)]
pub struct Approvals {
    inner: Arc<Inner>,
}

struct Inner {
    policy: Policy,
    identities: Identities,
    store: Arc<dyn ApprovalStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    tenants: PerTenant<ApprovalsOfTenant>,
}

struct ApprovalsOfTenant {
    changes: broadcast::Sender<Arc<Approval>>,
    /// Held while an approval is made or changed.
    changing: Mutex<()>,
}

impl Default for ApprovalsOfTenant {
    fn default() -> Self {
        Self {
            changes: broadcast::Sender::new(CHANGES),
            changing: Mutex::default(),
        }
    }
}

/// The changes of the approvals of a tenant, as they happen.
pub struct Changes {
    changes: broadcast::Receiver<Arc<Approval>>,
    /// Stays in memory as long as it is followed.
    _of_tenant: Arc<ApprovalsOfTenant>,
}

impl Changes {
    /// Waits for the next change. Returns nothing if changes were missed.
    pub async fn next(&mut self) -> Option<Arc<Approval>> {
        self.changes.recv().await.ok()
    }
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Approvals")
    }
}

impl Approvals {
    /// Takes the rules, the people and an open database with the tables of this service.
    pub fn new(
        policy: Policy,
        identities: Identities,
        database: Database,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                policy,
                identities,
                store: Arc::new(database),
                clock,
                ids,
                tenants: PerTenant::new(MAX_TENANTS),
            }),
        }
    }

    /// Returns a finding for each tool that a rule names and that does not exist
    /// ([`Policy::findings`]).
    pub fn findings(&self, catalogue: &Catalogue) -> Vec<LoadDiagnostic> {
        self.inner.policy.findings(catalogue)
    }

    /// Holds a call against the rules of the operator and those of the agents above it.
    pub fn judge(
        &self,
        of_agents: &[Stricter<'_>],
        tool: &Tool,
        arguments: &serde_json::Value,
        conversation: &str,
    ) -> Judgement {
        let aliases = tool.names_in_rules();
        let call = Judged {
            tool: tool.id(),
            aliases: &aliases,
            effect: tool.flags().effect_class(),
            arguments,
            conversation,
        };
        self.inner.policy.rules.judge(of_agents, call)
    }

    /// Returns the possible effects of the rules on a call of a tool, a sentence for each.
    pub fn outlook(&self, of_agents: &[Stricter<'_>], tool: &Tool) -> Vec<String> {
        let rules = &self.inner.policy.rules;
        let aliases = tool.names_in_rules();
        rules.outlook(
            of_agents,
            (tool.id(), &aliases),
            tool.flags().effect_class(),
        )
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Returns the approval of a call, and makes one if there is none.
    ///
    /// # Errors
    /// The outer one is of the store; the inner one is the reason for refusing the call without a
    /// request to people.
    pub async fn require(
        &self,
        wanted: Wanted<'_>,
        ask: Ask,
    ) -> Result<Result<FoundApproval, Failure>, StoreError> {
        let inner = &*self.inner;
        let (tool, digest) = (wanted.tool.id(), wanted.tool.etag());
        let tenant = wanted.principal.tenant();
        let of_tenant = inner.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        if let Some(stored) = inner.store.of_effect(tenant, wanted.effect_id).await? {
            let first = &stored.approval.body;
            if !first.is_empty() && *first != wanted.body {
                return Ok(Ok(FoundApproval::OfAnother));
            }
            if stored.approval.tool_digest == digest {
                let approval = inner.expired(stored).await?;
                return Ok(Ok(FoundApproval::Approval(Box::new(approval))));
            }
            // The tool was declared anew, so the decision was about another definition (rule G807).
            inner.end(stored, State::Withdrawn).await?;
        }
        if !wanted.conversation_id.is_empty() {
            let remembered = digest_to_remember(tool, digest, wanted.principal, &wanted.arguments);
            let conversation = wanted.conversation_id;
            let remembered = inner.store.remembered(tenant, conversation, &remembered);
            if let Some(id) = remembered.await?
                && let Some(stored) = inner.store.get(tenant, &id).await?
                && stored.approval.covers(&ask)
            {
                return Ok(Ok(FoundApproval::Remembered(id)));
            }
        }
        if let Some(lacking) = inner.lacking_approvers(&ask, wanted.principal) {
            let message = format!("{tool} needs the approval of a person, and {lacking}");
            return Ok(Err(refused("approval_unavailable", message)));
        }
        if inner.store.pending(tenant).await? >= MAX_PENDING {
            let message = format!("{tool} needs an approval, and {MAX_PENDING} calls wait for one");
            let failure = Failure::new(Category::Limit, "too_many_approvals", message);
            return Ok(Err(failure.retryable()));
        }
        let now = inner.clock.now();
        let approval = Approval {
            id: format!("apr_{}", inner.ids.next_uuid().simple()),
            state: State::Pending,
            principal: wanted.principal.clone(),
            body: wanted.body,
            run_id: wanted.run_id.to_owned(),
            effect_id: wanted.effect_id.to_owned(),
            tool_id: tool.to_owned(),
            tool_digest: digest.to_owned(),
            arguments: wanted.arguments,
            reasons: ask.reasons,
            effect: wanted.tool.flags().effect_class(),
            conversation_id: wanted.conversation_id.to_owned(),
            role: ask.role,
            needed: ask.needed,
            reason_required: ask.reason_required,
            consents: Vec::new(),
            edited: false,
            created: now.unix_nanos(),
            expires: now.plus(ask.expires).unix_nanos(),
            ended: None,
        };
        inner.store.put(&approval, &wanted.call_json).await?;
        inner.announce(&approval);
        Ok(Ok(FoundApproval::Approval(Box::new(approval))))
    }

    /// Waits until an approval is decided, expires or is withdrawn.
    ///
    /// # Errors
    /// The store fails, or has no such approval.
    pub async fn ended(&self, tenant: Tenant, id: &str) -> Result<Approval, DecisionError> {
        let mut changes = self.changes(tenant);
        loop {
            let approval = self.get(tenant, id).await?;
            if approval.state != State::Pending {
                return Ok(approval);
            }
            let expires = Timestamp::from_unix_nanos(approval.expires);
            let left = expires.since(self.inner.clock.now());
            let changed = async {
                loop {
                    match changes.next().await {
                        Some(changed) if changed.id != id => {}
                        _ => return,
                    }
                }
            };
            // The next read shows whether it changed or its time has passed.
            let _ = tokio::time::timeout(left, changed).await;
        }
    }

    /// Returns an approval of a tenant as it is now.
    ///
    /// # Errors
    /// The store fails, or has no such approval.
    pub async fn get(&self, tenant: Tenant, id: &str) -> Result<Approval, DecisionError> {
        let stored = self.inner.store.get(tenant, id).await?;
        let stored = stored.ok_or_else(|| DecisionError::NotFound(id.to_owned()))?;
        if !stored.approval.is_overdue(self.inner.clock.now()) {
            return Ok(stored.approval);
        }
        let of_tenant = self.inner.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        let stored = self.inner.store.get(tenant, id).await?;
        let stored = stored.ok_or_else(|| DecisionError::NotFound(id.to_owned()))?;
        Ok(self.inner.expired(stored).await?)
    }

    /// Returns the approval for which an effect of a tenant waits.
    ///
    /// # Errors
    /// The store fails.
    pub async fn pending_of(
        &self,
        tenant: Tenant,
        effect: &str,
    ) -> Result<Option<Approval>, StoreError> {
        let stored = self.inner.store.of_effect(tenant, effect).await?;
        let now = self.inner.clock.now();
        let approval = stored.map(|stored| stored.approval);
        Ok(approval
            .filter(|approval| approval.state == State::Pending && !approval.is_overdue(now)))
    }

    /// Withdraws an approval that its call no longer needs; nothing if it has ended.
    ///
    /// # Errors
    /// The store fails.
    pub async fn withdraw(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let of_tenant = self.inner.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        match self.inner.store.get(tenant, id).await? {
            Some(stored) if stored.approval.state == State::Pending => {
                self.inner.end(stored, State::Withdrawn).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Records a decision of a person; `remember` extends it to later calls of the conversation.
    ///
    /// # Errors
    /// [`DecisionError`], and nothing is changed.
    pub async fn decide(
        &self,
        tenant: Tenant,
        id: &str,
        decision: Decision<'_>,
        remember: bool,
    ) -> Result<Approval, DecisionError> {
        let inner = &*self.inner;
        let of_tenant = inner.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        let stored = inner.store.get(tenant, id).await?;
        let stored = stored.ok_or_else(|| DecisionError::NotFound(id.to_owned()))?;
        let call_json = stored.call_json.clone();
        let mut approval = inner.expired(stored).await?;
        let remember = remember && decision.approved;
        let decision = Decision {
            own: inner.is_own(&approval.principal, decision.approver),
            ..decision
        };
        match approval.decide(decision, inner.clock.now()) {
            Err(error) => {
                let approval = Box::new(approval);
                return Err(DecisionError::Refused { error, approval });
            }
            Ok(false) => return Ok(approval),
            Ok(true) => {}
        }
        if remember && approval.state == State::Approved && !approval.conversation_id.is_empty() {
            let digest = approval.digest_to_remember();
            let conversation = &approval.conversation_id;
            inner
                .store
                .remember(tenant, conversation, &digest, &approval.id)
                .await?;
        }
        inner.store.put(&approval, &call_json).await?;
        inner.announce(&approval);
        Ok(approval)
    }

    /// Returns a page of approvals of a tenant, the newest first.
    ///
    /// # Errors
    /// The store fails.
    pub async fn list(
        &self,
        tenant: Tenant,
        filter: &ApprovalFilter,
        after: Option<(i64, &str)>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        let stored = self.inner.store.list(tenant, filter, after, limit).await?;
        let now = self.inner.clock.now();
        let mut approvals = Vec::with_capacity(stored.len());
        for mut stored in stored {
            if stored.approval.is_overdue(now) {
                stored.approval.end(State::Expired, now);
            }
            approvals.push(stored.approval);
        }
        Ok(approvals)
    }

    /// Follows every change of the approvals of a tenant.
    pub fn changes(&self, tenant: Tenant) -> Changes {
        let of_tenant = self.inner.tenants.of(tenant);
        Changes {
            changes: of_tenant.changes.subscribe(),
            _of_tenant: of_tenant,
        }
    }

    /// Withdraws approvals of all tenants whose callers ended with the previous process, and returns the approvals
    /// whose calls no owner requests again.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn recover(&self) -> Result<Vec<Stored>, StoreError> {
        let mut waiting = Vec::new();
        for stored in self.inner.store.unattended().await? {
            match stored.approval.effect_id.as_str() {
                "" => {
                    let tenant = stored.approval.principal.tenant();
                    self.withdraw(tenant, &stored.approval.id).await?;
                }
                _ => waiting.push(stored),
            }
        }
        Ok(waiting)
    }

    /// Ends the approvals of all tenants whose time has passed.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn expire_overdue(&self) -> Result<(), StoreError> {
        let now = self.now().unix_nanos();
        for overdue in self.inner.store.overdue(now, CHANGES).await? {
            let (tenant, id) = (overdue.approval.principal.tenant(), &overdue.approval.id);
            let of_tenant = self.inner.tenants.of(tenant);
            let _changing = of_tenant.changing.lock().await;
            if let Some(stored) = self.inner.store.get(tenant, id).await? {
                self.inner.expired(stored).await?;
            }
        }
        Ok(())
    }

    /// Returns at most `limit` approvals of all tenants that ended before a time, the oldest first, after a time of
    /// creation in nanoseconds since 1970 and an id, each with the conversation whose later calls it covers.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn ended_before(
        &self,
        before: Timestamp,
        after: (i64, &str),
        limit: usize,
    ) -> Result<Vec<(Approval, String)>, StoreError> {
        let before = before.unix_nanos();
        self.inner.store.ended_before(before, after, limit).await
    }

    /// Deletes approvals of a tenant that ended, with the permissions that they give later calls of a
    /// conversation.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn delete(&self, tenant: Tenant, ids: &[String]) -> Result<(), StoreError> {
        let of_tenant = self.inner.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        self.inner.store.delete(tenant, ids).await
    }

    /// Deletes at most `limit` approvals and remembered decisions each of a tenant that is being removed. Returns the
    /// number of those that are left.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn remove_of(&self, tenant: Tenant, limit: u32) -> Result<u64, StoreError> {
        let of_tenant = self.inner.tenants.of(tenant);
        let changing = of_tenant.changing.lock().await;
        let left = self.inner.store.remove_of(tenant, limit).await?;
        drop(changing);
        drop(of_tenant);
        self.inner.tenants.forget(tenant);
        Ok(left)
    }

    /// Returns free pages to the file system in one step. Returns the number of bytes; zero when few are free.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn reclaim(&self) -> Result<u64, StoreError> {
        self.inner.store.reclaim().await
    }

    /// Deletes the stored call of an approval, as the ledger records the call from now on.
    ///
    /// # Errors
    /// The store fails.
    pub async fn dispatched(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        self.inner.store.forget_call(tenant, id).await
    }
}

impl Inner {
    /// Returns an approval, which ends if its time has passed.
    async fn expired(&self, stored: Stored) -> Result<Approval, StoreError> {
        match stored.approval.is_overdue(self.clock.now()) {
            true => self.end(stored, State::Expired).await,
            false => Ok(stored.approval),
        }
    }

    async fn end(&self, mut stored: Stored, state: State) -> Result<Approval, StoreError> {
        stored.approval.end(state, self.clock.now());
        self.store.put(&stored.approval, &stored.call_json).await?;
        self.announce(&stored.approval);
        Ok(stored.approval)
    }

    fn announce(&self, approval: &Approval) {
        let of_tenant = self.tenants.of(approval.principal.tenant());
        // Without followers the send fails, which is no error.
        let _ = of_tenant.changes.send(Arc::new(approval.clone()));
    }
}

/// Makes the failure of a call that must not leave.
pub fn refused(code: &str, message: impl Into<String>) -> Failure {
    Failure::new(Category::Policy, code, message)
}
