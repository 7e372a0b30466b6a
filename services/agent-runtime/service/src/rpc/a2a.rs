//! A2AService: agents for clients that speak A2A 1.0 (rules G902 to G905).
//!
//! Another interface to existing methods: a task is a turn, its context the conversation, its
//! tenant the profile.
//!
//! - `send`: a message that starts a turn, answers a question or steers.
//! - `follow`: a turn from its log, up to its present and beyond.
//! - `progress`: the progress of a task, from the log of its turn.
//! - `task`, `updates`, `list`, `card`: the answers.
//! - `parts`, `value`: contents, read and written.
//! - `failure`: refusals in the words of A2A.

mod card;
mod failure;
mod follow;
mod list;
mod parts;
mod progress;
mod send;
mod task;
mod updates;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use agent_store::profiles::Profiles;
use contracts::{
    lf::a2a::v1::{
        AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
        GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
        ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse,
        ListTasksRequest, ListTasksResponse, SendMessageRequest, SendMessageResponse,
        StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
        a2a_service_server::A2aService, send_message_response::Payload,
    },
    tavern::common::v1::{ErrorReason, Run},
};
use core_types::{RunId, RunOwner};
use futures::stream::BoxStream;
use grpc_kit::{CallContext, Drain, Failure};
use run_events::Runs;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Code, Request, Response, Status};

use self::{
    failure::{no_push, no_such_task, not_cancelable, unsupported, version_not_supported},
    follow::Followed,
    task::View,
};
use super::AgentRpc;
use crate::peers::Peers;

/// The method that may wait for the end of a turn.
pub const LONG_METHOD: &str = "lf.a2a.v1.A2AService/SendMessage";

/// The most clients that wait for the end of a turn at once. It leaves most of a server's calls to
/// others.
const MAX_WAITING: usize = 256;

/// The supported version of the protocol.
const VERSION: &str = "1.0";

/// The call for which a task is read.
#[derive(Clone, Debug)]
struct TaskReader {
    context: CallContext,
    drain: Drain,
}

impl TaskReader {
    fn of<T>(request: &Request<T>) -> Self {
        Self {
            context: CallContext::of(request),
            drain: Drain::of(request),
        }
    }
}

/// The server side of A2AService.
#[derive(Clone, Debug)]
pub struct A2aRpc {
    agent: AgentRpc,
    runs: Runs,
    profiles: Profiles,
    peers: Peers,
    /// The address of this service for clients on other machines; may be empty.
    public_url: String,
    /// The permits of waiting clients.
    waiting: Arc<Semaphore>,
}

impl A2aRpc {
    /// Serves the turns of `agent`.
    pub fn new(agent: AgentRpc, peers: Peers, public_url: String) -> Self {
        Self {
            runs: agent.runs().clone(),
            profiles: agent.profiles().clone(),
            agent,
            peers,
            public_url,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        }
    }

    /// Reserves a permit for a waiting client.
    fn room(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.waiting.try_acquire().map_err(|_| {
            let message = format!(
                "limit reached: {MAX_WAITING} clients are already waiting for the end of a task; send the \
                 message with return_immediately, or by SendStreamingMessage"
            );
            Failure::new(Code::ResourceExhausted, ErrorReason::Overloaded, message)
        })
    }

    /// Returns the run of a task of `tenant`.
    async fn run(&self, context: &CallContext, tenant: &str, task_id: &str) -> Result<Run, Status> {
        let tenant = tenant_of(tenant)?;
        let id: Result<RunId, _> = task_id.parse();
        if !id.is_ok_and(|id| id.owner() == RunOwner::Agent) {
            return Err(no_such_task(task_id));
        }
        match self.runs.get(context, task_id).await {
            Ok(run) if run.subject == tenant => Ok(run),
            Ok(_) => Err(no_such_task(task_id)),
            Err(status) if status.code() == Code::NotFound => Err(no_such_task(task_id)),
            Err(status) => Err(status),
        }
    }
}

/// Returns the id of the requested agent.
fn tenant_of(tenant: &str) -> Result<&str, Failure> {
    match tenant {
        "" => Err(Failure::invalid_fields().violation("tenant", "is missing; name the agent")),
        tenant if tenant.len() > 256 => {
            Err(Failure::invalid_fields().violation("tenant", "exceeds 256 bytes"))
        }
        tenant => Ok(tenant),
    }
}

/// Rejects clients of another version of the protocol. A client that names none speaks 0.3.
fn of_this_version<T>(request: Request<T>) -> Result<T, Status> {
    let asked = request.metadata().get("a2a-version");
    match asked.map_or(Ok("0.3"), |version| version.to_str()) {
        Ok(VERSION) => Ok(request.into_inner()),
        asked => Err(version_not_supported(asked.unwrap_or_default())),
    }
}

#[tonic::async_trait]
impl A2aService for A2aRpc {
    async fn send_message(
        &self,
        request: Request<SendMessageRequest>,
    ) -> Result<Response<SendMessageResponse>, Status> {
        let caller = TaskReader::of(&request);
        let request = of_this_version(request)?;
        let configuration = request.configuration.clone().unwrap_or_default();
        let view = View::of_one(configuration.history_length)?;
        let waits = !configuration.return_immediately;
        let _room = waits.then(|| self.room()).transpose()?;
        let mut followed = self.deliver(request, &caller).await?;
        if waits {
            while !followed.progress.is_settled() && followed.step().await? {}
        }
        let task = followed.task(view);
        Ok(Response::new(SendMessageResponse {
            payload: Some(Payload::Task(task)),
        }))
    }

    type SendStreamingMessageStream = BoxStream<'static, Result<StreamResponse, Status>>;

    async fn send_streaming_message(
        &self,
        request: Request<SendMessageRequest>,
    ) -> Result<Response<Self::SendStreamingMessageStream>, Status> {
        let caller = TaskReader::of(&request);
        let request = of_this_version(request)?;
        let configuration = request.configuration.clone().unwrap_or_default();
        let view = View::of_one(configuration.history_length)?;
        let followed = self.deliver(request, &caller).await?;
        let is_done = followed.progress.is_settled();
        Ok(Response::new(updates::of(
            caller.context,
            followed,
            view,
            is_done,
        )))
    }

    async fn get_task(&self, request: Request<GetTaskRequest>) -> Result<Response<Task>, Status> {
        let caller = TaskReader::of(&request);
        let request = of_this_version(request)?;
        let view = View::of_one(request.history_length)?;
        let run = self.run(&caller.context, &request.tenant, &request.id);
        let run = run.await?;
        Ok(Response::new(self.task(run, view, caller).await?))
    }

    async fn list_tasks(
        &self,
        request: Request<ListTasksRequest>,
    ) -> Result<Response<ListTasksResponse>, Status> {
        let caller = TaskReader::of(&request);
        let request = of_this_version(request)?;
        Ok(Response::new(self.list(request, caller).await?))
    }

    async fn cancel_task(
        &self,
        request: Request<CancelTaskRequest>,
    ) -> Result<Response<Task>, Status> {
        let caller = TaskReader::of(&request);
        let request = of_this_version(request)?;
        let run = self.run(&caller.context, &request.tenant, &request.id);
        let run = run.await?;
        if run.outcome.is_some() {
            return Err(not_cancelable(&run.run_id));
        }
        let cancelled = self
            .runs
            .cancel(&caller.context, &run.run_id, "cancelled by A2A")
            .await?;
        let task = self
            .task(cancelled.run, View::of_one(None)?, caller)
            .await?;
        Ok(Response::new(task))
    }

    type SubscribeToTaskStream = BoxStream<'static, Result<StreamResponse, Status>>;

    async fn subscribe_to_task(
        &self,
        request: Request<SubscribeToTaskRequest>,
    ) -> Result<Response<Self::SubscribeToTaskStream>, Status> {
        let caller = TaskReader::of(&request);
        let request = of_this_version(request)?;
        let run = self.run(&caller.context, &request.tenant, &request.id);
        let run = run.await?;
        if run.outcome.is_some() {
            return Err(unsupported("the task has ended; read it with GetTask"));
        }
        let followed = Followed::open(&self.runs, run, caller.clone()).await?;
        let view = View::of_one(None)?;
        let is_done = followed.progress.outcome.is_some();
        Ok(Response::new(updates::of(
            caller.context,
            followed,
            view,
            is_done,
        )))
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<TaskPushNotificationConfig>,
    ) -> Result<Response<TaskPushNotificationConfig>, Status> {
        of_this_version(request).and_then(|_| Err(no_push()))
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<GetTaskPushNotificationConfigRequest>,
    ) -> Result<Response<TaskPushNotificationConfig>, Status> {
        of_this_version(request).and_then(|_| Err(no_push()))
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<ListTaskPushNotificationConfigsRequest>,
    ) -> Result<Response<ListTaskPushNotificationConfigsResponse>, Status> {
        of_this_version(request).and_then(|_| Err(no_push()))
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<DeleteTaskPushNotificationConfigRequest>,
    ) -> Result<Response<()>, Status> {
        of_this_version(request).and_then(|_| Err(no_push()))
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<GetExtendedAgentCardRequest>,
    ) -> Result<Response<AgentCard>, Status> {
        let context = CallContext::of(&request);
        let request = of_this_version(request)?;
        Ok(Response::new(self.card(&context, &request.tenant).await?))
    }
}
