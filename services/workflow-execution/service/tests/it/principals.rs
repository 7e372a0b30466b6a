//! Runs and schedules of a principal other than `local`: all of their work acts for it.

use std::sync::Arc;

use contracts::tavern::access::v1::Permission;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{ErrorReason, Run, RunState};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{
    AnswerWaitRequest, GetRunRequest, ListRunsRequest, ListWaitsRequest, SignalRunRequest,
};
use contracts::tavern::workflow::v1::schedule::Timing;
use contracts::tavern::workflow::v1::schedule_service_client::ScheduleServiceClient;
use contracts::tavern::workflow::v1::{
    ForkRunRequest, GetScheduleRequest, ListScheduleTimesRequest, ListSchedulesRequest,
    PutScheduleRequest, PutWorkflowRequest, ResumeScheduleRequest, Schedule, ScheduleNotRunReason,
    ScheduleTime, TriggerScheduleRequest,
};
use core_types::{CallPath, Principal, Reach};
use doubles::{Behaviour, TestRegistry};
use grpc_kit::{CallContext, Outbound};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tonic::Status;

use crate::support::*;

/// The clients of one principal.
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) runs: RunServiceClient<Outbound>,
    pub(crate) schedules: ScheduleServiceClient<Outbound>,
}

impl World {
    pub(crate) fn by(&self, principal: &str) -> Caller {
        self.reaching(principal, Reach::Tenant)
    }

    pub(crate) fn reaching(&self, principal: &str, reach: Reach) -> Caller {
        let principal = Principal::new(principal).unwrap();
        let context = CallContext::new(principal, CallPath::default()).reaching(reach);
        let transport = grpc_kit::local(&self.service.services());
        Caller {
            client: Client::new(transport.with(&context)),
            runs: RunServiceClient::new(transport.with(&context)),
            schedules: ScheduleServiceClient::new(transport.with(&context)),
        }
    }

    pub(crate) async fn run_of(&self, run_id: &str) -> Run {
        let run_id = run_id.to_owned();
        let run = self.runs.clone().get_run(GetRunRequest { run_id }).await;
        run.unwrap().into_inner().run.unwrap()
    }
}

impl Caller {
    async fn start(&self, definition: &Value, request_id: &str) -> Result<Run, Status> {
        let mut request = of_definition(definition, json!({}));
        request_id.clone_into(&mut request.request_id);
        let started = self.client.clone().start_run(request).await?;
        Ok(started.into_inner().run.unwrap())
    }

    async fn answer(&self, run_id: &str, by: &str, request_id: &str) -> Result<bool, Status> {
        let request = AnswerWaitRequest {
            run_id: run_id.to_owned(),
            wait_id: self.wait_of(run_id).await,
            answer_json: json!("yes").to_string(),
            answered_by: by.to_owned(),
            request_id: request_id.to_owned(),
        };
        let answered = self.runs.clone().answer_wait(request).await?;
        Ok(answered.into_inner().replayed)
    }

    /// Returns the wait of a run; the first one's name once it is over.
    async fn wait_of(&self, run_id: &str) -> String {
        let request = ListWaitsRequest {
            run_id: run_id.to_owned(),
            ..ListWaitsRequest::default()
        };
        let waits = self.runs.clone().list_waits(request).await.unwrap();
        let mut waits = waits.into_inner().waits.into_iter();
        waits.next().map(|wait| wait.wait_id).unwrap_or_default()
    }

    async fn signal(&self, run_id: &str, id: &str) -> Result<bool, Status> {
        let request = SignalRunRequest {
            run_id: run_id.to_owned(),
            name: "go".to_owned(),
            signal_id: id.to_owned(),
            ..SignalRunRequest::default()
        };
        let sent = self.runs.clone().signal_run(request).await?;
        Ok(sent.into_inner().replayed)
    }

    pub(crate) async fn put_schedule(&self, id: &str) -> Schedule {
        let year = prost_types::Duration {
            seconds: 366 * 24 * 60 * 60,
            nanos: 0,
        };
        let request = PutScheduleRequest {
            schedule: Some(Schedule {
                schedule_id: id.to_owned(),
                workflow_id: "work".to_owned(),
                timing: Some(Timing::Interval(year)),
                ..Schedule::default()
            }),
            ..PutScheduleRequest::default()
        };
        let stored = self.schedules.clone().put_schedule(request).await;
        stored.unwrap().into_inner().schedule.unwrap()
    }

    async fn schedule(&self, id: &str) -> Schedule {
        let schedule_id = id.to_owned();
        let request = GetScheduleRequest { schedule_id };
        let found = self.schedules.clone().get_schedule(request).await;
        found.unwrap().into_inner().schedule.unwrap()
    }

    pub(crate) async fn trigger(&self, id: &str, request_id: &str) -> Result<ScheduleTime, Status> {
        let request = TriggerScheduleRequest {
            schedule_id: id.to_owned(),
            request_id: request_id.to_owned(),
        };
        let added = self.schedules.clone().trigger_schedule(request).await?;
        Ok(added.into_inner().time.unwrap())
    }
}

/// The real registry, with a tool that returns its arguments and a tool that hangs.
fn tools() -> TestRegistry {
    let any = json!({"type": "object"});
    let echo = Behaviour::Gives(Arc::new(Value::clone));
    TestRegistry::default()
        .tool_with("echo", &any, echo)
        .tool_with("hang", &any, Behaviour::Hangs)
}

/// A tool, a question, and a tool.
fn asks_between_tools() -> Value {
    json!({
        "nodes": [
            tool("first", "echo"),
            {"id": "q", "type": "core:HumanInput",
                "configValues": {"title": "Continue?", "choices": ["yes"]}},
            tool("last", "echo"),
        ],
        "edges": [edge("first", "result", "q", "context"), edge("q", "answer", "last", "x")],
    })
}

/// Waits for the signal `go`, again and again.
fn waits_for_signals() -> Value {
    json!({"nodes": [
        {"id": "a", "type": "core:WaitSignal", "configValues": {"name": "go"}},
        {"id": "b", "type": "core:HumanInput", "configValues": {"title": "?", "choices": ["yes"]}},
        {"id": "c", "type": "core:WaitSignal", "configValues": {"name": "stop"}},
    ]})
}

fn waiting(kind: &Kind) -> bool {
    matches!(kind, Kind::NodeWaiting(_))
}

fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> Option<ErrorReason> {
    grpc_kit::reason(&answer.unwrap_err())
}

#[tokio::test]
async fn each_call_of_a_run_acts_for_its_starter_also_after_a_restart() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let run = world.by("ada").start(&asks_between_tools(), "").await;
    let run = run.unwrap();
    assert_eq!(run.principal, "ada");
    world.events_until(&run.run_id, waiting).await;
    let world = world.restart().await;
    // Another person's answer lets it continue, and it still acts for its starter.
    world.by("bob").answer(&run.run_id, "", "").await.unwrap();
    let outcome = world.outcome(&run.run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded, "{outcome:?}");
    let ada = Principal::new("ada").unwrap();
    assert_eq!(tools.callers_of("echo"), [ada.clone(), ada.clone()]);
    assert_eq!(world.run_of(&run.run_id).await.principal, "ada");

    let request = ForkRunRequest {
        run_id: run.run_id.clone(),
        ..ForkRunRequest::default()
    };
    let forked = world.by("bob").client.fork_run(request).await.unwrap();
    let forked = forked.into_inner().run.unwrap();
    assert_eq!(forked.principal, "bob", "a fork acts for its own caller");
}

#[tokio::test]
async fn a_call_in_flight_is_joined_after_a_restart_for_the_same_principal() {
    let tools = tools();
    let world = World::with_tools(tools.clone()).await;
    let run = world
        .by("ada")
        .start(&json!({"nodes": [tool("t", "hang")]}), "")
        .await;
    let run_id = run.unwrap().run_id;
    let dispatched = |kind: &Kind| matches!(kind, Kind::CallDispatched(_));
    world.events_until(&run_id, dispatched).await;
    let world = world.restart().await;
    tools.release("hang", json!("done"));
    let outcome = world.outcome(&run_id).await;
    assert_eq!(outcome.state(), RunState::Succeeded, "{outcome:?}");
    let callers = tools.callers_of("hang");
    assert!(
        callers.len() >= 2,
        "the call was requested again: {callers:?}"
    );
    assert!(
        callers.iter().all(|caller| caller.as_str() == "ada"),
        "{callers:?}"
    );
}

#[tokio::test]
async fn the_runs_below_act_for_the_starter_of_the_run_above() {
    let world = World::new().await;
    world
        .put(
            "below",
            &json!({"nodes": [{"id": "r", "type": "core:RandomNumber"}]}),
        )
        .await;
    let above = json!({"nodes": [{"id": "r", "type": "core:RunWorkflow",
        "configValues": {"workflowId": "below"}}]});
    let run = world.by("ada").start(&above, "").await.unwrap();
    world.outcome(&run.run_id).await;
    let mut runs = world.runs.clone();
    let list = runs.list_runs(ListRunsRequest::default()).await;
    let runs = list.unwrap().into_inner().runs;
    let principals: Vec<_> = runs.iter().map(|run| run.principal.as_str()).collect();
    assert_eq!(principals, ["ada", "ada"]);
}

#[tokio::test]
async fn a_request_id_of_another_principal_is_refused_and_its_answer_stays_unknown() {
    let world = World::new().await;
    let reused = Some(ErrorReason::RequestIdReused);
    let (ada, bob) = (world.by("ada"), world.by("bob"));
    let definition = waits_for_signals();
    let run = ada.start(&definition, "one").await.unwrap();
    assert_eq!(
        ada.start(&definition, "one").await.unwrap().run_id,
        run.run_id
    );
    assert_eq!(reason(bob.start(&definition, "one").await), reused);
    assert_eq!(
        reason(world.by("local").start(&definition, "one").await),
        reused
    );

    let put = PutWorkflowRequest {
        workflow_id: "w".to_owned(),
        definition_json: definition.to_string(),
        request_id: "put".to_owned(),
        ..PutWorkflowRequest::default()
    };
    ada.client.clone().put_workflow(put.clone()).await.unwrap();
    ada.client.clone().put_workflow(put.clone()).await.unwrap();
    assert_eq!(reason(bob.client.clone().put_workflow(put).await), reused);

    world.events_until(&run.run_id, waiting).await;
    ada.signal(&run.run_id, "s").await.unwrap();
    let wait_id = ada.wait_of(&run.run_id).await;
    assert!(!wait_id.is_empty());
    ada.answer(&run.run_id, "ada", "a").await.unwrap();
    // The log knows them after a restart too.
    let world = world.restart().await;
    let (ada, bob) = (world.by("ada"), world.by("bob"));
    assert!(ada.signal(&run.run_id, "s").await.unwrap());
    assert_eq!(reason(bob.signal(&run.run_id, "s").await), reused);
    let again = AnswerWaitRequest {
        run_id: run.run_id.clone(),
        wait_id: woken_by_answer(&world, &run.run_id).await,
        answer_json: json!("yes").to_string(),
        request_id: "a".to_owned(),
        ..AnswerWaitRequest::default()
    };
    let seen = ada.runs.clone().answer_wait(again.clone()).await;
    assert!(seen.unwrap().into_inner().replayed);
    assert_eq!(reason(bob.runs.clone().answer_wait(again).await), reused);
}

/// Returns the wait that an answer woke.
async fn woken_by_answer(world: &World, run_id: &str) -> String {
    let is_answer =
        |kind: &Kind| matches!(kind, Kind::NodeWoken(woken) if !woken.answered_by.is_empty());
    let events = world.events_until(run_id, is_answer).await;
    match events.last().and_then(|event| event.kind.clone()) {
        Some(Kind::NodeWoken(woken)) => woken.wait_id,
        other => panic!("the last event is {other:?}"),
    }
}

#[tokio::test]
async fn an_answer_is_that_of_its_caller_whatever_the_body_says() {
    let world = World::new().await;
    let run = world.by("ada").start(&asks(), "").await.unwrap();
    world.events_until(&run.run_id, waiting).await;
    let refused = world.by("bob").answer(&run.run_id, "ada", "").await;
    let violations = grpc_kit::violations(&refused.unwrap_err());
    assert_eq!(violations[0].0, "answered_by", "{violations:?}");
    world.by("bob").answer(&run.run_id, "", "").await.unwrap();
    let events = world.events(&run.run_id).await;
    let woken = events.iter().find_map(|event| match &event.kind {
        Some(Kind::NodeWoken(woken)) => Some((woken.answered_by.clone(), woken.principal.clone())),
        _ => None,
    });
    assert_eq!(woken, Some(("bob".to_owned(), "bob".to_owned())));
}

fn asks() -> Value {
    json!({"nodes": [{"id": "q", "type": "core:HumanInput",
        "configValues": {"title": "?", "choices": ["yes"]}}]})
}

/// A service that runs schedules, and the workflow that they run.
async fn with_schedules() -> World {
    let world = World::new().await;
    world.service.recover().await.unwrap();
    world
        .put(
            "work",
            &json!({"nodes": [{"id": "r", "type": "core:RandomNumber"}]}),
        )
        .await;
    world
}

#[tokio::test]
async fn a_schedule_acts_for_its_creator_and_not_for_its_trigger() {
    let world = with_schedules().await;
    assert_eq!(world.by("ada").put_schedule("s").await.creator, "ada");
    let time = world.by("bob").trigger("s", "once").await.unwrap();
    assert_eq!(time.triggered_by, "bob");
    assert_eq!(world.run_of(&time.run_id).await.principal, "ada");
    let again = world.by("bob").trigger("s", "once").await.unwrap();
    assert_eq!(again.run_id, time.run_id);
    let other = world.by("eve").trigger("s", "once").await;
    assert_eq!(reason(other), Some(ErrorReason::RequestIdReused));
    let world = world.restart().await;
    let time = world.by("bob").trigger("s", "").await.unwrap();
    assert_eq!(world.run_of(&time.run_id).await.principal, "ada");
    // To store it is to be its creator.
    assert_eq!(world.by("eve").put_schedule("s").await.creator, "eve");
    let time = world.by("bob").trigger("s", "").await.unwrap();
    assert_eq!(world.run_of(&time.run_id).await.principal, "eve");
    assert_eq!(world.by("local").put_schedule("t").await.creator, "local");
}

#[tokio::test]
async fn a_schedule_whose_creator_lost_its_rights_is_paused_with_the_reason() {
    let world = with_schedules().await;
    let ada = world.by("ada");
    for (id, left) in [("reader", &[Permission::Read][..]), ("gone", &[])] {
        ada.put_schedule(id).await;
        world.registry.identities.set("ada", left);
        let time = world.by("bob").trigger(id, "").await.unwrap();
        assert_eq!(
            (time.run_id.as_str(), time.reason()),
            ("", ScheduleNotRunReason::Refused)
        );
        let paused = ada.schedule(id).await;
        assert!(paused.paused, "{paused:?}");
        assert!(paused.pause_reason.contains("`ada`"), "{paused:?}");
        assert!(paused.pause_reason.contains("`invoke`"), "{paused:?}");
        assert_eq!(time.message, paused.pause_reason);
        world.registry.identities.set("ada", &[Permission::Invoke]);
    }
    let world = world.restart().await;
    let mut schedules = world.by("ada").schedules;
    let listed = schedules.list_schedules(ListSchedulesRequest::default());
    let listed = listed.await.unwrap().into_inner().schedules;
    assert!(
        listed
            .iter()
            .all(|schedule| !schedule.pause_reason.is_empty())
    );
    let schedule_id = "reader".to_owned();
    let request = ResumeScheduleRequest { schedule_id };
    let resumed = schedules.resume_schedule(request).await.unwrap();
    let resumed = resumed.into_inner().schedule.unwrap();
    assert_eq!((resumed.paused, resumed.pause_reason.as_str()), (false, ""));
    let time = world.by("bob").trigger("reader", "").await.unwrap();
    assert_eq!(world.run_of(&time.run_id).await.principal, "ada");
}

#[tokio::test]
async fn a_time_waits_while_the_registry_that_knows_the_creator_is_away() {
    let world = with_schedules().await;
    let ada = world.by("ada");
    ada.put_schedule("s").await;
    world.registry.identities.be_away(true);
    let time = ada.trigger("s", "t").await.unwrap();
    assert_eq!((time.run_id.as_str(), time.reason), ("", 0));
    assert!(!ada.schedule("s").await.paused);
    world.registry.identities.be_away(false);
    loop {
        let time = ada.trigger("s", "t").await.unwrap();
        if !time.run_id.is_empty() {
            assert_eq!(world.run_of(&time.run_id).await.principal, "ada");
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_time_shows_its_run_to_callers_that_see_the_run() {
    let world = with_schedules().await;
    let ada = world.reaching("ada", Reach::Own);
    ada.put_schedule("s").await;
    let time = ada.trigger("s", "once").await.unwrap();
    assert_eq!(world.run_of(&time.run_id).await.principal, "ada");
    world.outcome(&time.run_id).await;
    let seen = (time.run_id.as_str(), RunState::Succeeded);
    for (caller, expected) in [
        (ada, seen),
        (world.reaching("bob", Reach::Tenant), seen),
        (
            world.reaching("bob", Reach::Own),
            ("", RunState::Unspecified),
        ),
    ] {
        let request = ListScheduleTimesRequest {
            schedule_id: "s".to_owned(),
            ..ListScheduleTimesRequest::default()
        };
        let listed = caller.schedules.clone().list_schedule_times(request).await;
        let times = listed.unwrap().into_inner().times;
        assert_eq!((times[0].run_id.as_str(), times[0].run_state()), expected);
    }
    let time = world.reaching("bob", Reach::Own).trigger("s", "two").await;
    assert_eq!(time.unwrap().run_id, "");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_advanced_leaves_those_of_other_tenants_alone() {
    let world = with_schedules().await;
    let tenants = ["acme", "globex", "zeta"];
    world.registry.identities.be_away(true);
    for tenant in tenants {
        let caller = world.by(&format!("{tenant}/ada"));
        let request = PutWorkflowRequest {
            workflow_id: "work".to_owned(),
            definition_json: json!({"nodes": [{"id": "r", "type": "core:RandomNumber"}]})
                .to_string(),
            ..PutWorkflowRequest::default()
        };
        caller.client.clone().put_workflow(request).await.unwrap();
        caller.put_schedule("s").await;
        let time = caller.trigger("s", "t").await.unwrap();
        assert_eq!(time.run_id, "");
    }
    // The schedules around the one in the middle have a time that cannot be read.
    let path = world.directory.path().join("data/workflow-execution.db");
    let options = SqliteConnectOptions::new().filename(path);
    let mut door = options.connect().await.unwrap();
    let damage = "INSERT INTO schedule_times (tenant, schedule_id, time, state, reason, message, run_id, manual, \
                  request_id, principal) SELECT tenant, schedule_id, 1, 0, -1, '', '', 1, '', '' \
                  FROM schedule_times WHERE tenant IN ('acme', 'zeta')";
    let damaged = sqlx::query(damage).execute(&mut door).await.unwrap();
    assert_eq!(damaged.rows_affected(), 2);
    world.registry.identities.be_away(false);
    let caller = world.by("globex/ada");
    let run_id = loop {
        let request = ListScheduleTimesRequest {
            schedule_id: "s".to_owned(),
            ..ListScheduleTimesRequest::default()
        };
        let listed = caller.schedules.clone().list_schedule_times(request).await;
        let times = listed.unwrap().into_inner().times;
        if !times[0].run_id.is_empty() {
            break times[0].run_id.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(world.run_of(&run_id).await.principal, "globex/ada");
}
