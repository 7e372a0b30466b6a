//! Resolving credentials, and changing principals and keys.
//!
//! - `issued`: issued principals, and lists of all.
//! - `read`: requests as values, every violation at once.
//! - `refusal`: refused changes as statuses.

mod issued;
mod read;
mod refusal;

use std::time::Duration;

use contracts::{
    access::Role,
    tavern::access::v1::Permission,
    tavern::registry::v1::{
        BlockPrincipalRequest, BlockPrincipalResponse, BootstrapRequest, BootstrapResponse, Caller,
        CreateKeyRequest, CreateKeyResponse, GetCallerRequest, GetCallerResponse,
        ImportApproversRequest, ImportApproversResponse, IssueTicketRequest, IssueTicketResponse,
        Key, ListPrincipalsRequest, ListPrincipalsResponse, LoginRequest, LoginResponse, Principal,
        PutPrincipalRequest, PutPrincipalResponse, ResolveCredentialRequest,
        ResolveCredentialResponse, ResolvePrincipalRequest, ResolvePrincipalResponse,
        RevokeKeysRequest, RevokeKeysResponse, RotateKeyRequest, RotateKeyResponse,
        UnblockPrincipalRequest, UnblockPrincipalResponse,
        identity_service_server::IdentityService,
    },
};
use core_types::Tenant;
use grpc_kit::{CallContext, Failure};
use run_events::{store_failure, timestamp_to_proto, to_its_end};
use tonic::{Request, Response, Status};
use tool_domain::identity::{
    self as domain,
    accounts::{Authority, Regain},
};

use super::{Answer, page::page_after, refusal::not_permitted, tenants};
use crate::{
    identities::{self, Identities, Made, NoTicket},
    tools::Tools,
};
use refusal::{not_proven, unauthenticated};

/// The time for which a replaced key works where a request gives none.
const OVERLAP_HOURS: u32 = 24;
/// The life of a key where a request gives none, in days.
const DAYS: u32 = 90;
/// The life of the first key where a request gives none, in days.
const DAYS_OF_FIRST: u32 = 365;
/// The name of the first principal where a request gives none.
pub(crate) const FIRST: &str = "admin";

/// Principals, keys and rights as a gRPC service.
#[derive(Clone, Debug)]
pub struct IdentityRpc {
    identities: Identities,
    tools: Tools,
}

impl IdentityRpc {
    /// Takes the identities, and the tools that patterns name.
    pub fn new(identities: Identities, tools: Tools) -> Self {
        Self { identities, tools }
    }

    /// Returns the tenant that a request is about: the caller's own if it names none. Another one needs the
    /// permission to administer the installation.
    fn within(&self, context: &CallContext, written: &str) -> Result<Tenant, Status> {
        let own = context.tenant();
        if written.is_empty() || written == own.as_str() {
            return Ok(own);
        }
        self.check_in_system(context)?;
        let named = Tenant::new(written)
            .map_err(|error| Failure::invalid_fields().violation("tenant", error.to_string()))?;
        let records = self.identities.tenants().records();
        let found = records
            .open(named)
            .map_err(|error| tenants::of_refusal(&error))?;
        Ok(found.name)
    }

    /// Checks that a caller administers the installation.
    fn check_in_system(&self, context: &CallContext) -> Result<(), Status> {
        let (principal, administer) = (context.principal(), Permission::Administer);
        let caller = self
            .identities
            .resolve_principal(principal, context.key_id());
        let caller = caller.map_err(not_proven)?;
        match caller.rights.permits_in_system(administer) {
            true => Ok(()),
            false => {
                let message = format!(
                    "`{principal}` does not have the permission `administer` in the tenant `system`, which another \
                     tenant needs"
                );
                Err(not_permitted(principal, administer, message).into_status())
            }
        }
    }

    /// Returns the part of the installation that a caller administers.
    fn authority(&self, context: &CallContext) -> Authority {
        match self.check_in_system(context) {
            Ok(()) => Authority::Installation,
            Err(_) => Authority::Tenant,
        }
    }
}

#[tonic::async_trait]
impl IdentityService for IdentityRpc {
    async fn resolve_credential(
        &self,
        request: Request<ResolveCredentialRequest>,
    ) -> Answer<ResolveCredentialResponse> {
        let caller = self.identities.resolve(&request.get_ref().credential).await;
        let caller = caller.map_err(not_proven)?;
        Ok(Response::new(ResolveCredentialResponse {
            caller: Some(caller_to_proto(&self.identities, &caller)),
        }))
    }

    async fn resolve_principal(
        &self,
        request: Request<ResolvePrincipalRequest>,
    ) -> Answer<ResolvePrincipalResponse> {
        let request = request.get_ref();
        let principal = core_types::Principal::new(&request.principal);
        let principal = principal.map_err(|_| unauthenticated())?;
        let caller = self
            .identities
            .resolve_principal(&principal, &request.key_id)
            .map_err(not_proven)?;
        Ok(Response::new(ResolvePrincipalResponse {
            caller: Some(caller_to_proto(&self.identities, &caller)),
        }))
    }

    async fn login(&self, request: Request<LoginRequest>) -> Answer<LoginResponse> {
        let login = self.identities.login(&request.get_ref().key).await;
        let (token, caller) = login.map_err(not_proven)?;
        Ok(Response::new(LoginResponse {
            token,
            caller: Some(caller_to_proto(&self.identities, &caller)),
        }))
    }

    async fn issue_ticket(
        &self,
        request: Request<IssueTicketRequest>,
    ) -> Answer<IssueTicketResponse> {
        let issued = self.identities.issue_ticket(&request.get_ref().credential);
        let issued = issued.await;
        let (ticket, expires) = issued.map_err(|reason| match reason {
            NoTicket::NotProven(reason) => not_proven(reason),
            NoTicket::TooMany { maximum } => {
                Failure::limit_exceeded("open tickets", maximum, maximum + 1).into_status()
            }
        })?;
        Ok(Response::new(IssueTicketResponse {
            ticket,
            expire_time: Some(timestamp_to_proto(expires)),
        }))
    }

    async fn get_caller(&self, request: Request<GetCallerRequest>) -> Answer<GetCallerResponse> {
        let context = CallContext::of(&request);
        let caller = self
            .identities
            .resolve_principal(context.principal(), context.key_id());
        let caller = caller.map_err(not_proven)?;
        Ok(Response::new(GetCallerResponse {
            caller: Some(caller_to_proto(&self.identities, &caller)),
        }))
    }

    async fn bootstrap(&self, request: Request<BootstrapRequest>) -> Answer<BootstrapResponse> {
        let request = request.into_inner();
        let bootstrapped = bootstrap(self.identities.clone(), request, Regain::Never);
        Ok(Response::new(to_its_end(bootstrapped).await?))
    }

    async fn create_key(&self, request: Request<CreateKeyRequest>) -> Answer<CreateKeyResponse> {
        let context = CallContext::of(&request);
        let (identities, request) = (self.identities.clone(), request.into_inner());
        let tenant = self.within(&context, &request.tenant)?;
        let (name, days) = read::new_key(&request, tenant, DAYS)?;
        let (authority, by) = (self.authority(&context), context.principal().clone());
        let made = to_its_end(async move {
            let (roles, scopes) = (read::unique(request.roles), read::unique(request.scopes));
            let of = (&name, authority);
            let made = identities.create_key(of, &roles, &scopes, days).await;
            made.map_err(|error| refusal::of_change(error, "roles", &by))
        });
        let made = made.await?;
        let (key, _) = announced(&made, context.principal());
        Ok(Response::new(CreateKeyResponse {
            key,
            principal: Some(principal_to_proto(&made.account)),
            secret_key: made.secret_key,
        }))
    }

    async fn rotate_key(&self, request: Request<RotateKeyRequest>) -> Answer<RotateKeyResponse> {
        let context = CallContext::of(&request);
        let (identities, request) = (self.identities.clone(), request.into_inner());
        let tenant = self.within(&context, &request.tenant)?;
        let chosen = read::chosen(&request.key_id, &request.principal, tenant)?;
        let hours = match request.overlap_hours {
            0 => OVERLAP_HOURS,
            hours => hours,
        };
        let overlap = Duration::from_secs(60 * 60) * hours;
        let (authority, by) = (self.authority(&context), context.principal().clone());
        let made = to_its_end(async move {
            let chosen = (chosen.as_domain(), authority);
            let made = identities.rotate(chosen, overlap).await;
            made.map_err(|error| refusal::of_change(error, "key_id", &by))
        });
        let made = made.await?;
        let (key, replaced) = announced(&made, context.principal());
        Ok(Response::new(RotateKeyResponse {
            key,
            replaced,
            secret_key: made.secret_key,
        }))
    }

    async fn revoke_keys(&self, request: Request<RevokeKeysRequest>) -> Answer<RevokeKeysResponse> {
        let context = CallContext::of(&request);
        let (identities, request) = (self.identities.clone(), request.into_inner());
        let tenant = self.within(&context, &request.tenant)?;
        let chosen = read::chosen(&request.key_id, &request.principal, tenant)?;
        let by = context.principal().clone();
        let revoked = to_its_end(async move {
            let revoked = identities.revoke(chosen.as_domain(), request.really).await;
            revoked.map_err(|error| refusal::of_change(error, "key_id", &by))
        });
        let (account, ids) = revoked.await?;
        let by = context.principal();
        tracing::info!(principal = %account.name, keys = ?ids, %by, "keys are revoked");
        let keys = account.keys.iter().filter(|key| ids.contains(&key.id));
        Ok(Response::new(RevokeKeysResponse {
            keys: keys.map(key_to_proto).collect(),
        }))
    }

    async fn put_principal(
        &self,
        request: Request<PutPrincipalRequest>,
    ) -> Answer<PutPrincipalResponse> {
        let context = CallContext::of(&request);
        let (identities, request) = (self.identities.clone(), request.into_inner());
        let principal = request.principal.unwrap_or_default();
        let tenant = self.within(&context, &principal.tenant)?;
        let now = identities.now();
        let catalogue = self.tools.catalogue(tenant).await;
        let catalogue = catalogue.map_err(|error| store_failure(&error))?;
        let account = read::principal(principal, tenant, &catalogue, now)?;
        let system_roles = request
            .set_system_roles
            .then(|| account.system_roles.clone());
        let system_roles = (system_roles, self.authority(&context));
        let by = context.principal().clone();
        let put = to_its_end(async move {
            let put = identities.put(account, system_roles, request.really).await;
            put.map_err(|error| refusal::of_change(error, "principal", &by))
        });
        let (account, by) = (put.await?, context.principal());
        let (roles, system_roles) = (&account.roles, &account.system_roles);
        tracing::info!(principal = %account.name, ?roles, ?system_roles, %by, "a principal is set");
        Ok(Response::new(PutPrincipalResponse {
            principal: Some(principal_to_proto(&account)),
        }))
    }

    async fn block_principal(
        &self,
        request: Request<BlockPrincipalRequest>,
    ) -> Answer<BlockPrincipalResponse> {
        let context = CallContext::of(&request);
        let (identities, request) = (self.identities.clone(), request.into_inner());
        let tenant = self.within(&context, &request.tenant)?;
        let name = read::issued(&request.principal, tenant)?;
        let by = context.principal().clone();
        let blocked = to_its_end(async move {
            let blocked = identities.block(&name).await;
            blocked.map_err(|error| refusal::of_change(error, "principal", &by))
        });
        let (blocked, by) = (blocked.await?, context.principal());
        tracing::info!(principal = %blocked.name, %by, "an issued principal is blocked");
        Ok(Response::new(BlockPrincipalResponse {
            principal: Some(issued::to_proto(&self.identities, blocked)),
        }))
    }

    async fn unblock_principal(
        &self,
        request: Request<UnblockPrincipalRequest>,
    ) -> Answer<UnblockPrincipalResponse> {
        let context = CallContext::of(&request);
        let (identities, request) = (self.identities.clone(), request.into_inner());
        let tenant = self.within(&context, &request.tenant)?;
        let name = read::issued(&request.principal, tenant)?;
        let by = context.principal().clone();
        let unblocked = to_its_end(async move {
            let unblocked = identities.unblock(&name).await;
            unblocked.map_err(|error| refusal::of_change(error, "principal", &by))
        });
        let (unblocked, by) = (unblocked.await?, context.principal());
        tracing::info!(principal = %unblocked.name, %by, "the block of an issued principal ends");
        Ok(Response::new(UnblockPrincipalResponse {
            principal: Some(issued::to_proto(&self.identities, unblocked)),
        }))
    }

    async fn list_principals(
        &self,
        request: Request<ListPrincipalsRequest>,
    ) -> Answer<ListPrincipalsResponse> {
        let context = CallContext::of(&request);
        let request = request.get_ref();
        let tenant = self.within(&context, &request.tenant)?;
        let listed = issued::listed(&self.identities, tenant);
        let (page, next_page_token) = page_after(
            &grpc_kit::list_of_tenant(tenant, "ListPrincipals"),
            &request.page_token,
            request.page_size,
            &listed,
            |listed| listed.name().as_str(),
        )?;
        let page = page.iter().map(|listed| listed.to_proto(&self.identities));
        Ok(Response::new(ListPrincipalsResponse {
            principals: page.collect(),
            next_page_token,
        }))
    }

    async fn import_approvers(
        &self,
        request: Request<ImportApproversRequest>,
    ) -> Answer<ImportApproversResponse> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let tenant = self.within(&context, &request.tenant)?;
        let approvers = read::approvers(request.approvers, tenant)?;
        let (identities, by) = (self.identities.clone(), context.principal().clone());
        let imported = to_its_end(async move {
            let imported = identities.import(&approvers, Role::Approver.name()).await;
            imported.map_err(|error| refusal::of_change(error, "approvers", &by))
        });
        let (imported, by) = (imported.await?, context.principal());
        tracing::info!(principals = imported.len(), %by, "approvers are imported");
        Ok(Response::new(ImportApproversResponse {
            principals: imported.iter().map(principal_to_proto).collect(),
        }))
    }
}

/// Makes the first principal and its key, or the key by which an installation regains an administrator.
pub(crate) async fn bootstrap(
    identities: Identities,
    request: BootstrapRequest,
    regain: Regain,
) -> Result<BootstrapResponse, Status> {
    let (name, days) = read::first(&request, FIRST, DAYS_OF_FIRST)?;
    let made = identities.bootstrap(&name, days, regain).await;
    let made = made.map_err(|error| refusal::of_change(error, "principal", &name))?;
    let (key, _) = announced(&made, &name);
    Ok(BootstrapResponse {
        key,
        principal: Some(principal_to_proto(&made.account)),
        secret_key: made.secret_key,
    })
}

/// Logs a new key without its secret. Returns it and the key that it replaces.
fn announced(made: &Made, by: &core_types::Principal) -> (Option<Key>, Option<Key>) {
    let Made {
        key_id, replaced, ..
    } = made;
    tracing::info!(principal = %made.account.name, key_id, replaced, %by, "a key is made");
    let of_id = |id: &str| made.account.key(id).map(key_to_proto);
    (of_id(key_id), of_id(replaced))
}

fn caller_to_proto(identities: &Identities, caller: &identities::Caller) -> Caller {
    let rights = &caller.rights;
    let roles = match rights.is_open() {
        true => vec![Role::Admin.name().to_owned()],
        false => rights.roles().to_vec(),
    };
    let permissions = rights.permissions().map(|it| it.name().to_owned());
    let system_permissions = rights.system_permissions().map(|it| it.name().to_owned());
    let principal = rights.principal();
    let subject = principal.and_then(core_types::Principal::issuer_and_subject);
    let issuer = principal.and_then(|it| identities.iss_of(it));
    Caller {
        issuer: issuer.unwrap_or_default().to_owned(),
        subject: subject.map_or(String::new(), |(_, subject)| subject.into_owned()),
        principal: principal.map(ToString::to_string).unwrap_or_default(),
        tenant: principal.map_or(String::new(), |it| it.tenant().to_string()),
        roles,
        permissions: permissions.collect(),
        system_permissions: system_permissions.collect(),
        limits: principal.and_then(|it| identities.tenants().door_limits(it.tenant())),
        groups: rights.groups().to_vec(),
        key_id: caller.key_id.clone(),
        expire_time: caller.expires.map(timestamp_to_proto),
        open: rights.is_open(),
    }
}

fn principal_to_proto(account: &domain::Account) -> Principal {
    Principal {
        name: account.name.name().to_owned(),
        tenant: account.name.tenant().to_string(),
        roles: account.roles.clone(),
        system_roles: account.system_roles.clone(),
        groups: account.groups.clone(),
        allowed_tools: account.tools.allowed.clone(),
        denied_tools: account.tools.denied.clone(),
        keys: keys_to_proto(account.keys.iter()),
        create_time: Some(timestamp_to_proto(account.created)),
        issued: None,
    }
}

fn keys_to_proto<'a>(keys: impl Iterator<Item = &'a domain::Key>) -> Vec<Key> {
    keys.map(key_to_proto).collect()
}

fn key_to_proto(key: &domain::Key) -> Key {
    Key {
        key_id: key.id.clone(),
        scopes: key.scopes.clone(),
        create_time: Some(timestamp_to_proto(key.created)),
        expire_time: Some(timestamp_to_proto(key.expires)),
        revoke_time: key.revoked.map(timestamp_to_proto),
    }
}
