//! Refusals in the audit of the registry.
//!
//! Refusals are added up while one request is on its way to the registry, so that a flood of them costs one request
//! at a time. A refused client has its answer when its refusal is durable, or when that cannot be had soon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::tavern::registry::v1::{AuditDenied, CountDenialsRequest};
use grpc_kit::CallContext;
use tokio::sync::watch;
use tonic::Code;

use crate::Peers;

/// The longest time for which an answer waits until its refusal is durable.
const LONGEST: Duration = Duration::from_secs(3);

/// The longest time of a request to the registry.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// The most sorts of refusals that wait; all further ones are one sort.
const MAX_SORTS: usize = 1_000;

/// The paths of the edges for plain HTTP that take credentials.
const EDGES: [&str; 3] = ["/v1/session", "/v1/login", "/v1/ticket"];

/// The refusals that are on their way to the audit. Clone, cheap.
#[derive(Clone, Debug)]
pub(super) struct AuditedDenials {
    peers: Peers,
    /// Locked for a look or a change, never across an await.
    waiting: Arc<Mutex<Waiting>>,
    /// The number of the last batch that is durable, or was not accepted and is sent again.
    settled: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Waiting {
    counts: HashMap<Sort, u64>,
    /// The number of the batch that begins with these refusals.
    batch: u64,
    /// Whether a task sends batches.
    is_sending: bool,
    /// Whether the last batch was not accepted: then no answer waits for the next one.
    is_failing: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sort {
    /// The name of the principal; empty where it is unknown.
    principal: Box<str>,
    method: Box<str>,
    reason: &'static str,
}

impl Waiting {
    fn add(&mut self, sort: Sort, count: u64) {
        let is_full = self.counts.len() >= MAX_SORTS && !self.counts.contains_key(&sort);
        let sort = if is_full { other() } else { sort };
        let counted = self.counts.entry(sort).or_default();
        *counted = counted.saturating_add(count);
    }

    /// Takes the batch; none if nothing waits, and then the task ends.
    fn take(&mut self) -> Option<(u64, HashMap<Sort, u64>)> {
        if self.counts.is_empty() {
            self.is_sending = false;
            return None;
        }
        let batch = self.batch;
        self.batch += 1;
        Some((batch, std::mem::take(&mut self.counts)))
    }
}

impl AuditedDenials {
    pub(super) fn new(peers: &Peers) -> Self {
        Self {
            peers: peers.clone(),
            waiting: Arc::new(Mutex::new(Waiting {
                batch: 1,
                ..Waiting::default()
            })),
            settled: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Records a refusal of a caller for who it is; other refusals are not denials.
    pub(super) async fn record(&self, principal: &str, method: &str, reason: Code) {
        let reason = match reason {
            Code::Unauthenticated => "UNAUTHENTICATED",
            Code::PermissionDenied => "PERMISSION_DENIED",
            _ => return,
        };
        let sort = Sort {
            principal: principal.into(),
            method: known(method).into(),
            reason,
        };
        let mut settled = self.settled.subscribe();
        let (batch, is_failing, must_send) = {
            let mut waiting = self.waiting();
            waiting.add(sort, 1);
            let must_send = !std::mem::replace(&mut waiting.is_sending, true);
            (waiting.batch, waiting.is_failing, must_send)
        };
        if must_send {
            tokio::spawn(self.clone().send());
        }
        // A client is refused whether the audit works or not.
        if !is_failing {
            let recorded = settled.wait_for(|settled| *settled >= batch);
            drop(tokio::time::timeout(LONGEST, recorded).await);
        }
    }

    /// Sends batches until nothing waits.
    async fn send(self) {
        loop {
            let Some((batch, counts)) = self.waiting().take() else {
                return;
            };
            let denials = counts.iter().map(|(sort, count)| AuditDenied {
                principal: sort.principal.to_string(),
                method: sort.method.to_string(),
                reason: sort.reason.to_owned(),
                count: *count,
                ..AuditDenied::default()
            });
            let request = CountDenialsRequest {
                denials: denials.collect(),
            };
            let context = CallContext::outermost().with_timeout(TIMEOUT);
            let counted = self.peers.audit(&context).count_denials(request).await;
            // A batch that the registry does not accept would be in the way of all later ones.
            let is_failing =
                matches!(&counted, Err(status) if status.code() != Code::InvalidArgument);
            {
                let mut waiting = self.waiting();
                waiting.is_failing = is_failing;
                if is_failing {
                    for (sort, count) in counts {
                        waiting.add(sort, count);
                    }
                }
            }
            self.settled.send_replace(batch);
            if let Err(status) = counted {
                tracing::warn!(%status, "refusals cannot be recorded in the audit yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a method that exists. Any other is a client's text, which may hold a credential.
fn known(method: &str) -> &str {
    let is_known = EDGES.contains(&method) || contracts::access::of(method).is_some();
    match is_known {
        true => method,
        false => "other",
    }
}

/// The sort of all refusals beyond the bound.
fn other() -> Sort {
    Sort {
        method: "other".into(),
        ..Sort::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(principal: &str) -> Sort {
        Sort {
            principal: principal.into(),
            method: "other".into(),
            reason: "UNAUTHENTICATED",
        }
    }

    #[test]
    fn a_batch_has_each_sort_once_and_a_bound() {
        let mut waiting = Waiting::default();
        for number in 0..MAX_SORTS + 10 {
            waiting.add(sort(&number.to_string()), 1);
            waiting.add(sort("0"), 1);
        }
        let (batch, counts) = waiting.take().unwrap();
        assert_eq!((batch, counts.len()), (0, MAX_SORTS + 1));
        assert_eq!(counts[&sort("0")], MAX_SORTS as u64 + 11);
        assert_eq!(counts[&other()], 10);
        assert_eq!(waiting.take(), None);
        waiting.add(sort("0"), 1);
        assert_eq!(waiting.take().map(|(batch, _)| batch), Some(1));
    }

    #[test]
    fn only_the_names_of_methods_are_recorded() {
        let method = "tavern.run.v1.RunService/GetRun";
        assert_eq!(known(method), method);
        assert_eq!(known("/v1/login"), "/v1/login");
        for text in ["/v1/models?key=tvk_secret", "tvk_secret", "", "a.B/C"] {
            assert_eq!(known(text), "other");
        }
    }
}
