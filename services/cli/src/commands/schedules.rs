//! `tavern schedules`.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use contracts::tavern::workflow::v1::schedule::Timing;
use contracts::tavern::workflow::v1::schedule_service_client::ScheduleServiceClient;
use contracts::tavern::workflow::v1::{
    CronTiming, DeleteScheduleRequest, ListScheduleTimesRequest, ListSchedulesRequest,
    PauseScheduleRequest, PutScheduleRequest, ResumeScheduleRequest, Schedule, ScheduleCatchUp,
    ScheduleOverlap, ScheduleTime, TriggerScheduleRequest,
};

use super::{Remote, json, list, print, print_table, refusal, words};
use crate::timeline::name;

/// The commands about schedules.
#[derive(Subcommand)]
pub enum Command {
    /// List schedules by id.
    List,
    /// Store a schedule, in place of the schedule with the same id.
    Put(Put),
    /// Delete a schedule.
    Delete {
        /// The id of the schedule.
        schedule_id: String,
    },
    /// Pause a schedule.
    Pause {
        /// The id of the schedule.
        schedule_id: String,
    },
    /// Resume a schedule.
    Resume {
        /// The id of the schedule.
        schedule_id: String,
    },
    /// Run a schedule now.
    Trigger {
        /// The id of the schedule.
        schedule_id: String,
        /// The request id; the same id returns the same firing.
        #[arg(long)]
        request_id: Option<String>,
    },
    /// List the last 100 firings of a schedule and their outcomes.
    Times {
        /// The id of the schedule.
        schedule_id: String,
    },
}

/// A schedule to store.
#[derive(Args)]
pub struct Put {
    /// The id of the schedule.
    schedule_id: String,
    /// The id of the workflow.
    workflow_id: String,
    /// The inputs: a JSON object.
    #[arg(default_value = "{}")]
    inputs: String,
    #[command(flatten)]
    timing: Firing,
    /// The IANA time zone of the cron expression. Default: UTC.
    #[arg(long, requires = "cron")]
    zone: Option<String>,
    /// The action while an earlier run continues.
    #[arg(long, default_value = "skip", value_parser = words::parser(ScheduleOverlap::as_str_name))]
    overlap: ScheduleOverlap,
    /// The missed firings to make up for.
    #[arg(long, default_value = "latest", value_parser = words::parser(ScheduleCatchUp::as_str_name))]
    catch_up: ScheduleCatchUp,
}

/// The timing of a schedule.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Firing {
    /// Run every so many seconds.
    #[arg(long, value_name = "SECONDS")]
    every: Option<u32>,
    /// Run by a cron expression of five fields.
    #[arg(long)]
    cron: Option<String>,
}

type Schedules = ScheduleServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut schedules = Schedules::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::List => list(&mut schedules, remote.json).await?,
            Self::Put(put) => {
                let request = PutScheduleRequest {
                    schedule: Some(put.schedule()),
                    etag: String::new(),
                };
                let stored = schedules.put_schedule(request).await.map_err(refused)?;
                show(stored.into_inner().schedule, remote.json)?;
            }
            Self::Delete { schedule_id } => {
                let request = DeleteScheduleRequest {
                    schedule_id,
                    etag: String::new(),
                };
                schedules.delete_schedule(request).await.map_err(refused)?;
            }
            Self::Pause { schedule_id } => {
                let request = PauseScheduleRequest { schedule_id };
                let paused = schedules.pause_schedule(request).await.map_err(refused)?;
                show(paused.into_inner().schedule, remote.json)?;
            }
            Self::Resume { schedule_id } => {
                let request = ResumeScheduleRequest { schedule_id };
                let resumed = schedules.resume_schedule(request).await.map_err(refused)?;
                show(resumed.into_inner().schedule, remote.json)?;
            }
            Self::Trigger {
                schedule_id,
                request_id,
            } => {
                let request = TriggerScheduleRequest {
                    schedule_id,
                    request_id: request_id.unwrap_or_default(),
                };
                let added = schedules.trigger_schedule(request).await.map_err(refused)?;
                let time = added.into_inner().time.context("the answer has no time")?;
                print_times(&[time], remote.json)?;
            }
            Self::Times { schedule_id } => {
                let request = ListScheduleTimesRequest {
                    schedule_id,
                    ..ListScheduleTimesRequest::default()
                };
                let page = schedules
                    .list_schedule_times(request)
                    .await
                    .map_err(refused)?;
                print_times(&page.into_inner().times, remote.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Put {
    fn schedule(self) -> Schedule {
        let timing = match (self.timing.every, self.timing.cron) {
            (_, Some(expression)) => Timing::Cron(CronTiming {
                expression,
                time_zone: self.zone.unwrap_or_default(),
            }),
            (every, None) => Timing::Interval(prost_types::Duration {
                seconds: every.unwrap_or_default().into(),
                nanos: 0,
            }),
        };
        Schedule {
            schedule_id: self.schedule_id,
            workflow_id: self.workflow_id,
            inputs_json: self.inputs,
            timing: Some(timing),
            overlap: self.overlap.into(),
            catch_up: self.catch_up.into(),
            ..Schedule::default()
        }
    }
}

async fn list(schedules: &mut Schedules, as_json: bool) -> anyhow::Result<()> {
    let head = ["SCHEDULE", "WORKFLOW", "TIMING", "CREATOR", "NEXT"];
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListSchedulesRequest {
            page_token,
            ..ListSchedulesRequest::default()
        };
        let page = schedules.list_schedules(request).await?.into_inner();
        Ok((page.schedules, page.next_page_token))
    })
    .await
}

fn row(schedule: &Schedule) -> [String; 5] {
    let timing = match &schedule.timing {
        Some(Timing::Interval(every)) => format!("every {every}"),
        Some(Timing::Cron(cron)) => format!("{} {}", cron.expression, cron.time_zone),
        None => String::new(),
    };
    let next = match schedule.paused {
        true if schedule.pause_reason.is_empty() => "paused".to_owned(),
        true => format!("paused: {}", schedule.pause_reason),
        false => schedule
            .next_time
            .map_or_else(String::new, |next| next.to_string()),
    };
    [
        schedule.schedule_id.clone(),
        schedule.workflow_id.clone(),
        timing.trim_end().to_owned(),
        schedule.creator.clone(),
        next,
    ]
}

fn show(schedule: Option<Schedule>, as_json: bool) -> anyhow::Result<()> {
    let schedule = schedule.context("the answer has no schedule")?;
    match as_json {
        true => json::print_line(&schedule)?,
        false => print(&format!("{}\n", row(&schedule).join("  "))),
    }
    Ok(())
}

fn print_times(times: &[ScheduleTime], as_json: bool) -> anyhow::Result<()> {
    let head = ["TIME", "STATE", "RUN", "OUTCOME"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    for time in times {
        if as_json {
            json::print_line(time)?;
            continue;
        }
        let reason = name(time.reason().as_str_name(), "SCHEDULE_NOT_RUN_REASON_");
        let outcome = match time.run_id.as_str() {
            "" if time.reason == 0 => String::new(),
            "" => format!("{reason} {}", time.message),
            _ => name(time.run_state().as_str_name(), "RUN_STATE_"),
        };
        rows.push(vec![
            time.time.map_or_else(String::new, |time| time.to_string()),
            name(time.state().as_str_name(), "SCHEDULE_TIME_STATE_"),
            time.run_id.clone(),
            outcome.trim_end().to_owned(),
        ]);
    }
    if !as_json {
        print_table(&rows, None);
    }
    Ok(())
}
