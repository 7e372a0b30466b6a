//! AgentService: turns.

use std::sync::Arc;

use agent_store::profiles::Profiles;
use contracts::tavern::agent::v1::{
    EditBudgetsRequest, EditBudgetsResponse, ExportTurnRequest, ExportTurnResponse,
    ForkTurnRequest, ForkTurnResponse, GetToolScopeRequest, GetToolScopeResponse, StartTurnRequest,
    StartTurnResponse, SteerTurnRequest, SteerTurnResponse, agent_service_server::AgentService,
};
use core_types::IdSource;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use grpc_kit::{CallContext, Failure};
use run_events::{Runs, request_hash};
use tonic::{Request, Response, Status};

use super::{fork, start, steering, tool_scope};
use crate::runner::turns::{NewTurn, Turns};

/// The scope of the request ids of turns.
const SCOPE: &str = "tavern.agent.v1.AgentService/StartTurn";

/// The longest piece of an exported line, in bytes.
const MAX_PIECE_BYTES: usize = 1 << 20;

/// The server side of AgentService.
#[derive(Clone, Debug)]
pub struct AgentRpc {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runs: Runs,
    turns: Turns,
    ids: Arc<dyn IdSource>,
}

impl AgentRpc {
    /// Puts the server side together.
    pub fn new(runs: Runs, turns: Turns, ids: Arc<dyn IdSource>) -> Self {
        Self {
            inner: Arc::new(Inner { runs, turns, ids }),
        }
    }

    /// Returns all runs.
    pub(super) fn runs(&self) -> &Runs {
        &self.inner.runs
    }

    /// Returns the agents.
    pub(super) fn profiles(&self) -> &Profiles {
        self.inner.turns.profiles()
    }

    /// Starts a turn, as StartTurn does.
    pub(super) async fn start(
        &self,
        context: &CallContext,
        request: StartTurnRequest,
    ) -> Result<StartTurnResponse, Failure> {
        self.inner.start(context, request).await
    }

    /// Sends a message to a turn, as SteerTurn does.
    pub(super) async fn steer(
        &self,
        context: &CallContext,
        request: SteerTurnRequest,
    ) -> Result<SteerTurnResponse, Status> {
        let (runner, runs) = (self.inner.turns.runner(), &self.inner.runs);
        steering::steer(runner, runs, context, request).await
    }
}

impl Inner {
    async fn start(
        &self,
        context: &CallContext,
        mut request: StartTurnRequest,
    ) -> Result<StartTurnResponse, Failure> {
        // The remaining budgets of a caller may differ when it repeats the request.
        let grant = request.grant.take().unwrap_or_default();
        let body_hash = request_hash(context, &request);
        let asked = start::read(&request, self.ids.as_ref())?;
        let turn = NewTurn {
            profile_id: request.profile_id,
            input: asked.input,
            conversation_id: asked.conversation_id,
            ephemeral: request.ephemeral,
            budgets: asked.budgets,
            compact: false,
            granted: start::granted(&grant),
            sampling: asked.sampling,
            dialect: asked.dialect,
            request_id: request.request_id,
            scope: SCOPE,
            body_hash,
            options: request.options,
            refuse_if_busy: request.refuse_if_busy,
            scene: None,
        };
        let started = self.turns.start(context, turn).await?;
        Ok(StartTurnResponse {
            run: Some(started.run),
            replayed: started.replayed,
            profile_revision: started.profile_revision,
        })
    }
}

#[tonic::async_trait]
impl AgentService for AgentRpc {
    async fn start_turn(
        &self,
        request: Request<StartTurnRequest>,
    ) -> Result<Response<StartTurnResponse>, Status> {
        let context = CallContext::of(&request);
        let started = self.start(&context, request.into_inner()).await?;
        Ok(Response::new(started))
    }

    async fn steer_turn(
        &self,
        request: Request<SteerTurnRequest>,
    ) -> Result<Response<SteerTurnResponse>, Status> {
        let context = CallContext::of(&request);
        let steered = self.steer(&context, request.into_inner()).await?;
        Ok(Response::new(steered))
    }

    type ExportTurnStream = BoxStream<'static, Result<ExportTurnResponse, Status>>;

    async fn export_turn(
        &self,
        request: Request<ExportTurnRequest>,
    ) -> Result<Response<Self::ExportTurnStream>, Status> {
        let runner = self.inner.turns.runner();
        let context = CallContext::of(&request);
        let lines = runner.export(&context, &request.get_ref().run_id).await?;
        let pieces = lines.into_iter().flat_map(pieces);
        Ok(Response::new(stream::iter(pieces.map(Ok)).boxed()))
    }

    async fn edit_budgets(
        &self,
        request: Request<EditBudgetsRequest>,
    ) -> Result<Response<EditBudgetsResponse>, Status> {
        let (runner, runs) = (self.inner.turns.runner(), &self.inner.runs);
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let edited = steering::edit_budgets(runner, runs, &context, request).await?;
        Ok(Response::new(edited))
    }

    async fn fork_turn(
        &self,
        request: Request<ForkTurnRequest>,
    ) -> Result<Response<ForkTurnResponse>, Status> {
        let context = CallContext::of(&request);
        let new = fork::read(&context, request.into_inner(), self.inner.ids.as_ref())?;
        let (run, replayed) = self.inner.turns.fork(context, new).await?;
        let run = Some(run);
        Ok(Response::new(ForkTurnResponse { run, replayed }))
    }

    async fn get_tool_scope(
        &self,
        request: Request<GetToolScopeRequest>,
    ) -> Result<Response<GetToolScopeResponse>, Status> {
        let Inner { runs, turns, .. } = &*self.inner;
        let (context, request) = (CallContext::of(&request), request.into_inner());
        let scope = tool_scope::get(runs, &context, turns.profiles(), request).await?;
        Ok(Response::new(scope))
    }
}

/// Cuts a line into pieces that fit into messages.
fn pieces(line: String) -> Vec<ExportTurnResponse> {
    let (mut pieces, mut rest) = (Vec::new(), line.as_str());
    loop {
        let (text, after) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
        rest = after;
        pieces.push(ExportTurnResponse {
            text: text.to_owned(),
            ends_line: rest.is_empty(),
        });
        if rest.is_empty() {
            return pieces;
        }
    }
}
