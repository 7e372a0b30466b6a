//! Starting a run from a text, and following it.

use bytes::Bytes;
use contracts::tavern::agent::v1::StartTurnRequest;
use contracts::tavern::agent::v1::start_turn_request;
use contracts::tavern::common::v1::{ErrorReason, RunOptions, RunState, watch_record::Record};
use contracts::tavern::gateway::v1::{
    AgentTarget, CallsTarget, InvokeTextRequest, InvokeTextResponse, StartTextRequest,
    StartTextResponse, agent_target, invoke_text_request, start_text_request,
};
use contracts::tavern::registry::v1::{InvokeCallsRequest, InvokeCallsResponse};
use contracts::tavern::run::v1::GetRunRequest;
use core_types::RunOwner;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use grpc_kit::{CallContext, Drain, Failure};
use tonic::{Status, Streaming};

use super::GatewayRpc;
use super::request::check_calls;
use super::runs::until_drained;

/// The request that starts a run.
pub(super) struct Invocation {
    request_id: String,
    target: Option<Target>,
    options: Option<RunOptions>,
}

/// The receiver of a text.
enum Target {
    Calls(CallsTarget),
    Agent(AgentTarget),
}

impl From<InvokeTextRequest> for Invocation {
    fn from(request: InvokeTextRequest) -> Self {
        use invoke_text_request::Target as RequestTarget;
        let target = request.target.map(|target| match target {
            RequestTarget::Calls(calls) => Target::Calls(calls),
            RequestTarget::Agent(agent) => Target::Agent(agent),
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
        use start_text_request::Target as RequestTarget;
        let target = request.target.map(|target| match target {
            RequestTarget::Calls(calls) => Target::Calls(calls),
            RequestTarget::Agent(agent) => Target::Agent(agent),
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
        context: &CallContext,
        request: InvokeTextRequest,
        drain: Drain,
    ) -> Result<BoxStream<'static, Result<InvokeTextResponse, Status>>, Status> {
        let Invocation {
            request_id,
            target,
            options,
        } = request.into();
        let (run_id, replayed, records) = match target {
            Some(Target::Calls(calls)) => {
                let (first, rest) = self
                    .invoke_calls(context, request_id, calls, options)
                    .await?;
                let rest = rest.map_ok(|response| response.record);
                let records = stream::iter([Ok(first.record)]).chain(rest).boxed();
                let records = until_drained(records, 0, drain);
                (first.run_id, first.replayed, records)
            }
            Some(Target::Agent(agent)) => {
                let started = self.start_turn(context, request_id, agent, options).await?;
                let run_id = started.run.unwrap_or_default().run_id;
                let records = self.watch(context, run_id.clone(), 0, drain).await?;
                (run_id, started.replayed, records)
            }
            None => return Err(without_target()),
        };
        let answer = move |record: Result<Bytes, Status>| {
            record.map(|record| InvokeTextResponse {
                record: marked(record),
                run_id: run_id.clone(),
                replayed,
            })
        };
        Ok(Box::pin(records.map(answer)))
    }

    /// Starts a run, or finds the one that the same request started before.
    pub(super) async fn start(
        &self,
        context: &CallContext,
        invocation: Invocation,
    ) -> Result<StartTextResponse, Status> {
        match invocation.target {
            Some(Target::Calls(calls)) => {
                let (first, _) = self
                    .invoke_calls(context, invocation.request_id, calls, invocation.options)
                    .await?;
                let mut runs = self.peers.runs(context, RunOwner::Registry);
                let run_id = first.run_id;
                let found = runs.get_run(GetRunRequest { run_id }).await?;
                Ok(StartTextResponse {
                    run: found.into_inner().run,
                    replayed: first.replayed,
                })
            }
            Some(Target::Agent(agent)) => {
                self.start_turn(context, invocation.request_id, agent, invocation.options)
                    .await
            }
            None => Err(without_target()),
        }
    }

    async fn start_turn(
        &self,
        context: &CallContext,
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
            sampling: agent.sampling,
            history: agent.history,
            ephemeral: agent.ephemeral,
            ..StartTurnRequest::default()
        };
        let started = self.peers.agent(context).start_turn(turn).await;
        let started = started
            .map_err(|status| below("agent", status))?
            .into_inner();
        Ok(StartTextResponse {
            run: started.run,
            replayed: started.replayed,
        })
    }

    /// Starts a run of calls and returns its first record, which names the run, and the others.
    async fn invoke_calls(
        &self,
        context: &CallContext,
        request_id: String,
        calls: CallsTarget,
        options: Option<RunOptions>,
    ) -> Result<(InvokeCallsResponse, Streaming<InvokeCallsResponse>), Status> {
        let (text, conversation_id) = (calls.text.clone(), calls.conversation_id.clone());
        let profile_id = calls.scope.clone().unwrap_or_default().profile_id;
        let reading = check_calls(calls, self.max_text)?;
        let parsed = self.read(context, &text, &reading).await?;
        let invocation = InvokeCallsRequest {
            request_id,
            parsed: Some(parsed),
            text,
            conversation_id,
            options,
            profile_id,
        };
        let mut owner = self.peers.calls(context);
        let invoked = owner.invoke_calls(invocation).await;
        let invoked = invoked.map_err(|status| below("calls", status))?;
        let mut responses = invoked.into_inner();
        match responses.message().await? {
            Some(first) => Ok((first, responses)),
            None => Err(Status::internal("a run without a record")),
        }
    }
}

/// Marks the span of the call as failed if a record ends a failed run: the span begins the trace of
/// the run.
fn marked(record: Bytes) -> Bytes {
    if contracts::watch::is_terminal(&record)
        && let Ok(Some(Record::Terminal(end))) = contracts::watch::decode(record.clone())
    {
        let outcome = end.run.unwrap_or_default().outcome.unwrap_or_default();
        if matches!(outcome.state(), RunState::Failed | RunState::InDoubt) {
            let error = outcome.error.unwrap_or_default();
            telemetry::spans::fail(&tracing::Span::current(), &error.code, &error.message);
        }
    }
    record
}

fn without_target() -> Status {
    let missing = "is missing; give calls or agent";
    let failure = Failure::invalid_fields().violation("target", missing);
    failure.into_status()
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
