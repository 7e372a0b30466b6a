//! Runs that start by the clock (rule W43).

use std::collections::HashSet;
use std::time::Duration;

use contracts::tavern::common::v1::{ErrorReason, RunState};
use contracts::tavern::run::v1::{CancelRunRequest, GetRunRequest};
use contracts::tavern::workflow::v1::schedule::Timing;
use contracts::tavern::workflow::v1::schedule_service_client::ScheduleServiceClient;
use contracts::tavern::workflow::v1::{
    CronTiming, DeleteScheduleRequest, DeleteWorkflowRequest, GetScheduleRequest,
    ListScheduleTimesRequest, ListSchedulesRequest, PauseScheduleRequest, PutScheduleRequest,
    PutWorkflowRequest, ResumeScheduleRequest, Schedule, ScheduleCatchUp, ScheduleNotRunReason,
    ScheduleOverlap, ScheduleTime, ScheduleTimeState, TriggerScheduleRequest,
};
use core_types::Clock;
use grpc_kit::Outbound;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::support::*;

const HOUR: u64 = 60 * 60;

fn every(seconds: u64) -> Option<Timing> {
    let interval = Duration::from_secs(seconds).try_into().unwrap();
    Some(Timing::Interval(interval))
}

/// A schedule of the workflow `work` whose times are far apart.
fn schedule(id: &str) -> Schedule {
    Schedule {
        schedule_id: id.to_owned(),
        workflow_id: "work".to_owned(),
        timing: every(366 * 24 * HOUR),
        ..Schedule::default()
    }
}

/// A workflow that ends at once.
fn quick() -> Value {
    json!({"nodes": [{"id": "r", "type": "core:RandomNumber"}]})
}

/// A workflow that ends when it is cancelled.
fn endless() -> Value {
    json!({"nodes": [{"id": "w", "type": "core:WaitSignal", "configValues": {"name": "go"}}]})
}

/// A service that runs schedules, and the workflow that they run.
async fn world(work: &Value) -> World {
    let world = World::new().await;
    world.service.recover().await.unwrap();
    let request = PutWorkflowRequest {
        workflow_id: "work".to_owned(),
        definition_json: work.to_string(),
        ..PutWorkflowRequest::default()
    };
    world.client.clone().put_workflow(request).await.unwrap();
    world
}

impl World {
    fn schedules(&self) -> ScheduleServiceClient<Outbound> {
        ScheduleServiceClient::new(grpc_kit::local(&self.service.services()).outermost())
    }

    async fn put_schedule(&self, schedule: Schedule, etag: &str) -> Result<Schedule, Status> {
        let request = PutScheduleRequest {
            schedule: Some(schedule),
            etag: etag.to_owned(),
        };
        let stored = self.schedules().put_schedule(request).await?;
        Ok(stored.into_inner().schedule.unwrap())
    }

    async fn trigger(&self, id: &str, request_id: &str) -> ScheduleTime {
        let request = TriggerScheduleRequest {
            schedule_id: id.to_owned(),
            request_id: request_id.to_owned(),
        };
        let added = self.schedules().trigger_schedule(request).await.unwrap();
        added.into_inner().time.unwrap()
    }

    async fn times(&self, id: &str) -> Vec<ScheduleTime> {
        let request = ListScheduleTimesRequest {
            schedule_id: id.to_owned(),
            ..ListScheduleTimesRequest::default()
        };
        let page = self.schedules().list_schedule_times(request).await.unwrap();
        page.into_inner().times
    }

    /// Waits until the times of a schedule meet `enough`.
    async fn until_times(
        &self,
        id: &str,
        enough: impl Fn(&[ScheduleTime]) -> bool,
    ) -> Vec<ScheduleTime> {
        let reached = async {
            loop {
                let times = self.times(id).await;
                if enough(&times) {
                    return times;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, reached).await.unwrap()
    }

    async fn stop_run(&self, run_id: &str) {
        let request = CancelRunRequest {
            run_id: run_id.to_owned(),
            reason: "enough".to_owned(),
        };
        self.runs.clone().cancel_run(request).await.unwrap();
    }
}

fn started(times: &[ScheduleTime]) -> Vec<&ScheduleTime> {
    let started = |time: &&ScheduleTime| time.state() == ScheduleTimeState::Started;
    times.iter().filter(started).collect()
}

#[tokio::test]
async fn each_time_starts_one_run_that_is_named_after_it() {
    let world = world(&quick()).await;
    let asked = Schedule {
        timing: every(1),
        overlap: ScheduleOverlap::Allow.into(),
        ..schedule("often")
    };
    world.put_schedule(asked, "").await.unwrap();
    let times = world
        .until_times("often", |times| started(times).len() >= 3)
        .await;
    let mut runs = HashSet::new();
    for time in started(&times) {
        let run_id = time.run_id.clone();
        let run = world.runs.clone().get_run(GetRunRequest { run_id }).await;
        let run = run.unwrap().into_inner().run.unwrap();
        let utc = time.time.unwrap().to_string();
        assert_eq!(run.request_id, format!("schedule/often/{utc}"));
        assert_eq!(time.time.unwrap().nanos, 0);
        assert!(runs.insert(run.run_id), "no run belongs to two times");
    }
}

#[tokio::test]
async fn after_a_stop_the_latest_time_is_run_and_the_others_are_recorded() {
    let world = world(&quick()).await;
    let hourly = Schedule {
        timing: every(HOUR),
        ..schedule("hourly")
    };
    world.put_schedule(hourly.clone(), "").await.unwrap();
    // Half an hour from now, so that no time comes while the test runs. Kathmandu is 5:45 ahead.
    let (now, _) = world.clock.now().seconds_and_nanos();
    let minute = (now / 60 + 45 + 30) % 60;
    let none = Schedule {
        catch_up: ScheduleCatchUp::None.into(),
        timing: Some(Timing::Cron(CronTiming {
            expression: format!("{minute} * * * *"),
            time_zone: "Asia/Kathmandu".to_owned(),
        })),
        ..schedule("none")
    };
    world.put_schedule(none, "").await.unwrap();
    let all = Schedule {
        schedule_id: "all".to_owned(),
        catch_up: ScheduleCatchUp::All.into(),
        overlap: ScheduleOverlap::BufferAll.into(),
        ..hourly
    };
    world.put_schedule(all, "").await.unwrap();
    world.clock.advance(3 * HOUR);
    let world = world.restart().await;
    let times = world
        .until_times("hourly", |times| !started(times).is_empty())
        .await;
    assert_eq!(times[0].state(), ScheduleTimeState::Started);
    assert_eq!(times[1].reason(), ScheduleNotRunReason::Missed);
    let range = times[1].last_time.unwrap().seconds - times[1].time.unwrap().seconds;
    assert_eq!(
        u64::try_from(range).unwrap(),
        HOUR,
        "two times in one record"
    );
    world
        .until_times("all", |times| started(times).len() >= 3)
        .await;
    let times = world.until_times("none", |times| !times.is_empty()).await;
    assert_eq!(started(&times).len(), 0, "{times:?}");
    assert_eq!(times[0].reason(), ScheduleNotRunReason::Missed);
}

#[tokio::test]
async fn a_time_that_overlaps_is_treated_as_its_policy_says() {
    use ScheduleNotRunReason::{Overlap, Unspecified};
    use ScheduleTimeState::{Buffered, NotRun, Started};
    let cases = [
        (
            ScheduleOverlap::Unspecified,
            [(Started, Unspecified), (NotRun, Overlap), (NotRun, Overlap)],
        ),
        (
            ScheduleOverlap::BufferOne,
            [
                (Started, Unspecified),
                (Buffered, Unspecified),
                (NotRun, Overlap),
            ],
        ),
        (
            ScheduleOverlap::BufferAll,
            [
                (Started, Unspecified),
                (Buffered, Unspecified),
                (Buffered, Unspecified),
            ],
        ),
        (ScheduleOverlap::Allow, [(Started, Unspecified); 3]),
    ];
    let world = world(&endless()).await;
    for (overlap, expected) in cases {
        let id = overlap.as_str_name();
        let asked = Schedule {
            overlap: overlap.into(),
            ..schedule(id)
        };
        world.put_schedule(asked, "").await.unwrap();
        let mut found = Vec::new();
        for _ in 0..3 {
            let time = world.trigger(id, "").await;
            found.push((time.state(), time.reason()));
        }
        assert_eq!(found, expected, "{id}");
    }
}

#[tokio::test]
async fn a_buffered_time_is_run_when_the_run_before_it_has_ended() {
    let world = world(&endless()).await;
    let asked = Schedule {
        overlap: ScheduleOverlap::BufferOne.into(),
        ..schedule("one")
    };
    world.put_schedule(asked, "").await.unwrap();
    let first = world.trigger("one", "").await;
    world.trigger("one", "").await;
    let world = world.restart().await;
    world.stop_run(&first.run_id).await;
    let times = world
        .until_times("one", |times| started(times).len() == 2)
        .await;
    assert_eq!(times[1].run_state(), RunState::Cancelled);
    assert!(times.iter().all(|time| time.manual));
}

#[tokio::test]
async fn a_later_time_cancels_the_run_of_an_earlier_one() {
    let world = world(&endless()).await;
    let asked = Schedule {
        overlap: ScheduleOverlap::CancelOther.into(),
        ..schedule("newest")
    };
    world.put_schedule(asked, "").await.unwrap();
    world.trigger("newest", "").await;
    world.trigger("newest", "").await;
    let times = world
        .until_times("newest", |times| started(times).len() == 2)
        .await;
    assert_eq!(times[1].run_state(), RunState::Cancelled);
}

#[tokio::test]
async fn a_repeated_trigger_returns_the_same_time() {
    let world = world(&quick()).await;
    world.put_schedule(schedule("s"), "").await.unwrap();
    let first = world.trigger("s", "again").await;
    assert_eq!(first.state(), ScheduleTimeState::Started);
    let second = world.trigger("s", "again").await;
    assert_eq!((first.time, first.run_id), (second.time, second.run_id));
    assert_eq!(world.times("s").await.len(), 1);
}

#[tokio::test]
async fn the_times_of_a_pause_are_recorded_and_not_run() {
    let world = world(&quick()).await;
    let asked = Schedule {
        timing: every(HOUR),
        ..schedule("s")
    };
    world.put_schedule(asked, "").await.unwrap();
    let (schedule_id, mut client) = ("s".to_owned(), world.schedules());
    let request = PauseScheduleRequest { schedule_id };
    let paused = client.pause_schedule(request).await.unwrap().into_inner();
    let paused = paused.schedule.unwrap();
    assert!(paused.paused && paused.next_time.is_none());
    world.clock.advance(5 * HOUR);
    assert_eq!(
        world.trigger("s", "").await.state(),
        ScheduleTimeState::Started
    );
    let schedule_id = "s".to_owned();
    let request = ResumeScheduleRequest { schedule_id };
    let resumed = client.resume_schedule(request).await.unwrap().into_inner();
    let resumed = resumed.schedule.unwrap();
    assert!(!resumed.paused && resumed.next_time.is_some());
    assert_eq!(resumed.etag, paused.etag);
    let times = world.times("s").await;
    assert_eq!(times.len(), 2, "{times:?}");
    assert_eq!(times[1].reason(), ScheduleNotRunReason::Paused);
    assert!(times[1].last_time.is_some());
}

#[tokio::test]
async fn a_refused_start_is_recorded_with_its_reason() {
    let world = world(&quick()).await;
    world.put_schedule(schedule("s"), "").await.unwrap();
    let request = DeleteWorkflowRequest {
        workflow_id: "work".to_owned(),
        etag: String::new(),
    };
    world.client.clone().delete_workflow(request).await.unwrap();
    let time = world.trigger("s", "").await;
    assert_eq!(time.state(), ScheduleTimeState::NotRun);
    assert_eq!(time.reason(), ScheduleNotRunReason::Refused);
    assert!(time.message.contains("work"), "{}", time.message);
}

#[tokio::test]
async fn schedules_are_stored_listed_replaced_and_deleted() {
    let world = world(&quick()).await;
    let mut client = world.schedules();
    for id in ["a", "b", "c"] {
        world.put_schedule(schedule(id), "").await.unwrap();
    }
    let mut request = ListSchedulesRequest {
        page_size: 2,
        ..ListSchedulesRequest::default()
    };
    let first = client.list_schedules(request.clone()).await.unwrap();
    request.page_token = first.into_inner().next_page_token;
    let second = client.list_schedules(request).await.unwrap().into_inner();
    let ids: Vec<_> = second
        .schedules
        .iter()
        .map(|s| s.schedule_id.as_str())
        .collect();
    assert_eq!((ids, second.next_page_token.as_str()), (vec!["c"], ""));
    let stored = world.put_schedule(schedule("a"), "").await.unwrap();
    let other = Schedule {
        timing: every(HOUR),
        ..schedule("a")
    };
    let error = world
        .put_schedule(other.clone(), "stale")
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::failure::reason(&error),
        Some(ErrorReason::EtagMismatch)
    );
    let replaced = world.put_schedule(other, &stored.etag).await.unwrap();
    assert_ne!(replaced.etag, stored.etag);
    assert_eq!(replaced.create_time, stored.create_time);
    let request = DeleteScheduleRequest {
        schedule_id: "a".to_owned(),
        etag: replaced.etag,
    };
    client.delete_schedule(request).await.unwrap();
    let schedule_id = "a".to_owned();
    let error = client
        .get_schedule(GetScheduleRequest { schedule_id })
        .await;
    let error = error.unwrap_err();
    assert_eq!(
        grpc_kit::failure::reason(&error),
        Some(ErrorReason::ScheduleNotFound)
    );
}

#[tokio::test]
async fn everything_wrong_with_a_schedule_is_named() {
    let world = world(&quick()).await;
    let wrong = Schedule {
        inputs_json: "[]".to_owned(),
        timing: Some(Timing::Cron(CronTiming {
            expression: "every day".to_owned(),
            time_zone: "Mars/Olympus".to_owned(),
        })),
        ..schedule("a/b")
    };
    let error = world.put_schedule(wrong, "").await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let violations = grpc_kit::violations(&error);
    let fields: Vec<_> = violations.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "schedule.schedule_id",
            "schedule.inputs_json",
            "schedule.cron.expression",
            "schedule.cron.time_zone",
        ]
    );
    for never in ["0 0 30 2 *", "0 9 31 4,6,9,11 *"] {
        let timing = CronTiming {
            expression: never.to_owned(),
            time_zone: String::new(),
        };
        let wrong = Schedule {
            timing: Some(Timing::Cron(timing)),
            ..schedule("s")
        };
        let error = world.put_schedule(wrong, "").await.unwrap_err();
        let violations = grpc_kit::violations(&error);
        assert_eq!(violations[0].0, "schedule.cron.expression", "{never}");
        assert!(violations[0].1.contains("has no time"), "{violations:?}");
    }
    let unknown = Schedule {
        workflow_id: "unknown".to_owned(),
        ..schedule("s")
    };
    let error = world.put_schedule(unknown, "").await.unwrap_err();
    assert_eq!(
        grpc_kit::failure::reason(&error),
        Some(ErrorReason::WorkflowNotFound)
    );
}
