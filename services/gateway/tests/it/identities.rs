//! A double of the registry's identities, whose keys a test makes and ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use contracts::access::Role;
use contracts::tavern::registry::v1 as proto;
use contracts::tavern::registry::v1::identity_service_server::{
    IdentityService, IdentityServiceServer,
};
use core_types::Tenant;
use grpc_kit::Services;
use tonic::{Request, Response, Status};

/// The registry's identities.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdentityDouble(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The principals of credentials.
    credentials: HashMap<String, Credential>,
    roles: HashMap<String, Vec<Role>>,
    is_away: bool,
    /// Whether the tenant is closed.
    is_closed: bool,
    /// The bounds that the door keeps.
    limits: Option<proto::DoorLimits>,
    resolved: usize,
    issued: usize,
}

#[derive(Clone, Debug)]
struct Credential {
    principal: String,
    is_for_once: bool,
}

impl IdentityDouble {
    /// Makes a principal with a role, and returns its key.
    pub(crate) fn key(&self, principal: &str, role: Role) -> String {
        let key = format!("tvk_{principal}_0123456789abcdef_checksum");
        let mut state = self.state();
        let credential = Credential {
            principal: principal.to_owned(),
            is_for_once: false,
        };
        state.credentials.insert(key.clone(), credential);
        state.roles.insert(principal.to_owned(), vec![role]);
        key
    }

    /// Ends every credential of a principal.
    pub(crate) fn revoke(&self, principal: &str) {
        let mut state = self.state();
        state
            .credentials
            .retain(|_, credential| credential.principal != principal);
        state.roles.remove(principal);
    }

    pub(crate) fn set_roles(&self, principal: &str, roles: &[Role]) {
        let roles = roles.to_vec();
        self.state().roles.insert(principal.to_owned(), roles);
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.state().is_away = is_away;
    }

    pub(crate) fn close(&self) {
        self.state().is_closed = true;
    }

    pub(crate) fn set_limits(&self, limits: proto::DoorLimits) {
        self.state().limits = Some(limits);
    }

    /// Returns the number of credentials that were resolved.
    pub(crate) fn resolved(&self) -> usize {
        self.state().resolved
    }

    pub(crate) fn services(&self) -> Services {
        Services::new().add(IdentityServiceServer::new(self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

/// Returns the permissions for the installation, which administrators have.
fn system_permissions(roles: &[Role]) -> Vec<String> {
    let administers = roles.contains(&Role::Admin);
    let all = Role::Admin.permissions().iter().filter(|_| administers);
    all.map(|right| right.name().to_owned()).collect()
}

impl State {
    fn caller(&self, principal: &str) -> Option<proto::Caller> {
        let roles = self.roles.get(principal)?;
        let permissions = roles.iter().flat_map(|role| role.permissions());
        Some(proto::Caller {
            principal: principal.to_owned(),
            roles: roles.iter().map(|role| role.name().to_owned()).collect(),
            permissions: permissions.map(|right| right.name().to_owned()).collect(),
            system_permissions: system_permissions(roles),
            limits: self.limits,
            key_id: format!("{principal}1"),
            ..proto::Caller::default()
        })
    }

    fn resolve(&mut self, credential: &str) -> Option<proto::Caller> {
        if self.roles.is_empty() {
            let permissions = Role::Admin.permissions().iter();
            return Some(proto::Caller {
                principal: "local".to_owned(),
                permissions: permissions.map(|right| right.name().to_owned()).collect(),
                system_permissions: system_permissions(&[Role::Admin]),
                open: true,
                ..proto::Caller::default()
            });
        }
        let found = self.credentials.get(credential)?.clone();
        if found.is_for_once {
            self.credentials.remove(credential);
        }
        self.caller(&found.principal)
    }

    fn issue(&mut self, credential: &str, prefix: &str, is_for_once: bool) -> Option<String> {
        let principal = self.credentials.get(credential)?.principal.clone();
        self.issued += 1;
        let issued = format!("{prefix}{:016}", self.issued);
        let credential = Credential {
            principal,
            is_for_once,
        };
        self.credentials.insert(issued.clone(), credential);
        Some(issued)
    }
}

fn refused() -> Status {
    Status::unauthenticated("the double has no such credential")
}

#[tonic::async_trait]
impl IdentityService for IdentityDouble {
    async fn resolve_credential(
        &self,
        request: Request<proto::ResolveCredentialRequest>,
    ) -> Result<Response<proto::ResolveCredentialResponse>, Status> {
        let mut state = self.state();
        state.resolved += 1;
        if state.is_away {
            return Err(Status::unavailable("the double is away"));
        }
        let caller = state.resolve(&request.into_inner().credential);
        let caller = Some(caller.ok_or_else(refused)?);
        Ok(Response::new(proto::ResolveCredentialResponse { caller }))
    }

    async fn resolve_principal(
        &self,
        request: Request<proto::ResolvePrincipalRequest>,
    ) -> Result<Response<proto::ResolvePrincipalResponse>, Status> {
        let state = self.state();
        if state.is_away {
            return Err(Status::unavailable("the double is away"));
        }
        if state.is_closed {
            return Err(tenancy::closed(Tenant::DEFAULT).into_status());
        }
        let caller = state.caller(&request.into_inner().principal);
        let caller = Some(caller.ok_or_else(refused)?);
        Ok(Response::new(proto::ResolvePrincipalResponse { caller }))
    }

    async fn login(
        &self,
        request: Request<proto::LoginRequest>,
    ) -> Result<Response<proto::LoginResponse>, Status> {
        let mut state = self.state();
        let key = request.into_inner().key;
        let token = match state.roles.is_empty() {
            true => String::new(),
            false => state.issue(&key, "tvs_", false).ok_or_else(refused)?,
        };
        let caller = state.resolve(&token);
        Ok(Response::new(proto::LoginResponse { token, caller }))
    }

    async fn issue_ticket(
        &self,
        request: Request<proto::IssueTicketRequest>,
    ) -> Result<Response<proto::IssueTicketResponse>, Status> {
        let credential = request.into_inner().credential;
        let ticket = self.state().issue(&credential, "tvt_", true);
        Ok(Response::new(proto::IssueTicketResponse {
            ticket: ticket.ok_or_else(refused)?,
            expire_time: Some(prost_types::Timestamp {
                seconds: 1_800_000_000,
                nanos: 0,
            }),
        }))
    }

    async fn get_caller(
        &self,
        request: Request<proto::GetCallerRequest>,
    ) -> Result<Response<proto::GetCallerResponse>, Status> {
        let context = grpc_kit::CallContext::of(&request);
        let caller = self.state().caller(context.principal().as_str());
        Ok(Response::new(proto::GetCallerResponse { caller }))
    }

    async fn bootstrap(
        &self,
        _: Request<proto::BootstrapRequest>,
    ) -> Result<Response<proto::BootstrapResponse>, Status> {
        Ok(Response::new(proto::BootstrapResponse::default()))
    }

    async fn create_key(
        &self,
        _: Request<proto::CreateKeyRequest>,
    ) -> Result<Response<proto::CreateKeyResponse>, Status> {
        Ok(Response::new(proto::CreateKeyResponse::default()))
    }

    async fn rotate_key(
        &self,
        _: Request<proto::RotateKeyRequest>,
    ) -> Result<Response<proto::RotateKeyResponse>, Status> {
        Ok(Response::new(proto::RotateKeyResponse::default()))
    }

    async fn revoke_keys(
        &self,
        _: Request<proto::RevokeKeysRequest>,
    ) -> Result<Response<proto::RevokeKeysResponse>, Status> {
        Ok(Response::new(proto::RevokeKeysResponse::default()))
    }

    async fn put_principal(
        &self,
        _: Request<proto::PutPrincipalRequest>,
    ) -> Result<Response<proto::PutPrincipalResponse>, Status> {
        Ok(Response::new(proto::PutPrincipalResponse::default()))
    }

    async fn block_principal(
        &self,
        _: Request<proto::BlockPrincipalRequest>,
    ) -> Result<Response<proto::BlockPrincipalResponse>, Status> {
        Ok(Response::new(proto::BlockPrincipalResponse::default()))
    }

    async fn unblock_principal(
        &self,
        _: Request<proto::UnblockPrincipalRequest>,
    ) -> Result<Response<proto::UnblockPrincipalResponse>, Status> {
        Ok(Response::new(proto::UnblockPrincipalResponse::default()))
    }

    async fn list_principals(
        &self,
        _: Request<proto::ListPrincipalsRequest>,
    ) -> Result<Response<proto::ListPrincipalsResponse>, Status> {
        Ok(Response::new(proto::ListPrincipalsResponse::default()))
    }

    async fn import_approvers(
        &self,
        _: Request<proto::ImportApproversRequest>,
    ) -> Result<Response<proto::ImportApproversResponse>, Status> {
        Ok(Response::new(proto::ImportApproversResponse::default()))
    }
}
