//! The contract: `tavern.sandbox.v1.SessionService`.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{
    CreateSessionRequest, CreateSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    GetSessionRequest, GetSessionResponse, InterruptCellRequest, InterruptCellResponse,
    ListSessionsRequest, ListSessionsResponse, RunCellRequest, RunCellResponse,
    session_service_server::SessionService,
};
use core_types::page::{PageToken, page_size};
use sandbox_engine::domain::{script::request_id_problems, violation::Violation};
use tonic::{Request, Response, Status};

use super::{Rpc, invalid, inward, refused};
use crate::{
    Sandbox,
    domain::session::{IDLE_TIME, SessionInfo, TOTAL_TIME, cell_problems, time},
    rpc::streaming::ResponseStream,
    session::{CellRequest, SessionRequest},
};

mod outward;

/// How long a cell may take to obey if its request does not say.
const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// The longest that a request can allow it.
const MAXIMUM_GRACE: Duration = Duration::from_secs(30);

#[tonic::async_trait]
impl SessionService for Rpc {
    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let mut request = request.into_inner();
        let digest = inward::digest(&mut request);
        let request_id = request.request_id.clone();
        let request = read_request(&self.sandbox, request).map_err(invalid)?;
        let made = self
            .sandbox
            .create_session(&request_id, digest, request)
            .await;
        let (view, replayed) = made.map_err(refused)?;
        Ok(Response::new(CreateSessionResponse {
            session: Some(outward::session(&view)),
            replayed,
        }))
    }

    type RunCellStream = ResponseStream<RunCellResponse>;

    async fn run_cell(
        &self,
        request: Request<RunCellRequest>,
    ) -> Result<Response<Self::RunCellStream>, Status> {
        let deadline = super::deadline_of(&request, self.sandbox.longest_request());
        let request = request.into_inner();
        let mut problems = cell_problems(&request.source_text);
        let session = self.find(&request.session_id, &mut problems)?;
        let (_, maximum) = self.sandbox.session_limits();
        let limits = session.as_ref().map_or(maximum, |session| session.limits);
        let wall_time = time(
            "wall_time",
            request.wall_time.map(inward::span),
            limits.wall_time,
            maximum.wall_time,
            &mut problems,
        );
        let output = match request.output_bytes.map(usize::try_from) {
            None => limits.output,
            Some(Ok(output)) if (1..=maximum.output).contains(&output) => output,
            Some(_) => {
                problems.push(Violation {
                    field: "output_bytes".to_owned(),
                    problem: format!("must be from 1 to {} bytes", maximum.output),
                });
                limits.output
            }
        };
        let Some(session) = session.filter(|_| problems.is_empty()) else {
            return Err(invalid(problems));
        };
        let request = CellRequest {
            source: request.source_text,
            wall_time,
            output,
            deadline,
        };
        let stream = self.sandbox.sessions().run(&session.id, request).await;
        Ok(Response::new(outward::answers(stream.map_err(refused)?)))
    }

    async fn interrupt_cell(
        &self,
        request: Request<InterruptCellRequest>,
    ) -> Result<Response<InterruptCellResponse>, Status> {
        let InterruptCellRequest { session_id, grace } = request.into_inner();
        let mut problems = Vec::new();
        let session = self.find(&session_id, &mut problems)?;
        let grace = time(
            "grace",
            grace.map(inward::span),
            DEFAULT_GRACE,
            MAXIMUM_GRACE,
            &mut problems,
        );
        let Some(session) = session.filter(|_| problems.is_empty()) else {
            return Err(invalid(problems));
        };
        let sessions = self.sandbox.sessions();
        let interrupted = sessions
            .interrupt(&session.id, grace)
            .await
            .map_err(refused)?;
        let after = sessions.get(&session.id).map_err(refused)?;
        Ok(Response::new(InterruptCellResponse {
            interrupted,
            session: Some(outward::session(&after)),
        }))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        let session = self.the_session(&request.into_inner().session_id)?;
        Ok(Response::new(GetSessionResponse {
            session: Some(outward::session(&session)),
        }))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let ListSessionsRequest {
            page_size: asked,
            page_token,
            caller_id,
        } = request.into_inner();
        // A token of another caller's list leads nowhere in this one.
        let list = format!("SessionService/ListSessions {caller_id:?}");
        let token = PageToken::decode(&list, &page_token).map_err(|error| {
            invalid(vec![Violation {
                field: "page_token".to_owned(),
                problem: error.to_string(),
            }])
        })?;
        let after = token.as_ref().map(PageToken::last_key);
        let sessions = self.sandbox.sessions();
        let (found, more) = sessions.list(caller_id.as_deref(), after, page_size(asked));
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
        let session = self.the_session(&request.into_inner().session_id)?;
        let deleted = self.sandbox.sessions().delete(&session.id).await;
        Ok(Response::new(DeleteSessionResponse {
            session: Some(outward::session(&deleted.map_err(refused)?)),
        }))
    }
}

impl Rpc {
    /// The session of a request that has more to be looked at; `None` if the id is one of its problems.
    fn find(
        &self,
        session_id: &str,
        problems: &mut Vec<Violation>,
    ) -> Result<Option<SessionInfo>, Status> {
        if session_id.is_empty() {
            problems.push(Violation {
                field: "session_id".to_owned(),
                problem: "must not be empty; CreateSession gives one".to_owned(),
            });
            return Ok(None);
        }
        let found = self.sandbox.sessions().get(session_id);
        // What is known to be wrong with the request is reported first: it stays wrong whatever the session.
        match found {
            Err(_) if !problems.is_empty() => Ok(None),
            found => found.map(Some).map_err(refused),
        }
    }

    /// The session of a request that has nothing else.
    fn the_session(&self, session_id: &str) -> Result<SessionInfo, Status> {
        let mut problems = Vec::new();
        let found = self.find(session_id, &mut problems)?;
        found.ok_or_else(|| invalid(problems))
    }
}

/// Reads a request with everything that is wrong with it.
fn read_request(
    sandbox: &Sandbox,
    request: CreateSessionRequest,
) -> Result<SessionRequest, Vec<Violation>> {
    let mut problems = request_id_problems(&request.request_id);
    let mut refuse = |field: &str, problem: &str| {
        problems.push(Violation {
            field: field.to_owned(),
            problem: problem.to_owned(),
        });
    };
    inward::runtime(&request.runtime, &mut refuse);
    let (minimum_isolation, minimum_enforcement) = inward::minima(
        request.minimum_isolation,
        request.minimum_memory_enforcement,
        &mut refuse,
    );
    let files = inward::files(request.files, &mut refuse);
    let (default, maximum) = sandbox.session_limits();
    let asked = inward::asked(&request.limits.unwrap_or_default());
    let limits = asked.resolve(&default, &maximum).unwrap_or_else(|more| {
        problems.extend(more);
        default
    });
    let idle_time = time(
        "idle_time",
        request.idle_time.map(inward::span),
        IDLE_TIME.default,
        IDLE_TIME.maximum,
        &mut problems,
    );
    let total_time = time(
        "total_time",
        request.total_time.map(inward::span),
        TOTAL_TIME.default,
        TOTAL_TIME.maximum,
        &mut problems,
    );
    let mut script = Sandbox::driver_script(request.runtime, limits);
    script.environment = request.environment.into_iter().collect();
    script.environment.sort();
    script.files = files;
    script.caller = request.caller_id;
    script.minimum_isolation = minimum_isolation;
    script.minimum_enforcement = minimum_enforcement;
    problems.extend(script.problems());
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(SessionRequest {
        script,
        idle_time,
        evictable: request.evictable,
        total_time,
    })
}
