//! Starting runs.

use call_outcome::Violation;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorCategory, Run, RunEvent, RunOptions};
use contracts::tavern::workflow::v1::{
    RunConcurrency, StartRunRequest, StartRunResponse, start_run_request,
};
use core_types::{
    CONVERSATION_OF_WORKFLOW, ConversationId, Durability, RequestId, RunId, Tenant, WorkflowId,
};
use grpc_kit::failure::internal;
use grpc_kit::{CallContext, Failure};
use run_events::{
    DeclaredSignals, End, RecordedWaits, Recorder, StartRun, Started, Waits, append_failure,
    durability_from_proto, outcome, request_hash, to_its_end,
};
use run_log::Hash;
use serde_json::{Map, Value};
use telemetry::attributes::{CONVERSATION_ID, RUN_ID};
use tonic::Status;

use crate::error::{invalid_fields, store_failure, workflow_invalid};
use workflow_domain::interface::{RunInputs, read_inputs};
use workflow_domain::limits::{MAX_DEFINITION_BYTES, MAX_NAME_BYTES};
use workflow_domain::plan::Plan;
use workflow_domain::plan_waits;
use workflow_domain::plugin_node::plugin_of;
use workflow_runner::allowance::Allowance;
use workflow_runner::checkpoints::Checkpoints;
use workflow_runner::run_state::RunState;
use workflow_runner::{Prepared, RunEntry, RunPlace};

use super::Inner;
use super::concurrency;
use super::hooked::show_end;
use super::target::{Node, Stored, Target, TargetError};

/// The scope in which request ids of runs count.
const SCOPE: &str = "StartRun";

/// The longest settings of a single node, in bytes: they are stored with the run.
const MAX_CONFIG_BYTES: usize = 64 * 1024;

/// The target of a run, ready to begin.
pub(super) struct Planned {
    pub(super) target: Target,
    pub(super) plan: Arc<Plan>,
    pub(super) inputs: RunInputs,
}

/// A request whose fields are all valid.
struct Checked {
    target: Target,
    subject: String,
    inputs: Map<String, Value>,
}

impl Inner {
    /// Starts a run, or finds the run that the same request started before.
    pub(crate) async fn start(
        self: &Arc<Self>,
        context: CallContext,
        request: StartRunRequest,
    ) -> Result<StartRunResponse, Status> {
        let inner = Arc::clone(self);
        to_its_end(async move { inner.start_or_find(&context, request).await }).await
    }

    async fn start_or_find(
        &self,
        context: &CallContext,
        request: StartRunRequest,
    ) -> Result<StartRunResponse, Status> {
        // The run is between its caller and the calls that it makes, so there must be room for it.
        context.enter("run")?;
        let (start, request_id) = (start_of(context, &request), request.request_id.clone());
        let refusal = match self.start_new(context, request, start.clone()).await {
            Ok(response) => return Ok(response),
            Err(refusal) => refusal,
        };
        // The target of the request may be deleted by now; a run that it started before is not.
        if !self.was_started(context, &request_id).await? {
            return Err(refusal);
        }
        match self.runs.start(context, start).await? {
            Started::Replayed(run) => Ok(StartRunResponse {
                run: Some(run),
                replayed: true,
            }),
            Started::New(recorder, _) => {
                // The earlier run was dropped from memory just now, so this one is the first.
                let error = outcome::error(ErrorCategory::Validation, "refused", refusal.message());
                self.runs.execute(recorder, |_| async {
                    End::Finished(outcome::failed(error))
                });
                Err(refusal)
            }
        }
    }

    async fn start_new(
        &self,
        context: &CallContext,
        request: StartRunRequest,
        mut start: StartRun,
    ) -> Result<StartRunResponse, Status> {
        let concurrency = request.concurrency.clone();
        let tenant = context.tenant();
        let mut checked = self.check(tenant, request).await?;
        start.subject = checked.subject;
        if let Target::Definition(bundle) = &checked.target {
            let inputs = &checked.inputs;
            let hooked = self.before_execute(context, &start, &bundle.root, inputs);
            let mut hooked = hooked.await?;
            start.first_events.extend(hooked.events());
            if let Some(denial) = &hooked.denial {
                start.input_json = Value::Object(checked.inputs).to_string();
                let (run, replayed) = self.begin_denied(context, start, denial).await?;
                return Ok(StartRunResponse {
                    run: Some(run),
                    replayed,
                });
            }
            if let Some(inputs) = hooked.inputs {
                checked.inputs = inputs;
            }
        }
        start.input_json = Value::Object(checked.inputs.clone()).to_string();
        let planned = checked
            .target
            .plan(&self.library, tenant, checked.inputs)
            .await;
        let (plan, inputs) = planned.map_err(|wrong| refused(wrong, &checked.target))?;
        let planned = Planned {
            target: checked.target,
            plan,
            inputs,
        };
        let (run, replayed) = self.begin(context, start, planned, concurrency).await?;
        Ok(StartRunResponse {
            run: Some(run),
            replayed,
        })
    }

    /// Starts a run, or finds the run that the same request started before. Returns whether it was
    /// found.
    pub(super) async fn begin(
        &self,
        context: &CallContext,
        mut start: StartRun,
        planned: Planned,
        concurrency: Option<RunConcurrency>,
    ) -> Result<(Run, bool), Status> {
        let Planned {
            target,
            plan,
            inputs,
        } = planned;
        let first_events = start.first_events.clone();
        let grant = start.grant.clone();
        let wall = grant.as_ref().filter(|grant| grant.wall_seconds > 0);
        start.deadline_cap = wall.map(|grant| {
            let left = Duration::from_secs(grant.wall_seconds);
            self.clock.now().plus(left)
        });
        start.can_wait = plan_waits::can_wait(&plan);
        let (key, conflicting) = concurrency::enter(&self.keys, context, concurrency)?;
        let place = self.places.enter(RunEntry {
            tenant: context.tenant(),
            depth: context.path().depth(),
            since: self.clock.now(),
            priority: start.priority,
            key,
        });
        let mut place = place?;
        let durability = durability_from_proto(
            start
                .options
                .as_ref()
                .map_or(0, |options| options.durability),
        );
        start.owner_data = self.keep(context.tenant(), &target, durability).await?;
        if start.conversation_id.is_empty() {
            let drawn = self.ids.next_uuid().simple();
            start.conversation_id = format!("{CONVERSATION_OF_WORKFLOW}{drawn}");
        }
        let (recorder, meta) = match self.runs.start(context, start).await? {
            Started::New(recorder, meta) => (recorder, meta),
            Started::Replayed(run) => return Ok((run, true)),
        };
        let run_id = recorder.run_id();
        if let Some(key) = place.key_mut() {
            key.set_run(run_id);
        }
        if place.is_queued() {
            let queued = recorder.enqueue().await;
            queued.map_err(|error| append_failure(&error))?;
        }
        let events = events_of(&run_id.to_string(), first_events);
        let state = RunState::replay(plan, inputs, &run_id.to_string(), &events);
        let prepared = Prepared {
            state: state.map_err(|error| internal(&error))?,
            allowance: Arc::new(Allowance::new(grant)),
            conversation_id: meta.conversation_id,
            workflow_id: meta.subject.clone(),
        };
        let span = telemetry::spans::invoke_workflow(&meta.subject);
        self.execute(&span, recorder, prepared, RecordedWaits::default(), place);
        self.cancel_before(context, conflicting, run_id).await;
        let run = self.runs.get(context, &run_id.to_string()).await?;
        Ok((run, false))
    }

    /// Executes a run as a task of its own, in the span of the workflow.
    pub(super) fn execute(
        &self,
        span: &tracing::Span,
        recorder: Recorder,
        prepared: Prepared,
        recorded: RecordedWaits,
        place: RunPlace,
    ) {
        note(span, recorder.run_id(), &prepared.conversation_id);
        let runner = Arc::clone(&self.runner);
        let for_run = recorder.clone();
        let mut declared = DeclaredSignals::new();
        for (name, schema) in plan_waits::signals(prepared.state.engine().plan()) {
            declared.entry(name).or_default().push(schema);
        }
        let waits = Waits::new(recorder.clone(), recorded, declared);
        let plan = Arc::clone(prepared.state.engine().plan());
        let (hooks, workflow_id) = (self.hooks.clone(), prepared.workflow_id.clone());
        recorder.when_finished(move |context, outcome| {
            show_end(&hooks, &context, &workflow_id, outcome);
        });
        let checkpoints = Checkpoints::new(self.runs.clone(), recorder.clone(), plan);
        let of_run = (waits.clone(), checkpoints);
        span.in_scope(|| {
            self.runs
                .execute_with_waits(recorder, waits, move |control| async move {
                    runner.run(prepared, of_run, place, for_run, control).await
                });
        });
    }

    pub(super) async fn was_started(
        &self,
        context: &CallContext,
        request_id: &str,
    ) -> Result<bool, Failure> {
        // An invalid id is refused together with all other problems.
        match RequestId::new(request_id) {
            Ok(request_id) => Ok(self.run_by_request(context, &request_id).await?.is_some()),
            Err(_) => Ok(false),
        }
    }

    /// Returns the run that a request of the caller's tenant started, if the call can see it.
    pub(super) async fn run_by_request(
        &self,
        context: &CallContext,
        request_id: &RequestId,
    ) -> Result<Option<Run>, Failure> {
        self.runs.by_request(context, SCOPE, request_id).await
    }

    async fn check(&self, tenant: Tenant, request: StartRunRequest) -> Result<Checked, Status> {
        let mut problems = Failure::invalid_fields();
        if let Err(error) = RequestId::new(&request.request_id)
            && !request.request_id.is_empty()
        {
            problems.add_violation("request_id", error.to_string());
        }
        if let Err(error) = ConversationId::new(&request.conversation_id)
            && !request.conversation_id.is_empty()
        {
            problems.add_violation("conversation_id", error.to_string());
        }
        concurrency::check(&request, &mut problems);
        let inputs = read_inputs(&request.inputs_json).unwrap_or_else(|violations| {
            add_all(&mut problems, "inputs_json", violations);
            Map::new()
        });
        let named = check_target(request.target, &mut problems);
        let Some(named) = named.filter(|_| problems.is_empty()) else {
            return Err(problems.into_status());
        };
        let (target, subject) = match named {
            Named::Node(mut node, subject) => {
                let full_type = plugin_of(&node.full_type).map(|_| node.full_type.clone());
                let types = full_type.into_iter().collect();
                let resolved = self.library.node_types().resolve(tenant, types).await?;
                node.node_types = resolved.node_types;
                (Target::Node(node), subject)
            }
            Named::Definition(text) => (
                Target::Definition(self.library.bundle(tenant, &text).await?),
                String::new(),
            ),
            Named::Workflow(id) => {
                let known = self.library.get(tenant, &id).await?;
                let text = Arc::clone(&known.document.text);
                (
                    Target::Definition(self.library.bundle(tenant, &text).await?),
                    id,
                )
            }
        };
        Ok(Checked {
            target,
            subject,
            inputs,
        })
    }

    async fn keep_text(&self, tenant: Tenant, text: &str) -> Result<String, Failure> {
        let kept = self.definitions.put(tenant, text).await;
        Ok(kept.map_err(|error| store_failure(&error))?.to_string())
    }

    /// Stores the definition of the run for a restart, and returns the data that are stored with
    /// the run.
    async fn keep(
        &self,
        tenant: Tenant,
        target: &Target,
        durability: Durability,
    ) -> Result<Value, Failure> {
        let stored = match target {
            Target::Node(node) => Stored::Node(node.clone()),
            // A run in memory ends with the process, so no data have to outlive it.
            Target::Definition(_) if durability == Durability::Memory => return Ok(Value::Null),
            Target::Definition(bundle) if bundle.is_alone() => {
                Stored::Definition(self.keep_text(tenant, &bundle.root).await?)
            }
            Target::Definition(bundle) => {
                Stored::Bundle(self.keep_text(tenant, &bundle.to_text()).await?)
            }
        };
        Ok(serde_json::to_value(stored).expect("a struct with text keys always serialises"))
    }
}

/// Makes the start of a run from a request, before its target is read.
fn start_of(context: &CallContext, request: &StartRunRequest) -> StartRun {
    StartRun {
        conversation_id: request.conversation_id.clone(),
        concurrency_key: concurrency::key_of(request),
        priority: request.priority,
        grant: request.grant.clone(),
        ..start_by(
            SCOPE,
            &request.request_id,
            // The rest of an agent's budgets may differ when it repeats the request.
            request_hash(
                context,
                &StartRunRequest {
                    grant: None,
                    ..request.clone()
                },
            ),
            request.options,
        )
    }
}

/// Makes the start of any run of a workflow from a request id.
pub(super) fn start_by(
    scope: &'static str,
    request_id: &str,
    body_hash: Hash,
    options: Option<RunOptions>,
) -> StartRun {
    StartRun {
        kind: "workflow",
        owner: None,
        subject: String::new(),
        conversation_id: String::new(),
        request_id: request_id.to_owned(),
        scope,
        body_hash,
        input_json: String::new(),
        input_is_model_text: false,
        options,
        can_wait: false,
        concurrency_key: String::new(),
        priority: 0,
        deadline_cap: None,
        grant: None,
        owner_data: Value::Null,
        first_events: Vec::new(),
        forks: None,
    }
}

/// Makes the first events of a run, in the form in which they are read after a restart.
fn events_of(run_id: &str, kinds: Vec<Kind>) -> Vec<RunEvent> {
    let event = |kind| RunEvent {
        run_id: run_id.to_owned(),
        kind: Some(kind),
        ..RunEvent::default()
    };
    kinds.into_iter().map(event).collect()
}

fn note(span: &tracing::Span, run: RunId, conversation_id: &str) {
    telemetry::spans::set(span, RUN_ID, run.to_string());
    telemetry::spans::set(span, CONVERSATION_ID, conversation_id.to_owned());
}

/// A target in the form of the request.
enum Named {
    /// A single node, and the subject of the run.
    Node(Node, String),
    /// A definition that is not stored.
    Definition(Arc<str>),
    /// A stored workflow.
    Workflow(String),
}

fn check_target(
    target: Option<start_run_request::Target>,
    problems: &mut Failure,
) -> Option<Named> {
    match target {
        None => {
            problems.add_violation(
                "target",
                "is missing; name a workflow, a definition or a node",
            );
            None
        }
        Some(start_run_request::Target::Node(node)) => {
            if node.full_type.len() > MAX_NAME_BYTES {
                problems.add_violation(
                    "node.full_type",
                    format!("is longer than {MAX_NAME_BYTES} bytes"),
                );
                return None;
            }
            let config = read_config(&node.config_values_json);
            let config = config
                .map_err(|violations| add_all(problems, "node.config_values_json", violations))
                .ok()?;
            let subject = format!("node:{}", node.full_type);
            let full_type = node.full_type;
            let node = Node {
                full_type,
                config,
                node_types: Arc::default(),
            };
            Some(Named::Node(node, subject))
        }
        Some(start_run_request::Target::DefinitionJson(text)) => {
            if text.len() > MAX_DEFINITION_BYTES {
                problems.add_violation(
                    "definition_json",
                    format!("is longer than {MAX_DEFINITION_BYTES} bytes"),
                );
                return None;
            }
            Some(Named::Definition(text.into()))
        }
        Some(start_run_request::Target::WorkflowId(id)) => {
            let checked = WorkflowId::new(&id);
            checked
                .map_err(|error| problems.add_violation("workflow_id", error.to_string()))
                .ok()?;
            Some(Named::Workflow(id))
        }
    }
}

fn add_all(problems: &mut Failure, field: &str, violations: Vec<Violation>) {
    for violation in violations {
        problems.add_violation(format!("{field}{}", violation.pointer), violation.message);
    }
}

fn read_config(text: &str) -> Result<Map<String, Value>, Vec<Violation>> {
    if text.len() > MAX_CONFIG_BYTES {
        let message = format!("is longer than {MAX_CONFIG_BYTES} bytes");
        return Err(vec![Violation::new("", "limit_exceeded", message)]);
    }
    read_inputs(text)
}

pub(super) fn refused(wrong: TargetError, target: &Target) -> Failure {
    match (wrong, target) {
        (TargetError::Inputs(violations), _) => invalid_fields("inputs_json", &violations),
        (TargetError::Workflow(violations), Target::Definition(_)) => {
            workflow_invalid("definition_json", &violations)
        }
        (TargetError::Workflow(violations), Target::Node(_)) => {
            workflow_invalid("node", &violations)
        }
    }
}
