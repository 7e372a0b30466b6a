//! Methods that answer with a stream: every message is shown when it comes, and all of them together
//! are the result.

use call_outcome::{CallOutcome, Category, Failure};
use prost_reflect::DynamicMessage;
use run_events::Coalescer;
use serde_json::Value;
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::{exchange::Exchange, refusal};
use crate::{
    dispatch::{ResolvedCall, without_handle},
    ledger::{MAX_INLINE_BYTES, OutputKeeper},
};

/// The answer of a method so far.
#[derive(Default)]
struct StreamedAnswer {
    bytes: usize,
    messages: Messages,
    coalescer: Coalescer<()>,
}

/// The messages for the result. Messages that cannot be kept are read and dropped, so that the
/// method can end.
enum Messages {
    /// All of them.
    Few(Vec<Value>),
    /// They are too long for a result, and kept as they come.
    Kept(Box<OutputKeeper>),
    /// They cannot be kept.
    Dropped(Failure),
}

impl Default for Messages {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// Reads a stream to its end.
pub(super) async fn read(
    service: &str,
    resolved: &ResolvedCall,
    exchange: &Exchange,
    mut stream: Streaming<DynamicMessage>,
) -> CallOutcome {
    let mut answer = StreamedAnswer::default();
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
            CallOutcome::Succeeded(value) => answer.take(value, resolved).await,
            malformed => return malformed,
        }
    };
    show(resolved, answer.coalescer.release(Instant::now()));
    match broken {
        Some(status) => answer.broken(service, resolved, exchange, &status),
        None => answer.whole().await,
    }
}

impl StreamedAnswer {
    async fn take(&mut self, value: Value, resolved: &ResolvedCall) {
        let line = format!("{value}\n");
        self.bytes += line.len();
        let messages = std::mem::take(&mut self.messages);
        self.messages = messages.with(value, self.bytes, resolved).await;
        show(resolved, self.coalescer.push((), &line, Instant::now()));
    }

    /// Returns the outcome of a call whose stream broke. After its first message no code means that
    /// nothing took effect.
    fn broken(
        &self,
        service: &str,
        resolved: &ResolvedCall,
        exchange: &Exchange,
        status: &Status,
    ) -> CallOutcome {
        if self.bytes == 0 || resolved.tool.may_repeat() {
            return refusal::of_status(service, resolved, status, exchange);
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

    async fn whole(self) -> CallOutcome {
        let mut keeper = match self.messages {
            Messages::Few(messages) => return CallOutcome::Succeeded(Value::Array(messages)),
            Messages::Dropped(failure) => return CallOutcome::Failed(failure),
            Messages::Kept(keeper) => keeper,
        };
        let kept = match keeper.push("]").await {
            Ok(()) => keeper.finish().await,
            Err(failure) => Err(failure),
        };
        kept.map_or_else(CallOutcome::Failed, CallOutcome::SucceededLong)
    }
}

impl Messages {
    /// Adds a message. With it they have `bytes` bytes.
    async fn with(self, message: Value, bytes: usize, resolved: &ResolvedCall) -> Self {
        match self {
            Self::Few(mut messages) => {
                messages.push(message);
                if bytes <= MAX_INLINE_BYTES {
                    return Self::Few(messages);
                }
                let keeper = resolved.in_flight.output_keeper(resolved.durability);
                let Some(keeper) = keeper else {
                    return Self::Dropped(without_handle(resolved.tool.id(), bytes));
                };
                let text = Value::Array(messages).to_string();
                // The array stays open for what follows.
                keep(Box::new(keeper), text.strip_suffix(']').unwrap_or(&text)).await
            }
            Self::Kept(keeper) => keep(keeper, &format!(",{message}")).await,
            Self::Dropped(failure) => Self::Dropped(failure),
        }
    }
}

async fn keep(mut keeper: Box<OutputKeeper>, text: &str) -> Messages {
    match keeper.push(text).await {
        Ok(()) => Messages::Kept(keeper),
        Err(failure) => Messages::Dropped(failure),
    }
}

fn show(resolved: &ResolvedCall, pieces: Vec<((), String)>) {
    for ((), text) in pieces {
        resolved.in_flight.values(text);
    }
}
