//! Tenants, their limits and their end.

use std::{collections::BTreeMap, time::Duration};

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        CloseTenantRequest, CloseTenantResponse, CreateTenantRequest, CreateTenantResponse,
        GetTenantRequest, GetTenantResponse, ListTenantsRequest, ListTenantsResponse,
        UpdateTenantRequest, UpdateTenantResponse, tenant_service_server::TenantService,
    },
    tenant::v1::{TenantLimit, TenantQuantity},
};
use core_types::Tenant as Name;
use grpc_kit::{CallContext, Failure};
use run_events::{store_failure, to_its_end};
use tonic::{Code, Request, Response, Status};
use tool_domain::tenant::{Bounds, MAX_TENANTS, TenantRecord, TenantRefusal};

use super::{Answer, page::page_after};
use crate::tenants::{TenantNotChanged, Tenants, tenant_to_proto};

/// The longest time for which the runs of a closed tenant may continue.
const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The quantities that the door counts, whose use no service reports.
const AT_DOOR: [TenantQuantity; 2] = [TenantQuantity::CallsPerSecond, TenantQuantity::Streams];

/// Tenants as a gRPC service.
#[derive(Clone, Debug)]
pub struct TenantRpc {
    tenants: Tenants,
}

impl TenantRpc {
    /// Takes the tenants.
    pub fn new(tenants: Tenants) -> Self {
        Self { tenants }
    }
}

#[tonic::async_trait]
impl TenantService for TenantRpc {
    async fn create_tenant(
        &self,
        request: Request<CreateTenantRequest>,
    ) -> Answer<CreateTenantResponse> {
        let by = CallContext::of(&request).principal().clone();
        let (tenants, request) = (self.tenants.clone(), request.into_inner());
        let (name, limits) = named_limits(&request.name, &request.limits)?;
        let created = to_its_end(async move {
            let values = (request.weight, &limits);
            let created = tenants.change(|tenants, now| tenants.create(name, values, now));
            created.await.map_err(of_change)
        });
        let created = created.await?;
        tracing::info!(tenant = %created.name, %by, "a tenant is created");
        Ok(Response::new(CreateTenantResponse {
            tenant: Some(tenant_to_proto(&created)),
        }))
    }

    async fn get_tenant(&self, request: Request<GetTenantRequest>) -> Answer<GetTenantResponse> {
        let (name, _) = named_limits(&request.get_ref().name, &[])?;
        let records = self.tenants.records();
        let tenant = records.get(name).map_err(|error| of_refusal(&error))?;
        let uses = self.tenants.uses();
        Ok(Response::new(GetTenantResponse {
            tenant: Some(tenant_to_proto(tenant)),
            uses: uses.of_tenant(name),
            left: uses.left(name),
        }))
    }

    async fn list_tenants(
        &self,
        request: Request<ListTenantsRequest>,
    ) -> Answer<ListTenantsResponse> {
        let request = request.get_ref();
        let records = self.tenants.records();
        let all: Vec<&TenantRecord> = records.all().collect();
        let (page, next_page_token) = page_after(
            "ListTenants",
            &request.page_token,
            request.page_size,
            &all,
            |tenant| tenant.name.as_str(),
        )?;
        Ok(Response::new(ListTenantsResponse {
            tenants: page.iter().map(|tenant| tenant_to_proto(tenant)).collect(),
            next_page_token,
        }))
    }

    async fn update_tenant(
        &self,
        request: Request<UpdateTenantRequest>,
    ) -> Answer<UpdateTenantResponse> {
        let by = CallContext::of(&request).principal().clone();
        let (tenants, request) = (self.tenants.clone(), request.into_inner());
        let (name, limits) = named_limits(&request.name, &request.limits)?;
        let updated = to_its_end(async move {
            let values = (request.weight, &limits);
            let updated = tenants.change(|tenants, _| tenants.update(name, values));
            updated.await.map_err(of_change)
        });
        let updated = updated.await?;
        tracing::info!(tenant = %updated.name, %by, "a tenant is changed");
        Ok(Response::new(UpdateTenantResponse {
            tenant: Some(tenant_to_proto(&updated)),
            over: self.tenants.over(&updated),
        }))
    }

    async fn close_tenant(
        &self,
        request: Request<CloseTenantRequest>,
    ) -> Answer<CloseTenantResponse> {
        let by = CallContext::of(&request).principal().clone();
        let (tenants, request) = (self.tenants.clone(), request.into_inner());
        let mut failure = Failure::invalid_fields();
        let name = name(&mut failure, &request.name);
        let grace = Duration::try_from(request.grace.unwrap_or_default()).ok();
        let grace = grace
            .filter(|grace| *grace <= MAX_GRACE)
            .unwrap_or_else(|| {
                failure.add_violation("grace", "must be from 0 to 30 days");
                Duration::ZERO
            });
        failure.refuse_if_any()?;
        let closed = to_its_end(async move {
            let closed = tenants.change(|tenants, now| tenants.close(name, now.plus(grace), now));
            closed.await.map_err(of_change)
        });
        let closed = closed.await?;
        tracing::info!(tenant = %closed.name, %by, "a tenant is closed");
        Ok(Response::new(CloseTenantResponse {
            tenant: Some(tenant_to_proto(&closed)),
        }))
    }
}

/// Reads the name of a tenant, and limits.
fn named_limits(
    written: &str,
    written_limits: &[TenantLimit],
) -> Result<(Name, BTreeMap<i32, Bounds>), Status> {
    let mut failure = Failure::invalid_fields();
    let name = name(&mut failure, written);
    let limits = limits(&mut failure, written_limits);
    failure.refuse_if_any()?;
    Ok((name, limits))
}

/// Reads the name of a tenant; a wrong one is a violation, and stands for any.
fn name(failure: &mut Failure, written: &str) -> Name {
    Name::new(written).unwrap_or_else(|error| {
        failure.add_violation("name", error.to_string());
        Name::DEFAULT
    })
}

/// Reads limits, each quantity once.
fn limits(failure: &mut Failure, written: &[TenantLimit]) -> BTreeMap<i32, Bounds> {
    let mut limits = BTreeMap::new();
    for (place, limit) in written.iter().enumerate() {
        let TenantLimit { hard, soft, .. } = *limit;
        if soft > hard {
            let field = format!("limits[{place}].soft");
            failure.add_violation(field, "is above the hard bound");
        } else if soft > 0 && AT_DOOR.contains(&limit.quantity()) {
            let field = format!("limits[{place}].soft");
            let wrong = "must be 0, as the use of this quantity is known at the door only";
            failure.add_violation(field, wrong);
        }
        if limits
            .insert(limit.quantity, Bounds { hard, soft })
            .is_some()
        {
            let field = format!("limits[{place}].quantity");
            failure.add_violation(field, "has a limit already; give each quantity once");
        }
    }
    limits
}

fn of_change(error: TenantNotChanged) -> Status {
    match error {
        TenantNotChanged::Refused(refusal) => of_refusal(&refusal),
        TenantNotChanged::Store(error) => store_failure(&error).into_status(),
    }
}

/// Returns the status of a change of tenants that is refused.
pub(super) fn of_refusal(refusal: &TenantRefusal) -> Status {
    let of_tenant = |code, reason, tenant: &str| {
        let failure = Failure::new(code, reason, refusal.to_string());
        failure.metadata("tenant", tenant).into_status()
    };
    match refusal {
        TenantRefusal::Exists(tenant) => of_tenant(
            Code::AlreadyExists,
            ErrorReason::TenantExists,
            tenant.as_str(),
        ),
        TenantRefusal::Missing(tenant) => {
            of_tenant(Code::NotFound, ErrorReason::TenantNotFound, tenant)
        }
        TenantRefusal::Closed(tenant) => tenancy::closed(*tenant).into_status(),
        TenantRefusal::Reserved => Failure::invalid_fields()
            .violation("name", refusal.to_string())
            .into_status(),
        TenantRefusal::TooMany => {
            Failure::limit_exceeded("tenants", MAX_TENANTS, MAX_TENANTS + 1).into_status()
        }
    }
}
