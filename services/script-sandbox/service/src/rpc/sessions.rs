//! The contract: `tavern.sandbox.v1.SessionService`.

use std::{collections::BTreeMap, mem, time::Duration};

use contracts::tavern::sandbox::v1::{
    CreateSessionRequest, CreateSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    GetSessionRequest, GetSessionResponse, InterruptCellRequest, InterruptCellResponse,
    ListSessionsRequest, ListSessionsResponse, RunCellRequest, RunCellResponse,
    session_service_server::SessionService,
};
use core_types::page::{PageToken, page_size};
use grpc_kit::CallContext;
use prost::Message as _;
use sandbox_engine::domain::{
    limits::{Limits, time_within},
    owner::Owner,
    script::{Program, Script, ScriptSpec, identifier_problems},
    violation::Violation,
    workspace::WorkspaceSpec,
};
use sha2::{Digest as _, Sha256};
use tonic::{Request, Response, Status};

use super::{Rpc, invalid, inward, refused, wrong};
use crate::{
    Sandbox,
    domain::session::{IDLE_TIME, SessionInfo, TOTAL_TIME},
    rpc::streaming::ResponseStream,
    runner::session::{
        CellFiles, CellRequest, SessionName, SessionOrigin, SessionRequest, TakenChanges,
    },
};

mod outward;

/// The default of the time that a cell may take to stop after an interrupt.
const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// The longest such time that a request can choose.
const MAXIMUM_GRACE: Duration = Duration::from_secs(30);

#[tonic::async_trait]
impl SessionService for Rpc {
    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let context = CallContext::of(&request);
        let mut request = request.into_inner();
        let digest = digest(&mut request);
        let request = read_request(&self.sandbox, &context, request).map_err(invalid)?;
        let made = self.sandbox.create_session(&context, digest, request);
        let (view, origin) = made.await.map_err(refused)?;
        let predecessor = match &origin {
            SessionOrigin::New { predecessor } => predecessor.as_ref(),
            SessionOrigin::Replayed | SessionOrigin::Found => None,
        };
        Ok(Response::new(CreateSessionResponse {
            session: Some(outward::session(&view)),
            replayed: matches!(origin, SessionOrigin::Replayed),
            found: matches!(origin, SessionOrigin::Found),
            predecessor_end: predecessor.map(outward::end),
        }))
    }

    type RunCellStream = ResponseStream<RunCellResponse>;

    async fn run_cell(
        &self,
        request: Request<RunCellRequest>,
    ) -> Result<Response<Self::RunCellStream>, Status> {
        let deadline = super::deadline_of(&request, self.sandbox.longest_request());
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let name = named(&context, &request.caller_id, &request.session_id);
        let session = self.sandbox.sessions().get(name);
        let session = session.map_err(refused)?;
        let mut limits = session.limits;
        let (_, maximum) = self.sandbox.session_limits();
        let mut problems = Vec::new();
        if request.source_text.contains('\0') {
            let problem = "must not contain a NUL character";
            problems.push(Violation::new("source_text", problem));
        }
        limits.wall_time = time_within(
            "wall_time",
            request.wall_time.map(inward::span),
            limits.wall_time,
            maximum.wall_time,
            &mut problems,
        );
        let output = request.output_bytes.map(usize::try_from);
        limits.output = output.unwrap_or(Ok(limits.output)).unwrap_or(usize::MAX);
        if limits.output > maximum.output {
            let problem = format!("must be from 1 to {} bytes", maximum.output);
            problems.push(Violation::new("output_bytes", problem));
        }
        let blobs = self.sandbox.blobs();
        let workspace = request.workspace.and_then(|mut workspace| {
            let taken = TakenChanges {
                cell: workspace.taken_cell,
                paths_not_taken: mem::take(&mut workspace.not_taken),
            };
            if !workspace.directories.is_empty() {
                let problem = "must be empty for a cell";
                problems.push(Violation::new("workspace.directories", problem));
            }
            let spec = inward::workspace_spec(workspace, blobs.settings(), &mut problems)?;
            Some((spec, taken))
        });
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        self.sandbox.admit_cell(&session).map_err(refused)?;
        let workspace = match workspace {
            Some(wanted) => Some(Box::new(self.hold_files(name, wanted, &session).await?)),
            None => None,
        };
        let cell = CellRequest {
            source: request.source_text.clone(),
            limits,
            deadline,
            workspace,
        };
        let sessions = self.sandbox.sessions();
        let stream = sessions.run(name, cell).await.map_err(refused)?;
        Ok(Response::new(outward::answers(stream)))
    }

    async fn interrupt_cell(
        &self,
        request: Request<InterruptCellRequest>,
    ) -> Result<Response<InterruptCellResponse>, Status> {
        let context = CallContext::of(&request);
        let InterruptCellRequest {
            session_id,
            grace,
            caller_id,
        } = request.into_inner();
        let name = named(&context, &caller_id, &session_id);
        let mut problems = Vec::new();
        let grace = grace.map(inward::span);
        let grace = time_within("grace", grace, DEFAULT_GRACE, MAXIMUM_GRACE, &mut problems);
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        let sessions = self.sandbox.sessions();
        let interrupted = sessions.interrupt(name, grace).await;
        let interrupted = interrupted.map_err(refused)?;
        let after = sessions.get(name).map_err(refused)?;
        Ok(Response::new(InterruptCellResponse {
            interrupted,
            session: Some(outward::session(&after)),
        }))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let name = named(&context, &request.caller_id, &request.session_id);
        let session = self.sandbox.sessions().get(name).map_err(refused)?;
        Ok(Response::new(GetSessionResponse {
            session: Some(outward::session(&session)),
        }))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let context = CallContext::of(&request);
        let ListSessionsRequest {
            page_size: asked,
            page_token,
            caller_id,
        } = request.into_inner();
        // A token of another caller's list is invalid here.
        let by = context.principal().recorded();
        let list = format!("SessionService/ListSessions {by}{caller_id:?}");
        let token = PageToken::decode(&list, &page_token);
        let token = token.map_err(|error| wrong("page_token", error.to_string()))?;
        let after = token.as_ref().map(PageToken::last_key);
        let sessions = self.sandbox.sessions();
        let listed = |owner: &Owner| {
            let named = caller_id.as_ref();
            context.sees(owner.principal()) && named.is_none_or(|id| id == owner.caller_id())
        };
        let (found, more) = sessions.list(listed, after, page_size(asked));
        let next_page_token = match found.last().filter(|_| more) {
            Some(last) => PageToken::after(last.id.clone()).encode(&list),
            None => String::new(),
        };
        Ok(Response::new(ListSessionsResponse {
            sessions: found.iter().map(outward::session).collect(),
            next_page_token,
        }))
    }

    async fn delete_session(
        &self,
        request: Request<DeleteSessionRequest>,
    ) -> Result<Response<DeleteSessionResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let name = named(&context, &request.caller_id, &request.session_id);
        let deleted = self.sandbox.sessions().delete(name).await;
        Ok(Response::new(DeleteSessionResponse {
            session: Some(outward::session(&deleted.map_err(refused)?)),
        }))
    }
}

impl Rpc {
    /// Holds the files that a session lacks of a workspace.
    async fn hold_files(
        &self,
        name: SessionName<'_>,
        wanted: (WorkspaceSpec, TakenChanges),
        session: &SessionInfo,
    ) -> Result<CellFiles, Status> {
        let (spec, _) = &wanted;
        let total: u64 = spec.files.iter().map(|file| file.size).sum();
        if total > session.limits.disk as u64 {
            let problem = format!(
                "must fit into the session's `limits.disk_bytes`, {}, and have {total} bytes together",
                session.limits.disk
            );
            return Err(wrong("workspace.files", problem));
        }
        let files = self.sandbox.sessions().files(name).map_err(refused)?;
        let (blobs, owner) = (self.sandbox.blobs().clone(), session.owner.clone());
        let held = move || CellFiles::held(wanted, &files, &blobs, &owner);
        let held = tokio::task::spawn_blocking(held).await;
        held.map_err(|error| grpc_kit::internal(&error))?
            .map_err(refused)
    }
}

fn named<'a>(context: &'a CallContext, caller_id: &'a str, id: &'a str) -> SessionName<'a> {
    SessionName {
        context,
        caller_id,
        id,
    }
}

/// Returns the digest that distinguishes two requests of the same id: of everything in them, independent of
/// the order of variables. The request is unchanged afterwards.
fn digest(request: &mut CreateSessionRequest) -> [u8; 32] {
    if request.request_id.is_empty() {
        return [0; 32];
    }
    let mut hash = Sha256::new();
    let variables = mem::take(&mut request.environment);
    let sorted: BTreeMap<&String, &String> = variables.iter().collect();
    for text in sorted.into_iter().flat_map(|(name, value)| [name, value]) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.update(request.encode_to_vec());
    request.environment = variables;
    hash.finalize().into()
}

/// Reads a request with everything that is wrong with it.
fn read_request(
    sandbox: &Sandbox,
    context: &CallContext,
    request: CreateSessionRequest,
) -> Result<SessionRequest, Vec<Violation>> {
    let mut problems = Vec::new();
    problems.extend(identifier_problems("session_key", &request.session_key));
    problems.extend(identifier_problems("request_id", &request.request_id));
    let idle = request.idle_time.map(inward::span);
    let idle_time = IDLE_TIME.read("idle_time", idle, &mut problems);
    let total = request.total_time.map(inward::span);
    let total_time = TOTAL_TIME.read("total_time", total, &mut problems);
    let (isolation, enforcement) = (
        request.minimum_isolation(),
        request.minimum_memory_enforcement(),
    );
    let limits = inward::limits(request.limits, sandbox.session_limits(), &mut problems);
    // The wall time of a request limits a cell; the driver lives as long as the session.
    let of_driver = Limits {
        wall_time: total_time,
        ..limits
    };
    let spec = ScriptSpec {
        environment: inward::variables(request.environment),
        files: inward::files(request.files, &mut problems),
        owner: Owner::new(context.principal(), request.caller_id),
        minimum_isolation: inward::level(isolation),
        minimum_enforcement: inward::enforcement(enforcement),
        packages: request.packages,
        ..ScriptSpec::of(request.runtime, Program::Driver, of_driver)
    };
    Ok(SessionRequest {
        script: Script::new(spec, problems)?,
        request_id: request.request_id,
        limits,
        idle_time,
        evictable: request.evictable,
        key: request.session_key,
        total_time,
    })
}
