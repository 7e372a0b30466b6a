//! The audit log, and the oracle that checks it: one record for each run, with the same verdict.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Mutex, PoisonError},
};

use contracts::tavern::sandbox::v1::{ExecuteResponse, verdict::Kind};
use tracing::{Event, Instrument, Subscriber, field::Field};
use tracing_subscriber::{
    Layer,
    filter::filter_fn,
    layer::{Context, Filter},
};

use crate::{
    oracle::secret,
    support::{class, verdict},
};

mod records;

/// A record by the names of its fields.
pub(crate) type Record = BTreeMap<String, String>;

/// The records that were captured and not yet checked.
static HEARD: Mutex<Vec<Record>> = Mutex::new(Vec::new());

struct Hearing;

impl<S: Subscriber> Layer<S> for Hearing {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut record = Record::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            let text = format!("{value:?}");
            // Strings come with their quotes, as a line of the log has them.
            let text = serde_json::from_str(&text).unwrap_or(text);
            record.insert(field.name().to_owned(), text);
        });
        heard().push(record);
    }
}

fn heard() -> std::sync::MutexGuard<'static, Vec<Record>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Captures the audit log from here on.
pub(crate) fn listen() {
    let own = filter_fn(|about| about.target() == telemetry::AUDIT_TARGET);
    telemetry::init_for_tests_with(
        Hearing.with_filter(Box::new(own) as Box<dyn Filter<_> + Send + Sync>),
    );
}

/// Makes a call in a trace of its own, whose id identifies its records.
pub(crate) async fn traced<T>(call: impl Future<Output = T>) -> (T, String) {
    let span = tracing::info_span!("call");
    let trace = telemetry::context::trace_id(&span);
    assert_eq!(trace.len(), 32, "tests have traces");
    (call.instrument(span).await, trace)
}

/// Takes the captured records of a trace.
pub(crate) fn of_trace(trace: &str) -> Vec<Record> {
    let own = |record: &mut Record| record.get("trace_id").is_some_and(|id| id == trace);
    let records: Vec<Record> = heard().extract_if(.., own).collect();
    for record in &records {
        tells_nothing_it_must_not(record);
    }
    records
}

/// The record of the end of the one run in a trace, after the record of its start.
#[track_caller]
pub(crate) fn the_only(trace: &str) -> Record {
    let records = of_trace(trace);
    let both: Result<[Record; 2], _> = records.clone().try_into();
    let [start, end] = &both.unwrap();
    assert_eq!(start["event"], "started", "O7: {records:?}");
    for name in [
        "what",
        "caller_id",
        "runtime",
        "request_id",
        "source_sha256",
    ] {
        assert_eq!(start.get(name), end.get(name), "O7: {records:?}");
    }
    end.clone()
}

/// O2 and more: no record has the secret, or a character that would end its line.
#[track_caller]
fn tells_nothing_it_must_not(record: &Record) {
    let secret = secret();
    for (name, text) in record {
        assert!(
            !text.contains(&secret),
            "O2: the record's {name} has the secret"
        );
        assert!(!text.contains(char::is_control), "{name} is {text:?}");
    }
}

/// O7: the trace has one record, which agrees with the answer. A replayed answer has none.
#[track_caller]
pub(crate) fn one_record(trace: &str, what: &str, response: &ExecuteResponse) {
    let record = &the_only(trace);
    let class = class(response);
    let class = class.split(' ').next();
    let fields = ["what", "event", "verdict"].map(|name| record.get(name).map(String::as_str));
    assert_eq!(fields, [Some(what), Some("ended"), class], "O7: {record:?}");
    let figures = ["limit", "observed", "code"].map(|name| number(record, name));
    assert_eq!(figures, figures_of(verdict(response)), "O7: {record:?}");
    let usage = response.usage.as_ref().unwrap();
    assert_eq!(number(record, "memory_bytes"), Some(usage.max_memory_bytes));
    assert_eq!(record["warm_start"], usage.warm_start.to_string());
}

pub(crate) fn number(record: &Record, name: &str) -> Option<u64> {
    Some(record.get(name)?.parse().unwrap())
}

/// The limit, the observed value, and the code of a verdict.
fn figures_of(verdict: &Kind) -> [Option<u64>; 3] {
    let milliseconds = |time: Option<prost_types::Duration>| {
        let time = time.unwrap();
        u64::try_from(time.seconds * 1000 + i64::from(time.nanos / 1_000_000)).ok()
    };
    let code = |code: i32| [None, None, u64::try_from(code).ok()];
    match verdict.clone() {
        Kind::Exited(exited) => code(exited.code),
        Kind::Signalled(signalled) => code(signalled.signal),
        Kind::ForbiddenSyscall(forbidden) => code(forbidden.signal),
        Kind::LauncherFailure(failure) => code(failure.errno),
        Kind::Wall(wall) => [milliseconds(wall.limit), milliseconds(wall.observed), None],
        Kind::Cpu(cpu) => [milliseconds(cpu.limit), milliseconds(cpu.observed), None],
        Kind::Memory(it) => [Some(it.limit_bytes), Some(it.observed_bytes), None],
        Kind::Output(it) => [Some(it.limit_bytes), Some(it.observed_bytes), None],
        Kind::Processes(it) => [Some(it.limit.into()), Some(it.observed.into()), None],
        Kind::Disk(it) if it.observed_files >= it.limit_files => {
            [Some(it.limit_files), Some(it.observed_files), None]
        }
        Kind::Disk(it) => [Some(it.limit_bytes), Some(it.observed_bytes), None],
        Kind::NetworkDenied(_) | Kind::Policy(_) | Kind::Cancelled(_) => [None; 3],
    }
}
