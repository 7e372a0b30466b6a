//! Runs that start by the clock, with services killed meanwhile.

use std::collections::HashSet;

use contracts::tavern::registry::v1::{CreateKeyRequest, RevokeKeysRequest};
use contracts::tavern::run::v1::ListRunsRequest;
use contracts::tavern::workflow::v1::schedule::Timing;
use contracts::tavern::workflow::v1::schedule_service_client::ScheduleServiceClient;
use contracts::tavern::workflow::v1::{
    GetScheduleRequest, ListScheduleTimesRequest, PutScheduleRequest, PutWorkflowRequest, Schedule,
    ScheduleCatchUp, ScheduleOverlap, ScheduleTime, ScheduleTimeState,
};
use serde_json::json;
use testkit::{Stack, eventually};

/// Waits until `count` runs were started, and returns all times of the schedule.
async fn until_started(stack: &Stack, count: usize) -> anyhow::Result<Vec<ScheduleTime>> {
    eventually("the runs of the schedule", || async {
        let transport = grpc_kit::remote(&grpc_kit::ClientSettings::to(stack.address())).ok()?;
        let request = ListScheduleTimesRequest {
            schedule_id: "often".to_owned(),
            page_size: 500,
            page_token: String::new(),
        };
        let mut client = ScheduleServiceClient::new(transport.outermost());
        let listed = client.list_schedule_times(request).await.ok()?;
        let times = listed.into_inner().times;
        let started = times.iter().filter(|time| !time.run_id.is_empty());
        (started.count() >= count).then_some(times)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_time_of_a_schedule_has_one_run_over_kills() -> anyhow::Result<()> {
    let mut stack = Stack::all_in_one().await?;
    let request = PutWorkflowRequest {
        workflow_id: "work".to_owned(),
        definition_json: json!({"nodes": [{"id": "r", "type": "core:RandomNumber"}]}).to_string(),
        ..PutWorkflowRequest::default()
    };
    stack.workflow().put_workflow(request).await?;
    let schedule = Schedule {
        schedule_id: "often".to_owned(),
        workflow_id: "work".to_owned(),
        timing: Some(Timing::Interval(prost_types::Duration {
            seconds: 1,
            nanos: 0,
        })),
        overlap: ScheduleOverlap::Allow.into(),
        catch_up: ScheduleCatchUp::All.into(),
        ..Schedule::default()
    };
    let transport = grpc_kit::remote(&grpc_kit::ClientSettings::to(stack.address()))?;
    let request = PutScheduleRequest {
        schedule: Some(schedule),
        etag: String::new(),
    };
    ScheduleServiceClient::new(transport.outermost())
        .put_schedule(request)
        .await?;
    let mut times = Vec::new();
    for kills in 1..=5 {
        times = until_started(&stack, 2 * kills).await?;
        stack.kill()?;
        stack.restart().await?;
    }
    let settled = times.len();
    let times = until_started(&stack, settled).await?;
    let mut seconds: Vec<_> = times.iter().filter_map(|time| time.time).collect();
    seconds.reverse();
    for pair in seconds.windows(2) {
        assert_eq!(pair[0].seconds + 1, pair[1].seconds, "no time is left out");
    }
    let not_run = |time: &&ScheduleTime| time.state() == ScheduleTimeState::NotRun;
    assert_eq!(times.iter().filter(not_run).count(), 0);
    let request = ListRunsRequest {
        page_size: 500,
        ..ListRunsRequest::default()
    };
    let runs = stack.runs().list_runs(request).await?.into_inner().runs;
    let names: HashSet<_> = runs.iter().map(|run| run.request_id.as_str()).collect();
    assert_eq!(names.len(), runs.len(), "no time has two runs");
    for time in times.iter().filter(|time| !time.run_id.is_empty()) {
        assert!(runs.iter().any(|run| run.run_id == time.run_id));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_pauses_once_the_keys_of_its_creator_are_revoked() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    let request = CreateKeyRequest {
        principal: "ada".to_owned(),
        roles: vec!["developer".to_owned()],
        ..CreateKeyRequest::default()
    };
    let created = stack.identities().create_key(request).await?.into_inner();
    let client_with =
        |key: &str| ScheduleServiceClient::new(stack.transport_with(Some(key)).outermost());
    let schedule = Schedule {
        schedule_id: "often".to_owned(),
        workflow_id: "price_list".to_owned(),
        inputs_json: json!({"prices": [1]}).to_string(),
        timing: Some(Timing::Interval(prost_types::Duration {
            seconds: 1,
            nanos: 0,
        })),
        ..Schedule::default()
    };
    let request = PutScheduleRequest {
        schedule: Some(schedule),
        etag: String::new(),
    };
    let mut ada = client_with(&created.secret_key);
    ada.put_schedule(request).await?;
    eventually("a run of the creator", || async {
        let listed = stack.runs().list_runs(ListRunsRequest::default()).await;
        let runs = listed.ok()?.into_inner().runs;
        runs.iter().any(|run| run.principal == "ada").then_some(())
    })
    .await?;
    let request = RevokeKeysRequest {
        principal: "ada".to_owned(),
        ..RevokeKeysRequest::default()
    };
    stack.identities().revoke_keys(request).await?;
    let admin = client_with(std::fs::read_to_string(stack.key_file())?.trim());
    let paused = eventually("the schedule to pause", || async {
        let request = GetScheduleRequest {
            schedule_id: "often".to_owned(),
        };
        let found = admin.clone().get_schedule(request).await.ok()?;
        found.into_inner().schedule.filter(|found| found.paused)
    })
    .await?;
    assert_eq!(paused.creator, "ada");
    assert!(paused.pause_reason.contains("ada"), "{paused:?}");
    Ok(())
}
