//! The audit: its records, whether they are whole, and denials to count.

use contracts::tavern::{
    access::v1::Permission,
    registry::v1::{
        CountDenialsRequest, CountDenialsResponse, ListAuditRecordsRequest,
        ListAuditRecordsResponse, VerifyAuditRequest, VerifyAuditResponse,
        audit_service_server::AuditService,
    },
};
use core_types::{PageToken, Principal, Tenant, Timestamp, page::page_size};
use grpc_kit::{CallContext, Failure};
use tonic::{Request, Response, Status};

use super::{Answer, audited};
use crate::{
    audit::{Audit, AuditFilter, Place},
    identities::Identities,
};

/// The name of the list in page tokens.
const LIST: &str = "ListAuditRecords";

/// The audit as a gRPC service.
#[derive(Clone, Debug)]
pub(crate) struct AuditRpc {
    audit: Audit,
    identities: Identities,
}

impl AuditRpc {
    pub(crate) fn new(audit: Audit, identities: Identities) -> Self {
        Self { audit, identities }
    }

    /// Returns the tenant about which a caller sees records; `None` for all.
    fn tenant(&self, context: &CallContext) -> Option<Tenant> {
        let caller = self
            .identities
            .resolve_principal(context.principal(), context.key_id());
        let sees_all =
            caller.is_ok_and(|caller| caller.rights.permits_in_system(Permission::Administer));
        (!sees_all).then(|| context.tenant())
    }
}

#[tonic::async_trait]
impl AuditService for AuditRpc {
    async fn list_audit_records(
        &self,
        request: Request<ListAuditRecordsRequest>,
    ) -> Answer<ListAuditRecordsResponse> {
        let context = CallContext::of(&request);
        let tenant = self.tenant(&context);
        let list = grpc_kit::list_of(&context, LIST);
        let (filter, after) = read(request.get_ref(), &context, tenant, &list)?;
        let limit = page_size(request.get_ref().page_size);
        let listed = self.audit.list(&filter, after, limit).await;
        let (records, next) =
            listed.map_err(|error| audited::refusal(&error, "no records are listed"))?;
        let next = next.map(|Place { day, sequence }| {
            PageToken::after(format!("{day}:{sequence}")).encode(&list)
        });
        Ok(Response::new(ListAuditRecordsResponse {
            records,
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn verify_audit(
        &self,
        request: Request<VerifyAuditRequest>,
    ) -> Answer<VerifyAuditResponse> {
        let report = self.audit.verify(&request.get_ref().anchors).await;
        if let Some(fault) = &report.fault {
            tracing::error!(
                day = fault.day,
                sequence = fault.sequence,
                fault = fault.text,
                "the audit is not as it was written"
            );
        }
        Ok(Response::new(report))
    }

    async fn count_denials(
        &self,
        request: Request<CountDenialsRequest>,
    ) -> Answer<CountDenialsResponse> {
        let counted = self.audit.deny(request.into_inner().denials).await;
        counted.map_err(|error| audited::refusal(&error, "no denials are counted"))?;
        Ok(Response::new(CountDenialsResponse {}))
    }
}

/// Reads a filter, and the place after which a page begins, every violation at once.
fn read(
    request: &ListAuditRecordsRequest,
    context: &CallContext,
    tenant: Option<Tenant>,
    list: &str,
) -> Result<(AuditFilter, Option<Place>), Status> {
    let mut failure = Failure::invalid_fields();
    let mut time = |field: &str, time: Option<prost_types::Timestamp>| {
        let time = time?;
        let read = Timestamp::from_seconds_and_nanos(time.seconds, time.nanos);
        if read.is_none() {
            failure.add_violation(field, "is no time between 1970 and 2262");
        }
        read
    };
    let (since, until) = (time("since", request.since), time("until", request.until));
    let principal = match request.principal.as_str() {
        "" => None,
        whole if whole.contains('/') => Some(Principal::new(whole)),
        name => Some(Principal::of(context.tenant(), name)),
    };
    let principal = principal.transpose().unwrap_or_else(|error| {
        failure.add_violation("principal", error.to_string());
        None
    });
    failure.refuse_if_any()?;
    let after = grpc_kit::page_token(list, &request.page_token)?;
    let after = after.and_then(|token| {
        let (day, sequence) = token.last_key().split_once(':')?;
        Some(Place {
            day: day.to_owned(),
            sequence: sequence.parse().ok()?,
        })
    });
    let filter = AuditFilter {
        since,
        until,
        principal,
        kind: request.kind(),
        method: request.method.clone(),
        tenant,
    };
    Ok((filter, after))
}
