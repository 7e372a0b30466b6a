//! Starts a run that takes over parts of another (rule W48).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, CallStatus, ErrorReason, Run, RunEvent};
use contracts::tavern::workflow::v1::{ForkPlan, ForkRunRequest, ForkRunResponse, RepeatedEffect};
use core_types::{CONVERSATION_OF_WORKFLOW, RunId};
use grpc_kit::failure::internal;
use grpc_kit::{CallContext, Failure};
use run_client::settle_decided;
use run_events::{RunMeta, StartRun, request_hash, to_its_end};
use run_log::Hash;
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::error::invalid_fields;
use workflow_domain::engine::Event;
use workflow_domain::fork::taken_over;
use workflow_domain::interface::read_inputs;
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_runner::Clients;
use workflow_runner::forked::{calls_taken_over, first_events};
use workflow_runner::run_state::{RecordedCall, RunState};

use super::Inner;
use super::fork_edit;
use super::recover::{Unrecoverable, definition_of, find_target};
use super::start::{Planned, refused, start_by};
use super::target::{Target, TargetError};

/// The scope in which request ids of forks count.
const SCOPE: &str = "ForkRun";

/// A run that has ended, with all data that a fork needs.
struct Source {
    run: Run,
    meta: RunMeta,
    target: Target,
    given: Map<String, Value>,
    events: Vec<RunEvent>,
    state: RunState,
}

impl Inner {
    /// Plans a fork, and starts it unless only the plan is requested.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        context: CallContext,
        request: ForkRunRequest,
    ) -> Result<ForkRunResponse, Status> {
        let inner = Arc::clone(self);
        to_its_end(async move { inner.begin_fork(&context, request).await }).await
    }

    async fn begin_fork(
        &self,
        context: &CallContext,
        request: ForkRunRequest,
    ) -> Result<ForkRunResponse, Status> {
        context.enter("run")?;
        let peers = self.runner.peers(context);
        let source = self.source(&peers, &request.run_id).await?;
        let mut problems = Failure::invalid_fields();
        let mut given = source.given.clone();
        let before = source.state.engine().plan();
        let edits = &request.edits;
        let target = fork_edit::apply(&source.target, before, &mut given, edits, &mut problems);
        if !problems.is_empty() {
            return Err(problems.into_status());
        }
        let tenant = context.tenant();
        let changed = self.library.in_other_versions(tenant, target.node_types());
        let changed = changed.await?;
        let planned = target.plan(&self.library, tenant, given.clone()).await;
        let (plan, inputs) = planned.map_err(|wrong| refused_edits(wrong, &target))?;
        let taken = taken_over(source.state.engine(), Arc::clone(&plan), inputs.clone());
        let calls = calls_taken_over(&taken, source.state.calls());
        let planned = self.plan_of(&peers, &source, &plan, &taken.ended, &calls);
        let (mut fork_plan, undecided) = planned.await?;
        judge(&peers, &mut fork_plan, &changed).await?;
        if request.validate_only {
            return Ok(ForkRunResponse {
                plan: Some(fork_plan),
                ..ForkRunResponse::default()
            });
        }
        check(&request, &fork_plan, &undecided)?;
        let mut start = start_of(context, &request, &source.meta);
        start.input_json = Value::Object(given).to_string();
        let now = self.clock.now();
        start.first_events = first_events(
            &plan,
            inputs.clone(),
            &taken.ended,
            &calls,
            &request.run_id,
            now,
        );
        let planned = Planned {
            target,
            plan,
            inputs,
        };
        let (run, replayed) = self.begin(context, start, planned, None).await?;
        Ok(ForkRunResponse {
            plan: Some(fork_plan),
            run: Some(run),
            replayed,
        })
    }

    async fn source(&self, peers: &Clients, run_id: &str) -> Result<Source, Status> {
        let run = self.runs.get(&peers.context, run_id).await?;
        if run.outcome.is_none() {
            let state = common::RunState::try_from(run.state).unwrap_or_default();
            let message = "the run has not ended; cancel it or wait for its end";
            let failure = Failure::new(
                Code::FailedPrecondition,
                ErrorReason::RunNotFinished,
                message,
            );
            let failure = failure.metadata("run_id", run_id);
            return Err(failure.metadata("state", state.as_str_name()).into());
        }
        let meta = self.runs.meta(&peers.context, run_id).await?;
        let target = match find_target(self, &meta).await {
            Ok(target) => target,
            Err(Unrecoverable::Storage(failure)) => return Err(failure.into()),
            Err(_) => self.present(&meta).await?.ok_or_else(|| lost(run_id))?,
        };
        let id: RunId = run_id.parse().map_err(|_| lost(run_id))?;
        let mut events = self.runs.events(&peers.context, run_id).await?;
        settle_decided(run_id, &mut events, &peers.calls, &peers.context).await?;
        let started = run_events::beginning(id, &events).map_err(|error| internal(&error))?;
        let given = read_inputs(&started.input_json);
        let given = given.map_err(|wrong| invalid_fields("run_id", &wrong))?;
        let tenant = meta.principal.tenant();
        let planned = target.plan(&self.library, tenant, given.clone()).await;
        let (plan, inputs) = planned.map_err(|wrong| refused_edits(wrong, &target))?;
        let state = RunState::replay(plan, inputs, run_id, &events);
        Ok(Source {
            state: state.map_err(|error| internal(&error))?,
            run,
            meta,
            target,
            given,
            events,
        })
    }

    /// Returns the present definition of a run's workflow, if it equals the definition of the run.
    async fn present(&self, meta: &RunMeta) -> Result<Option<Target>, Status> {
        let tenant = meta.principal.tenant();
        let Some(kept) = definition_of(meta) else {
            return Ok(None);
        };
        let Ok(workflow) = self.library.get(tenant, &meta.subject).await else {
            return Ok(None);
        };
        let bundle = self.library.bundle(tenant, &workflow.document.text).await?;
        let text = match bundle.is_alone() {
            true => bundle.root.to_string(),
            false => bundle.to_text(),
        };
        Ok((Hash::of(text.as_bytes()) == kept).then_some(Target::Definition(bundle)))
    }

    /// Returns the plan of a fork, and the calls whose outcome is unknown.
    async fn plan_of(
        &self,
        peers: &Clients,
        source: &Source,
        plan: &Plan,
        taken: &[Event],
        calls: &[((NodeIndex, u32), RecordedCall)],
    ) -> Result<(ForkPlan, Vec<String>), Status> {
        let kept: BTreeSet<u32> = taken.iter().map(Event::node).collect();
        let ids = taken
            .iter()
            .map(|event| plan.nodes[event.node() as usize].id.to_string());
        let again = (0..).zip(&plan.nodes).filter(|(at, _)| !kept.contains(at));
        let mut fork = ForkPlan {
            reused: ids.collect(),
            redone: again.map(|(_, node)| node.id.to_string()).collect(),
            ..ForkPlan::default()
        };
        let mut ended: HashMap<&str, bool> = HashMap::new();
        let own = source.events.iter();
        for event in own.filter(|event| event.run_id == source.run.run_id) {
            match &event.kind {
                Some(Kind::CallDispatched(call)) => {
                    let around = call.node_id.split('#').next().unwrap_or_default();
                    let node = plan.by_id.get(around);
                    let is_taken = calls
                        .iter()
                        .any(|(_, taken)| taken.effect_id == call.effect_id);
                    if is_taken || node.is_none_or(|node| kept.contains(node)) {
                        continue;
                    }
                    ended.insert(&call.effect_id, false);
                    fork.effects_repeated.push(RepeatedEffect {
                        path: call.node_id.clone(),
                        tool_id: call.tool_id.clone(),
                        before: call.effect_id.clone(),
                        harmless: false,
                    });
                }
                Some(Kind::CallSettled(settled)) => {
                    let result = settled.result.as_ref();
                    let known = result.filter(|result| result.status() != CallStatus::InDoubt);
                    if let Some(end) = known.and_then(|known| ended.get_mut(&*known.effect_id)) {
                        *end = true;
                    }
                }
                _ => {}
            }
        }
        let mut undecided = Vec::new();
        for effect in &fork.effects_repeated {
            let known = ended.get(&*effect.before).is_some_and(|ended| *ended);
            if !known && peers.is_undecided(&effect.before).await {
                undecided.push(effect.before.clone());
            }
        }
        Ok((fork, undecided))
    }
}

/// Notes which effects do no harm when they are repeated, and the digest of all if some may. Of the node types `changed`
/// plugins bring another version than that of the run.
async fn judge(
    peers: &Clients,
    fork: &mut ForkPlan,
    changed: &BTreeSet<String>,
) -> Result<(), Status> {
    let tools = fork.effects_repeated.iter();
    let tools: BTreeSet<String> = tools.map(|effect| effect.tool_id.clone()).collect();
    if tools.is_empty() {
        return Ok(());
    }
    let harmless = peers.harmless_tools(tools.into_iter().collect()).await?;
    for effect in &mut fork.effects_repeated {
        // The tool in force is another one than that of the run.
        let is_changed =
            (effect.tool_id.strip_prefix("node:")).is_some_and(|of| changed.contains(of));
        effect.harmless = harmless.contains(&effect.tool_id) && !is_changed;
    }
    if fork.effects_repeated.iter().any(|effect| !effect.harmless) {
        let listed = fork.effects_repeated.iter().map(
            |effect| json!({"path": effect.path, "tool": effect.tool_id, "before": effect.before}),
        );
        let digest = canonical_json::digest(&Value::Array(listed.collect()));
        fork.effects_digest = hex::encode(digest);
    }
    Ok(())
}

/// Refuses a fork that would repeat effects that were not accepted, or calls that may still happen.
fn check(request: &ForkRunRequest, plan: &ForkPlan, undecided: &[String]) -> Result<(), Failure> {
    if !undecided.is_empty() {
        let message =
            "it is not known whether calls of the run took effect; decide with ResolveCall";
        let failure = Failure::new(Code::FailedPrecondition, ErrorReason::CallsInDoubt, message);
        let failure = failure.metadata("run_id", request.run_id.clone());
        return Err(failure.metadata("effect_ids", undecided.join(",")));
    }
    if request.accept_effects == plan.effects_digest || plan.effects_digest.is_empty() {
        return Ok(());
    }
    let message = "the fork would repeat effects; give the digest of its plan to accept them";
    let failure = Failure::new(
        Code::FailedPrecondition,
        ErrorReason::EffectsNotAccepted,
        message,
    );
    Err(failure.metadata("effects_digest", plan.effects_digest.clone()))
}

fn start_of(context: &CallContext, request: &ForkRunRequest, meta: &RunMeta) -> StartRun {
    let own = meta.conversation_id.starts_with(CONVERSATION_OF_WORKFLOW);
    StartRun {
        subject: meta.subject.clone(),
        conversation_id: match own {
            true => String::new(),
            false => meta.conversation_id.clone(),
        },
        forks: request.run_id.parse().ok(),
        ..start_by(
            SCOPE,
            &request.request_id,
            request_hash(context, request),
            request.options,
        )
    }
}

fn refused_edits(wrong: TargetError, target: &Target) -> Failure {
    match wrong {
        TargetError::Inputs(violations) => invalid_fields("edits", &violations),
        wrong => refused(wrong, target),
    }
}

fn lost(run_id: &str) -> Failure {
    let message = "the definition that the run executed is no longer kept";
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::DefinitionLost,
        message,
    )
    .metadata("run_id", run_id)
}
