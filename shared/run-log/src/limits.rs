//! The bounds of the log, and their checks.

use crate::{NewEvent, NewRun, error::Violation};

/// The largest payload of one event, in bytes. Larger values belong into a blob store.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// The most events of one append.
pub const MAX_EVENTS_PER_APPEND: usize = 1024;
/// The largest payload of all events of one append together, in bytes.
pub const MAX_APPEND_BYTES: usize = 8 << 20;
/// The largest `meta` of a run, in bytes.
pub const MAX_META_BYTES: usize = 256 << 10;
/// The longest kind, subject, conversation and request scope of a run, in bytes.
pub const MAX_TEXT_BYTES: usize = 512;
/// The most events of one read.
pub const MAX_READ_EVENTS: usize = 1000;
/// The bytes of payload at which one read stops; it returns at least one event.
pub const MAX_READ_BYTES: usize = 4 << 20;
/// The bytes of payload at which a follower's page stops; it has at least one event. A slow reader
/// holds as many.
pub const MAX_FOLLOW_BYTES: usize = 8 << 10;
/// The most runs of one page of a list.
pub const MAX_PAGE_RUNS: usize = 500;

/// Returns the bytes of all payloads, or names each part of `events` that is too large.
pub(crate) fn check_events(events: &[NewEvent]) -> Result<usize, Vec<Violation>> {
    let mut violations = Vec::new();
    if events.len() > MAX_EVENTS_PER_APPEND {
        violations.push(too_large(
            "events",
            events.len(),
            MAX_EVENTS_PER_APPEND,
            "events",
        ));
    }
    for (index, event) in events.iter().enumerate() {
        if event.payload.len() > MAX_PAYLOAD_BYTES {
            let place = format!("events[{index}].payload");
            violations.push(too_large(
                place,
                event.payload.len(),
                MAX_PAYLOAD_BYTES,
                "bytes",
            ));
        }
    }
    let bytes = events.iter().map(|event| event.payload.len()).sum();
    if bytes > MAX_APPEND_BYTES {
        violations.push(too_large(
            "events",
            bytes,
            MAX_APPEND_BYTES,
            "bytes of payload",
        ));
    }
    if violations.is_empty() {
        Ok(bytes)
    } else {
        Err(violations)
    }
}

/// Names each part of `run` and its first `events` that is not accepted.
pub(crate) fn check_run(run: &NewRun, events: &[NewEvent]) -> Result<usize, Vec<Violation>> {
    let mut violations = Vec::new();
    let scope = run.request.as_ref().map_or("", |request| &request.scope);
    for (place, text) in [
        ("kind", run.kind.as_str()),
        ("subject", &run.subject),
        ("conversation", &run.conversation),
        ("scope", scope),
    ] {
        if text.len() > MAX_TEXT_BYTES {
            violations.push(too_large(place, text.len(), MAX_TEXT_BYTES, "bytes"));
        }
        if text.contains('\0') {
            let problem = "has a NUL, which a database does not store in a text".to_owned();
            violations.push(Violation {
                place: place.to_owned(),
                problem,
            });
        }
    }
    if run.kind.is_empty() {
        let problem = "is empty; name the sort of run".to_owned();
        violations.push(Violation {
            place: "kind".to_owned(),
            problem,
        });
    }
    if run.meta.len() > MAX_META_BYTES {
        violations.push(too_large("meta", run.meta.len(), MAX_META_BYTES, "bytes"));
    }
    match check_events(events) {
        Ok(bytes) if violations.is_empty() => Ok(bytes + run.meta.len()),
        Ok(_) => Err(violations),
        Err(more) => {
            violations.extend(more);
            Err(violations)
        }
    }
}

fn too_large(place: impl Into<String>, is: usize, most: usize, unit: &str) -> Violation {
    let problem = format!("has {is} {unit}; at most {most} are accepted");
    Violation {
        place: place.into(),
        problem,
    }
}
