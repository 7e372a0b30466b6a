//! Starting a run from a text, and following it.

use bytes::Bytes;
use contracts::tavern::agent::v1::StartTurnRequest;
use contracts::tavern::agent::v1::start_turn_request;
use contracts::tavern::common::v1::{ErrorReason, RunOptions};
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, InvokeTextResponse, StartTextRequest,
    StartTextResponse, agent_target, invoke_text_request, start_text_request,
};
use contracts::tavern::registry::v1::StartInvocationRequest;
use futures::StreamExt;
use futures::stream::BoxStream;
use grpc_kit::{Drain, Failure};
use tonic::Status;

use super::GatewayRpc;
use super::problems::Problems;
use super::request::check_calls;

/// What a run is started from.
pub(super) struct Invocation {
    request_id: String,
    target: Option<Target>,
    options: Option<RunOptions>,
}

/// Who gets a text.
enum Target {
    Calls(CallsTarget),
    Agent(AgentTarget),
}

impl From<InvokeTextRequest> for Invocation {
    fn from(request: InvokeTextRequest) -> Self {
        use invoke_text_request::Target as Given;
        let target = request.target.map(|target| match target {
            Given::Calls(calls) => Target::Calls(calls),
            Given::Agent(agent) => Target::Agent(agent),
        });
        Self {
            request_id: request.request_id,
            target,
            options: request.options,
        }
    }
}

impl From<StartTextRequest> for Invocation {
    fn from(request: StartTextRequest) -> Self {
        use start_text_request::Target as Given;
        let target = request.target.map(|target| match target {
            Given::Calls(calls) => Target::Calls(calls),
            Given::Agent(agent) => Target::Agent(agent),
        });
        Self {
            request_id: request.request_id,
            target,
            options: request.options,
        }
    }
}

impl GatewayRpc {
    /// Starts a run and follows it to its end.
    pub(super) async fn invoke(
        &self,
        request: InvokeTextRequest,
        drain: Drain,
    ) -> Result<BoxStream<'static, Result<InvokeTextResponse, Status>>, Status> {
        let StartTextResponse { run, replayed } = self.start(request.into()).await?;
        let run_id = run.map(|run| run.run_id).unwrap_or_default();
        let records = self.watch(run_id.clone(), 0, drain).await?;
        let answer = move |record: Result<Bytes, Status>| {
            record.map(|record| InvokeTextResponse {
                record,
                run_id: run_id.clone(),
                replayed,
            })
        };
        Ok(Box::pin(records.map(answer)))
    }

    /// Starts a run, or finds the one that the same request started before.
    pub(super) async fn start(&self, invocation: Invocation) -> Result<StartTextResponse, Status> {
        match invocation.target {
            Some(Target::Calls(calls)) => {
                self.start_calls(invocation.request_id, calls, invocation.options)
                    .await
            }
            Some(Target::Agent(agent)) => {
                self.start_turn(invocation.request_id, agent, invocation.options)
                    .await
            }
            None => {
                let mut problems = Problems::new();
                problems.add("target", "is missing; give calls or agent");
                problems.or(StartTextResponse::default())
            }
        }
    }

    async fn start_turn(
        &self,
        request_id: String,
        agent: AgentTarget,
        options: Option<RunOptions>,
    ) -> Result<StartTextResponse, Status> {
        let input = agent.input.map(|input| match input {
            agent_target::Input::UserMessage(text) => start_turn_request::Input::UserMessage(text),
            agent_target::Input::ModelText(text) => start_turn_request::Input::ModelText(text),
        });
        let turn = StartTurnRequest {
            request_id,
            profile_id: agent.profile_id,
            conversation_id: agent.conversation_id,
            input,
            continue_with_model: agent.continue_with_model,
            dialect: agent.dialect,
            options,
            budgets: agent.budgets,
            history: agent.history,
            ephemeral: agent.ephemeral,
            ..StartTurnRequest::default()
        };
        let started = self.peers.agent.clone().start_turn(turn).await;
        let started = started
            .map_err(|status| below("agent", status))?
            .into_inner();
        Ok(StartTextResponse {
            run: started.run,
            replayed: started.replayed,
        })
    }

    async fn start_calls(
        &self,
        request_id: String,
        calls: CallsTarget,
        options: Option<RunOptions>,
    ) -> Result<StartTextResponse, Status> {
        let (text, conversation_id) = (calls.text.clone(), calls.conversation_id.clone());
        let profile_id = calls.scope.clone().unwrap_or_default().profile_id;
        let reading = check_calls(calls, self.max_text)?;
        let parsed = self.read(&text, &reading).await?;
        let invocation = StartInvocationRequest {
            request_id,
            parsed: Some(parsed),
            text,
            conversation_id,
            options,
            profile_id,
        };
        let mut owner = self.peers.calls.clone();
        let started = owner.start_invocation(invocation).await;
        let started = started
            .map_err(|status| below("calls", status))?
            .into_inner();
        Ok(StartTextResponse {
            run: started.run,
            replayed: started.replayed,
        })
    }
}

/// Names the wrong fields that an owner reported by their paths in the gateway's request.
fn below(target: &str, status: Status) -> Status {
    if grpc_kit::reason(&status) != Some(ErrorReason::InvalidFields) {
        return status;
    }
    let mut failure = Failure::invalid_fields();
    for (field, problem) in grpc_kit::violations(&status) {
        let beside_target = field == "request_id" || field.starts_with("options");
        let path = match beside_target || field.is_empty() {
            true => field,
            false => format!("{target}.{field}"),
        };
        failure.add_violation(path, problem);
    }
    failure.into_status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrong_fields_of_a_turn_stand_below_its_target() {
        let status = Failure::invalid_fields()
            .violation("request_id", "x")
            .violation("options.timeout", "x")
            .violation("history[1].role", "x")
            .into_status();
        let fields: Vec<_> = grpc_kit::violations(&below("agent", status))
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(
            fields,
            ["request_id", "options.timeout", "agent.history[1].role"]
        );
        let other = Status::unavailable("down");
        assert_eq!(below("agent", other).message(), "down");
    }
}
