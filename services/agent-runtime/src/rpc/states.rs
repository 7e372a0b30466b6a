//! StateService: the private states of agents.

use contracts::tavern::agent::v1::{
    self as proto, GetPrivateStateRequest, GetPrivateStateResponse,
    ListPrivateStateVersionsRequest, ListPrivateStateVersionsResponse, StateOperation,
    UpdatePrivateStateRequest, UpdatePrivateStateResponse, state_operation::Kind,
    state_service_server::StateService,
};
use core_types::RequestId;
use grpc_kit::Failure;
use json_schema::parse_json_strict;
use run_events::{request_hash, timestamp_to_proto};
use serde_json::Value;
use tonic::{Request, Response, Status};

use crate::{
    domain::state::{Operation, Path},
    states::{States, Update, refused},
    store::StateRow,
};

/// The server side of StateService.
#[derive(Clone, Debug)]
pub struct StateRpc {
    states: States,
}

impl StateRpc {
    /// Serves these states.
    pub fn new(states: States) -> Self {
        Self { states }
    }

    async fn get(
        &self,
        request: GetPrivateStateRequest,
    ) -> Result<GetPrivateStateResponse, Failure> {
        let path = match request.path.as_str() {
            "" => None,
            written => Some(path("path", written)?),
        };
        let owner = self
            .states
            .owner(&request.conversation_id, &request.profile_id)
            .await?;
        let version = (request.version > 0).then_some(request.version);
        let snapshot = self.states.get(&owner, version).await?;
        let value = match path {
            None => &snapshot.value,
            Some(path) => path.get(&snapshot.value).map_err(|error| refused(&error))?,
        };
        Ok(GetPrivateStateResponse {
            version: snapshot.row.version,
            value_json: value.to_string(),
            profile_id: owner.profile_id,
            create_time: Some(timestamp_to_proto(snapshot.row.created)),
        })
    }

    async fn update(
        &self,
        request: UpdatePrivateStateRequest,
    ) -> Result<UpdatePrivateStateResponse, Failure> {
        let hash = request_hash(&request);
        let mut failure = Failure::invalid_fields();
        if !request.request_id.is_empty()
            && let Err(error) = RequestId::new(request.request_id.as_str())
        {
            failure.add_violation("request_id", error.to_string());
        }
        let mut operations = Vec::new();
        for (index, written) in request.operations.iter().enumerate() {
            match operation(written) {
                Ok(operation) => operations.push(operation),
                Err(problems) => {
                    for (field, problem) in problems {
                        failure.add_violation(format!("operations[{index}].{field}"), problem);
                    }
                }
            }
        }
        if !failure.is_empty() {
            return Err(failure);
        }
        let owner = self
            .states
            .owner(&request.conversation_id, &request.profile_id)
            .await?;
        let update = Update {
            request: (!request.request_id.is_empty()).then_some((request.request_id, hash)),
            expected_version: request.expected_version,
            operations,
        };
        let (row, replayed) = self.states.update(&owner, update).await?;
        Ok(UpdatePrivateStateResponse {
            version: row.version,
            changed_paths: paths(&row),
            previous_json: row.previous.unwrap_or_default(),
            replayed,
        })
    }

    async fn list(
        &self,
        request: ListPrivateStateVersionsRequest,
    ) -> Result<ListPrivateStateVersionsResponse, Failure> {
        let owner = self
            .states
            .owner(&request.conversation_id, &request.profile_id)
            .await?;
        let list = format!("states\0{}\0{}", owner.conversation_id, owner.profile_id);
        let before = super::page_after(&list, &request.page_token)?;
        let before = before.and_then(|before| before.parse().ok());
        let size = core_types::page::page_size(request.page_size);
        let versions = self.states.versions(&owner, before, size + 1).await?;
        let (versions, next_page_token) = super::page(&list, versions, size, |row: &StateRow| {
            row.version.to_string()
        });
        let write = |row: StateRow| proto::StateVersion {
            version: row.version,
            create_time: Some(timestamp_to_proto(row.created)),
            changed_paths: paths(&row),
            request_id: row.request_id,
        };
        Ok(ListPrivateStateVersionsResponse {
            versions: versions.into_iter().map(write).collect(),
            next_page_token,
        })
    }
}

fn paths(row: &StateRow) -> Vec<String> {
    serde_json::from_str(&row.paths).unwrap_or_default()
}

fn path(field: &str, written: &str) -> Result<Path, Failure> {
    Path::parse(written).map_err(|problem| Failure::invalid_fields().violation(field, problem))
}

/// Reads a change; every field that is wrong is named.
fn operation(written: &StateOperation) -> Result<Operation, Vec<(&'static str, String)>> {
    let mut problems = Vec::new();
    let path = Path::parse(&written.path).map_err(|problem| problems.push(("path", problem)));
    let kind = written.kind();
    let value = match kind {
        Kind::Remove => Ok(Value::Null),
        _ => parse_json_strict(&written.value_json),
    };
    let value = value.map_err(|error| problems.push(("value_json", error.to_string())));
    if kind == Kind::Unspecified {
        problems.push(("kind", "is missing; name a kind".to_owned()));
    }
    let (Ok(path), Ok(value), true) = (path, value, problems.is_empty()) else {
        return Err(problems);
    };
    Ok(match (kind, value) {
        (Kind::Unspecified | Kind::Remove, _) => Operation::Remove(path),
        (Kind::Set, value) => Operation::Set(path, value),
        (Kind::Append, value) => Operation::Append(path, value),
        (Kind::Test, value) => Operation::Test(path, value),
        (Kind::Increment, Value::Number(by)) => Operation::Increment(path, by),
        (Kind::Increment, _) => return Err(vec![("value_json", "is no number".to_owned())]),
    })
}

#[tonic::async_trait]
impl StateService for StateRpc {
    async fn get_private_state(
        &self,
        request: Request<GetPrivateStateRequest>,
    ) -> Result<Response<GetPrivateStateResponse>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn update_private_state(
        &self,
        request: Request<UpdatePrivateStateRequest>,
    ) -> Result<Response<UpdatePrivateStateResponse>, Status> {
        Ok(Response::new(self.update(request.into_inner()).await?))
    }

    async fn list_private_state_versions(
        &self,
        request: Request<ListPrivateStateVersionsRequest>,
    ) -> Result<Response<ListPrivateStateVersionsResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }
}
