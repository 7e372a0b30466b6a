//! Callers of several tenants, who use the same names and cannot notice each other.

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, NodeFinished, Run, RunState};
use contracts::tavern::run::v1::CancelRunRequest;
use contracts::tavern::workflow::v1::*;
use core_types::Reach;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::cache::doubling;
use crate::concurrency::{dispatched, limited};
use crate::principals::Caller;
use crate::support::*;

/// Two principals of the same name in two tenants.
const TWO: [&str; 2] = ["bob", "acme/bob"];

/// A workflow whose result is `value`.
fn giving(value: &str) -> Value {
    json!({
        "nodes": [
            {"id": "t", "type": "core:TextMerge", "inputValues": {"text_inputs": [value]}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("t", "merged_text", "out", "r")],
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    })
}

fn put(id: &str, definition: &Value) -> PutWorkflowRequest {
    PutWorkflowRequest {
        workflow_id: id.to_owned(),
        definition_json: definition.to_string(),
        request_id: "put".to_owned(),
        ..PutWorkflowRequest::default()
    }
}

/// A status without the id that it is about.
fn masked<T: std::fmt::Debug>(answer: Result<T, Status>, id: &str) -> String {
    format!("{:?}", answer.unwrap_err()).replace(id, "ID")
}

impl Caller {
    async fn put(&self, id: &str, definition: &Value) -> Workflow {
        let stored = self.client.clone().put_workflow(put(id, definition)).await;
        stored.unwrap().into_inner().workflow.unwrap()
    }

    async fn workflow(&self, id: &str) -> Result<Workflow, Status> {
        let workflow_id = id.to_owned();
        let request = GetWorkflowRequest { workflow_id };
        let found = self.client.clone().get_workflow(request).await?;
        Ok(found.into_inner().workflow.unwrap())
    }

    async fn delete(&self, id: &str) -> Result<DeleteWorkflowResponse, Status> {
        let request = DeleteWorkflowRequest {
            workflow_id: id.to_owned(),
            ..DeleteWorkflowRequest::default()
        };
        let deleted = self.client.clone().delete_workflow(request).await?;
        Ok(deleted.into_inner())
    }

    async fn list(&self, page_size: i32, token: &str) -> Result<ListWorkflowsResponse, Status> {
        let request = ListWorkflowsRequest {
            page_size,
            page_token: token.to_owned(),
            ..ListWorkflowsRequest::default()
        };
        let listed = self.client.clone().list_workflows(request).await?;
        Ok(listed.into_inner())
    }

    async fn begin(&self, request: StartRunRequest) -> Result<Run, Status> {
        let started = self.client.clone().start_run(request).await?;
        Ok(started.into_inner().run.unwrap())
    }

    /// Starts a run with a tool that waits, under a key that every test uses.
    async fn begin_keyed(&self, on_conflict: OnConflict) -> Result<Run, Status> {
        let definition = json!({"nodes": [tool("t", "wait")]});
        let request = StartRunRequest {
            concurrency: Some(RunConcurrency {
                key: "order 17".into(),
                on_conflict: on_conflict.into(),
            }),
            ..of_definition(&definition, json!({}))
        };
        self.begin(request).await
    }

    async fn fork(&self, run_id: &str) -> Result<ForkRunResponse, Status> {
        let request = ForkRunRequest {
            run_id: run_id.to_owned(),
            ..ForkRunRequest::default()
        };
        Ok(self.client.clone().fork_run(request).await?.into_inner())
    }

    /// Requests each change of a schedule and each answer about it, and masks its id.
    async fn refusals(&self, id: &str) -> Vec<String> {
        let schedule_id = id.to_owned();
        let mut schedules = self.schedules.clone();
        let get = GetScheduleRequest { schedule_id };
        let schedule_id = id.to_owned();
        let pause = PauseScheduleRequest { schedule_id };
        let schedule_id = id.to_owned();
        let resume = ResumeScheduleRequest { schedule_id };
        let delete = DeleteScheduleRequest {
            schedule_id: id.to_owned(),
            ..DeleteScheduleRequest::default()
        };
        let times = ListScheduleTimesRequest {
            schedule_id: id.to_owned(),
            ..ListScheduleTimesRequest::default()
        };
        vec![
            masked(schedules.get_schedule(get).await, id),
            masked(schedules.pause_schedule(pause).await, id),
            masked(schedules.resume_schedule(resume).await, id),
            masked(schedules.delete_schedule(delete).await, id),
            masked(schedules.list_schedule_times(times).await, id),
            masked(self.trigger(id, "once").await, id),
        ]
    }

    async fn times(&self, id: &str, page_size: i32, token: &str) -> ListScheduleTimesResponse {
        let request = ListScheduleTimesRequest {
            schedule_id: id.to_owned(),
            page_size,
            page_token: token.to_owned(),
        };
        let listed = self.schedules.clone().list_schedule_times(request).await;
        listed.unwrap().into_inner()
    }
}

impl World {
    /// Returns the end of node `double` in a run.
    async fn double_in(&self, run: &Run) -> NodeFinished {
        let outcome = self.outcome(&run.run_id).await;
        assert_eq!(outcome.state(), RunState::Succeeded, "{outcome:?}");
        let events = self.events(&run.run_id).await.into_iter();
        let mut ends = events.filter_map(|event| match event.kind {
            Some(Kind::NodeFinished(node)) if node.node_id == "double" => Some(node),
            _ => None,
        });
        ends.next().unwrap()
    }
}

#[tokio::test]
async fn equal_workflows_of_two_tenants_are_two_and_a_foreign_one_is_as_if_it_were_not_there() {
    let world = World::new().await;
    for principal in TWO {
        world
            .by(principal)
            .put("own-flow", &giving(principal))
            .await;
    }
    let world = world.restart().await;
    let ids = |listed: ListWorkflowsResponse| -> Vec<String> {
        let listed = listed.workflows.into_iter();
        listed.map(|workflow| workflow.workflow_id).collect()
    };
    for principal in TWO {
        let caller = world.by(principal);
        let again = caller.put("own-flow", &giving(principal)).await;
        let found = caller.workflow("own-flow").await.unwrap();
        assert_eq!(found.definition_json, giving(principal).to_string());
        assert_eq!((&found.etag, found.shared), (&again.etag, false));
        let run = caller
            .begin(of_workflow("own-flow", json!({})))
            .await
            .unwrap();
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(result(&outcome), json!({"r": principal}));
    }
    let eve = world.by("globex/eve");
    assert_eq!(
        ids(world.by("acme/bob").list(0, "").await.unwrap()),
        ["own-flow"]
    );
    let nothing = eve.list(0, "").await.unwrap();
    assert_eq!(ids(nothing.clone()), [""; 0], "files are the default one's");
    assert_eq!(nothing.diagnostics, []);
    assert!(ids(world.by("bob").list(0, "").await.unwrap()).len() > 1);

    for foreign in ["own-flow", "price_list"] {
        let missing = "z".repeat(foreign.len());
        let start = |id: &str| eve.begin(of_workflow(id, json!({})));
        assert_eq!(
            masked(eve.workflow(foreign).await, foreign),
            masked(eve.workflow(&missing).await, &missing)
        );
        assert_eq!(
            masked(eve.delete(foreign).await, foreign),
            masked(eve.delete(&missing).await, &missing)
        );
        assert_eq!(
            masked(start(foreign).await, foreign),
            masked(start(&missing).await, &missing)
        );
    }
    world.by("acme/bob").delete("own-flow").await.unwrap();
    let gone = world.by("acme/bob").workflow("own-flow").await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
    world.by("bob").workflow("own-flow").await.unwrap();
}

#[tokio::test]
async fn a_page_token_of_another_tenant_is_refused() {
    let world = World::new().await;
    for principal in TWO {
        for id in ["a", "b"] {
            let request = PutWorkflowRequest {
                request_id: String::new(),
                ..put(id, &giving(principal))
            };
            let mut client = world.by(principal).client;
            client.put_workflow(request).await.unwrap();
        }
    }
    let token = world.by("acme/bob").list(1, "").await.unwrap();
    let token = token.next_page_token;
    assert!(!token.is_empty());
    let next = world.by("acme/bob").list(1, &token).await.unwrap();
    assert_eq!(next.workflows[0].workflow_id, "b");
    for other in ["bob", "globex/bob"] {
        let refused = world.by(other).list(1, &token).await.unwrap_err();
        let violations = grpc_kit::violations(&refused);
        assert_eq!(violations[0].0, "page_token", "{violations:?}");
    }
}

#[tokio::test]
async fn a_workflow_of_the_tenant_system_is_read_by_all_unless_they_have_their_own() {
    let world = World::new().await;
    let shared = giving("all");
    assert!(!world.by("system/root").put("w", &shared).await.shared);
    let bob = world.by("acme/bob");
    let found = bob.workflow("w").await.unwrap();
    assert_eq!(
        (&*found.definition_json, found.shared),
        (&*shared.to_string(), true)
    );
    let listed = bob.list(0, "").await.unwrap().workflows;
    assert_eq!(listed, [found]);
    let run = bob.begin(of_workflow("w", json!({}))).await.unwrap();
    assert_eq!(run.principal, "acme/bob");
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(result(&outcome), json!({"r": "all"}));

    let refused = bob.delete("w").await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "workflow_id");
    assert!(!bob.put("w", &giving("own")).await.shared);
    assert!(!bob.workflow("w").await.unwrap().shared);
    assert!(world.by("globex/eve").workflow("w").await.unwrap().shared);
    bob.delete("w").await.unwrap();
    assert!(bob.workflow("w").await.unwrap().shared);
}

#[tokio::test]
async fn a_workflow_refers_to_workflows_of_the_tenant_of_its_run() {
    let world = World::new().await;
    let above = json!({
        "nodes": [
            {"id": "g", "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "below"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [edge("g", "r", "out", "r")],
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    });
    for principal in TWO {
        let caller = world.by(principal);
        let request = PutWorkflowRequest {
            request_id: String::new(),
            ..put("below", &giving(principal))
        };
        caller.client.clone().put_workflow(request).await.unwrap();
        caller.put("above", &above).await;
        let run = caller.begin(of_workflow("above", json!({}))).await.unwrap();
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(result(&outcome), json!({"r": principal}));
    }
    let eve = world.by("globex/eve");
    let refused = eve.begin(of_definition(&above, json!({})));
    let reason = grpc_kit::reason(&refused.await.unwrap_err());
    assert_eq!(reason, Some(ErrorReason::WorkflowInvalid));
}

#[tokio::test]
async fn equal_request_ids_and_texts_of_two_tenants_start_two_runs_that_outlive_a_restart() {
    let world = World::new().await;
    let asks =
        json!({"nodes": [{"id": "w", "type": "core:WaitSignal", "configValues": {"name": "go"}}]});
    let request = || StartRunRequest {
        request_id: "one".to_owned(),
        ..of_definition(&asks, json!({}))
    };
    let mut runs = Vec::new();
    for principal in TWO {
        let run = world.by(principal).begin(request()).await.unwrap();
        assert_eq!(run.principal, principal);
        runs.push(run.run_id);
    }
    let [mine, theirs] = [&runs[0], &runs[1]];
    assert_ne!(mine, theirs);
    let waits = |kind: &Kind| matches!(kind, Kind::NodeWaiting(_));
    world.events_until(theirs, waits).await;
    let cancel = CancelRunRequest {
        run_id: mine.clone(),
        ..CancelRunRequest::default()
    };
    world.runs.clone().cancel_run(cancel).await.unwrap();
    // The text that the ended run executed is forgotten for its tenant alone.
    let world = world.restart().await.restart().await;
    let again = world.by("acme/bob").begin(request()).await.unwrap();
    assert_eq!((&again.run_id, again.state()), (theirs, RunState::Waiting));
    let again = world.by("bob").begin(request()).await.unwrap();
    assert_eq!((&again.run_id, again.state()), (mine, RunState::Cancelled));

    let missing = format!("{}{}", &mine[..mine.len() - 4], "0000");
    for caller in [world.by("acme/bob"), world.reaching("eve", Reach::Own)] {
        assert_eq!(
            masked(caller.fork(mine).await, mine),
            masked(caller.fork(&missing).await, &missing)
        );
    }
    let forked = world.by("eve").fork(mine).await.unwrap().run.unwrap();
    assert_eq!(forked.principal, "eve");
}

#[tokio::test]
async fn equal_keys_of_runs_of_two_tenants_do_not_meet() {
    let world = World::new().await;
    let mut held = Vec::new();
    for principal in TWO {
        let run = world.by(principal).begin_keyed(OnConflict::Reject).await;
        let run = run.unwrap();
        assert_eq!(run.state(), RunState::Running, "{run:?}");
        held.push(run.run_id);
    }
    let own = world.reaching("acme/eve", Reach::Own);
    for (caller, named) in [(world.by("acme/eve"), &*held[1]), (own, "")] {
        let refused = caller.begin_keyed(OnConflict::Reject).await.unwrap_err();
        let reason = grpc_kit::reason(&refused);
        assert_eq!(reason, Some(ErrorReason::ConcurrencyKeyHeld));
        assert_eq!(grpc_kit::failure::metadata(&refused)["run_id"], named);
    }
    // A caller that does not see the run with the key waits for it.
    let own = world.reaching("acme/eve", Reach::Own);
    let queued = own.begin_keyed(OnConflict::CancelRunning).await.unwrap();
    assert_eq!(queued.state(), RunState::Queued);
    assert_eq!(world.run_of(&held[1]).await.state(), RunState::Running);
    let eve = world.by("acme/eve");
    eve.begin_keyed(OnConflict::CancelRunning).await.unwrap();
    for run in [&held[1], &queued.run_id] {
        assert_eq!(world.run_of(run).await.state(), RunState::Cancelled);
    }
    assert_eq!(world.run_of(&held[0]).await.state(), RunState::Running);
}

#[tokio::test]
async fn equal_keys_of_nodes_of_two_tenants_do_not_meet() {
    let world = World::new().await;
    let node = limited("t", "wait", json!({"concurrencyKey": "'k'"}));
    let request = of_definition(&json!({"nodes": [node]}), json!({}));
    let mut dispatched_runs = Vec::new();
    for principal in TWO {
        let run = world.by(principal).begin(request.clone()).await.unwrap();
        world.events_until(&run.run_id, dispatched).await;
        dispatched_runs.push(run.run_id);
    }
    let waits = world.by("acme/eve").begin(request.clone()).await.unwrap();
    let other = world.by("globex/eve").begin(request).await.unwrap();
    world.events_until(&other.run_id, dispatched).await;
    dispatched_runs.push(other.run_id);
    world.registry.until_asked(3).await;
    let asked = world.registry.asked().into_iter();
    let asked = asked.map(|call| call.effect_id.split('/').next().map(str::to_owned));
    let asked: Vec<_> = asked.flatten().collect();
    assert_eq!(asked, dispatched_runs);
    world.registry.release();
    let outcome = world.outcome(&waits.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_result_is_reused_by_runs_of_its_tenant_alone_in_each_scope() {
    let mut world = World::new().await;
    for scope in ["workflow", "tenant"] {
        let before = world.sandbox.started();
        let definition = doubling(json!({"ttl": "5m", "scope": scope}));
        let request = of_workflow(scope, json!({"n": 1}));
        for principal in TWO {
            let caller = world.by(principal);
            let put = PutWorkflowRequest {
                request_id: String::new(),
                ..put(scope, &definition)
            };
            caller.client.clone().put_workflow(put).await.unwrap();
            let first = caller.begin(request.clone()).await.unwrap();
            let end = world.double_in(&first).await.cache.unwrap();
            assert_eq!(end.source_run_id, "", "{scope} {principal}");
            let again = caller.begin(request.clone()).await.unwrap();
            let end = world.double_in(&again).await.cache.unwrap();
            assert_eq!(end.source_run_id, first.run_id, "{scope} {principal}");
        }
        assert_eq!(world.sandbox.started() - before, 2, "{scope}");
        world = world.restart().await;
        for principal in TWO {
            let run = world.by(principal).begin(request.clone()).await.unwrap();
            let source = world.double_in(&run).await.cache.unwrap().source_run_id;
            assert_eq!(world.run_of(&source).await.principal, principal);
        }
        assert_eq!(world.sandbox.started() - before, 2, "{scope}");
    }
}

#[tokio::test]
async fn equal_schedules_of_two_tenants_are_two_and_a_foreign_one_is_as_if_it_were_not_there() {
    let world = World::new().await;
    world.service.recover().await.unwrap();
    for principal in TWO {
        let caller = world.by(principal);
        caller.put("work", &giving(principal)).await;
        assert_eq!(caller.put_schedule("daily-work").await.creator, principal);
        caller.trigger("daily-work", "once").await.unwrap();
    }
    let world = world.restart().await;
    for principal in TWO {
        let caller = world.by(principal);
        let time = caller.trigger("daily-work", "once").await.unwrap();
        let run = world.run_of(&time.run_id).await;
        assert_eq!(run.principal, principal);
        let outcome = world.outcome(&run.run_id).await;
        assert_eq!(result(&outcome), json!({"r": principal}));
        let mut schedules = caller.schedules.clone();
        let listed = schedules.list_schedules(ListSchedulesRequest::default());
        let listed = listed.await.unwrap().into_inner().schedules;
        let creators: Vec<_> = listed.iter().map(|one| one.creator.as_str()).collect();
        assert_eq!(creators, [principal]);
        assert_eq!(caller.times("daily-work", 0, "").await.times.len(), 1);
    }
    let eve = world.by("globex/eve");
    assert_eq!(
        eve.refusals("daily-work").await,
        eve.refusals("empty-name").await
    );
    let mut schedules = eve.schedules.clone();
    let listed = schedules.list_schedules(ListSchedulesRequest::default());
    assert_eq!(listed.await.unwrap().into_inner().schedules, []);

    let bob = world.by("acme/bob");
    bob.trigger("daily-work", "twice").await.unwrap();
    let token = bob.times("daily-work", 1, "").await.next_page_token;
    assert!(!token.is_empty());
    let request = ListScheduleTimesRequest {
        schedule_id: "daily-work".to_owned(),
        page_token: token,
        ..ListScheduleTimesRequest::default()
    };
    let mut schedules = world.by("bob").schedules;
    let refused = schedules.list_schedule_times(request).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "page_token");
    let request = DeleteScheduleRequest {
        schedule_id: "daily-work".to_owned(),
        ..DeleteScheduleRequest::default()
    };
    bob.schedules
        .clone()
        .delete_schedule(request)
        .await
        .unwrap();
    assert_eq!(
        bob.refusals("daily-work").await,
        eve.refusals("daily-work").await
    );
    assert_eq!(
        world.by("bob").times("daily-work", 0, "").await.times.len(),
        1
    );
}
