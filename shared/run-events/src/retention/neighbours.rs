//! Questions to the services around a run before it is deleted.

use std::collections::{HashMap, HashSet};

use contracts::tavern::common::v1::{ErrorReason, Run};
use contracts::tavern::registry::v1::{
    ApprovalState, CallState, ListApprovalsRequest, ListCallsRequest,
    approval_service_client::ApprovalServiceClient, call_service_client::CallServiceClient,
};
use contracts::tavern::run::v1::{GetRunRequest, run_service_client::RunServiceClient};
use core_types::{RunId, RunOwner};
use grpc_kit::{Outbound, Transport};
use tonic::Status;

/// The largest page of a list.
const PAGE: i32 = 500;

/// The services that are asked before a run is deleted: the registry, and the owners of runs.
#[derive(Clone, Debug)]
pub struct Neighbours {
    calls: CallServiceClient<Outbound>,
    approvals: ApprovalServiceClient<Outbound>,
    owners: HashMap<RunOwner, RunServiceClient<Outbound>>,
}

impl Neighbours {
    /// Makes the neighbours with tool-registry behind a transport.
    pub fn new(registry: Transport) -> Self {
        let registry = registry.outermost();
        let runs = RunServiceClient::new(registry.clone());
        Self {
            calls: CallServiceClient::new(registry.clone()),
            approvals: ApprovalServiceClient::new(registry),
            owners: HashMap::from([(RunOwner::Registry, runs)]),
        }
    }

    /// Adds a service that owns runs, behind a transport.
    #[must_use]
    pub fn with(mut self, owner: RunOwner, service: Transport) -> Self {
        let runs = RunServiceClient::new(service.outermost());
        self.owners.insert(owner.service(), runs);
        self
    }

    /// Returns a run of any service; none if it is gone.
    ///
    /// # Errors
    /// A status when its owner does not answer or is not known.
    pub async fn run(&self, run: RunId) -> Result<Option<Run>, Status> {
        let Some(owner) = self.owners.get(&run.owner().service()) else {
            return Err(Status::internal(format!("the owner of {run} is not known")));
        };
        let run_id = run.to_string();
        match owner.clone().get_run(GetRunRequest { run_id }).await {
            Ok(found) => Ok(found.into_inner().run),
            Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::RunNotFound) => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Returns the runs with calls that are in flight or wait for people, and the runs that execute
    /// such calls.
    ///
    /// # Errors
    /// A status when the registry does not answer.
    pub async fn busy(&self) -> Result<HashSet<String>, Status> {
        let mut busy = HashSet::new();
        let mut request = ListCallsRequest {
            state: CallState::Running.into(),
            page_size: PAGE,
            ..ListCallsRequest::default()
        };
        loop {
            let page = self.calls.clone().list_calls(request.clone()).await?;
            let page = page.into_inner();
            let calls = page.calls.into_iter();
            busy.extend(calls.flat_map(|call| [call.run_id, call.child_run_id]));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        let mut request = ListApprovalsRequest {
            state: ApprovalState::Pending.into(),
            page_size: PAGE,
            ..ListApprovalsRequest::default()
        };
        loop {
            let mut approvals = self.approvals.clone();
            let page = approvals.list_approvals(request.clone()).await?;
            let page = page.into_inner();
            busy.extend(page.approvals.into_iter().map(|approval| approval.run_id));
            if page.next_page_token.is_empty() {
                return Ok(busy);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Whether it is not decided of a call of a run whether it took effect.
    ///
    /// # Errors
    /// A status when the registry does not answer.
    pub async fn has_doubt(&self, run: RunId) -> Result<bool, Status> {
        let request = ListCallsRequest {
            state: CallState::InDoubt.into(),
            run_id: run.to_string(),
            page_size: 1,
            ..ListCallsRequest::default()
        };
        let page = self.calls.clone().list_calls(request).await?;
        Ok(!page.into_inner().calls.is_empty())
    }
}
