//! Methods that answer with a stream: every message is shown when it comes, and all of them together
//! are the result.

use call_outcome::{CallOutcome, Category, Failure};
use contracts::tavern::common::v1::OutputStream;
use prost_reflect::DynamicMessage;
use run_events::Coalescer;
use serde_json::Value;
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::{heard::Heard, refusal};
use crate::dispatch::ResolvedCall;

/// The most that is kept of the messages for the result, in bytes of JSON. More is read and dropped,
/// so that the method comes to its end.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// What a method has answered so far.
#[derive(Default)]
struct Answer {
    messages: Vec<Value>,
    bytes: usize,
    coalescer: Coalescer<()>,
}

/// Reads a stream to its end.
pub(super) async fn read(
    service: &str,
    resolved: &ResolvedCall,
    heard: &Heard,
    mut stream: Streaming<DynamicMessage>,
) -> CallOutcome {
    let mut answer = Answer::default();
    let broken = loop {
        let message = tokio::select! {
            message = stream.message() => message,
            () = answer.coalescer.due() => {
                show(resolved, answer.coalescer.release(Instant::now()));
                continue;
            }
        };
        let value = match message {
            Ok(Some(message)) => super::outcome_of(&message),
            Ok(None) => break None,
            Err(status) => break Some(status),
        };
        match value {
            CallOutcome::Succeeded(value) => answer.take(value, resolved),
            malformed => return malformed,
        }
    };
    show(resolved, answer.coalescer.release(Instant::now()));
    match broken {
        Some(status) => answer.broken(service, resolved, heard, &status),
        None => answer.whole(resolved),
    }
}

impl Answer {
    fn take(&mut self, value: Value, resolved: &ResolvedCall) {
        let line = format!("{value}\n");
        self.bytes += line.len();
        if self.bytes <= MAX_KEPT_BYTES {
            self.messages.push(value);
        }
        show(resolved, self.coalescer.push((), &line, Instant::now()));
    }

    /// Returns how a call ended whose stream broke. After its first message no code means that nothing
    /// took effect.
    fn broken(
        &self,
        service: &str,
        resolved: &ResolvedCall,
        heard: &Heard,
        status: &Status,
    ) -> CallOutcome {
        if self.bytes == 0 || resolved.tool.may_repeat() {
            return refusal::of_status(service, resolved, status, heard.answered());
        }
        let what = format!("broke off its answer ('{}')", status.message());
        refusal::without_answer(
            service,
            resolved,
            Category::Dependency,
            "backend_broke_off",
            &what,
        )
    }

    fn whole(self, resolved: &ResolvedCall) -> CallOutcome {
        if self.bytes <= MAX_KEPT_BYTES {
            return CallOutcome::Succeeded(Value::Array(self.messages));
        }
        let message = format!(
            "{} did what it was asked, but its answer of {} bytes is larger than {MAX_KEPT_BYTES}; ask for \
             less at once",
            resolved.tool.id(),
            self.bytes
        );
        let failure = Failure::new(Category::Limit, "output_too_large", message);
        CallOutcome::Failed(failure.detail("bytes", self.bytes))
    }
}

fn show(resolved: &ResolvedCall, pieces: Vec<((), String)>) {
    for ((), text) in pieces {
        resolved.in_flight.output(OutputStream::Out, text);
    }
}
