//! The definition of a schedule, checked and read.

use std::time::Duration;

use contracts::tavern::workflow::v1::schedule::Timing as Asked;
use contracts::tavern::workflow::v1::{Schedule, ScheduleCatchUp, ScheduleOverlap};
use core_types::{ScheduleId, WorkflowId};
use grpc_kit::Failure;
use schedules::{CatchUp, Overlap, Timing, TimingError};
use tonic::Status;

use workflow_domain::interface::read_inputs;

/// Checks the schedule of a request.
pub(super) fn check(schedule: &Schedule) -> Result<Timing, Status> {
    let mut problems = Failure::invalid_fields();
    if let Err(error) = ScheduleId::new(&schedule.schedule_id) {
        problems.add_violation("schedule.schedule_id", error.to_string());
    }
    if let Err(error) = WorkflowId::new(&schedule.workflow_id) {
        problems.add_violation("schedule.workflow_id", error.to_string());
    }
    for violation in read_inputs(&schedule.inputs_json).err().unwrap_or_default() {
        let field = format!("schedule.inputs_json{}", violation.pointer);
        problems.add_violation(field, violation.message);
    }
    let timing = read_timing(schedule)
        .map_err(|mistakes| {
            for (field, mistake) in mistakes {
                problems.add_violation(format!("schedule.{field}"), mistake);
            }
        })
        .ok();
    match timing {
        Some(timing) if problems.is_empty() => Ok(timing),
        _ => Err(problems.into_status()),
    }
}

/// Reads the timing of a stored schedule. A time zone may have disappeared since it was stored.
pub(super) fn timing(schedule: &Schedule) -> Result<Timing, Failure> {
    read_timing(schedule).map_err(|mistakes| {
        let mut failure = Failure::invalid_fields();
        for (field, mistake) in mistakes {
            failure.add_violation(field, mistake);
        }
        failure
    })
}

pub(super) fn overlap(schedule: &Schedule) -> Overlap {
    match schedule.overlap() {
        ScheduleOverlap::Unspecified | ScheduleOverlap::Skip => Overlap::Skip,
        ScheduleOverlap::BufferOne => Overlap::BufferOne,
        ScheduleOverlap::BufferAll => Overlap::BufferAll,
        ScheduleOverlap::CancelOther => Overlap::CancelOther,
        ScheduleOverlap::Allow => Overlap::Allow,
    }
}

pub(super) fn catch_up(schedule: &Schedule) -> CatchUp {
    match schedule.catch_up() {
        ScheduleCatchUp::Unspecified | ScheduleCatchUp::Latest => CatchUp::Latest,
        ScheduleCatchUp::All => CatchUp::All,
        ScheduleCatchUp::None => CatchUp::None,
    }
}

fn read_timing(schedule: &Schedule) -> Result<Timing, Vec<(&'static str, String)>> {
    match &schedule.timing {
        None => Err(vec![("timing", "is missing".to_owned())]),
        Some(Asked::Interval(interval)) => {
            let interval = Duration::try_from(*interval).unwrap_or_default();
            let timing = Timing::interval(interval);
            timing.map_err(|error| vec![("interval", error.to_string())])
        }
        Some(Asked::Cron(cron)) => {
            let timing = Timing::cron(&cron.expression, &cron.time_zone);
            let mistakes = |errors: Vec<TimingError>| errors.into_iter().map(of_cron).collect();
            timing.map_err(mistakes)
        }
    }
}

fn of_cron(error: TimingError) -> (&'static str, String) {
    let field = match error {
        TimingError::TimeZone(_) => "cron.time_zone",
        TimingError::TooShort | TimingError::Expression(_) | TimingError::Never => {
            "cron.expression"
        }
    };
    (field, error.to_string())
}
