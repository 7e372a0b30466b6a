//! Denials, counted for a minute.
//!
//! The counts are durable at once, and become records when their minute is over. No one but this appends records of
//! denials, so after a crash in between the newest records tell which of the counts are recorded.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use contracts::tavern::registry::v1::{AuditDenied, AuditEntry, audit_entry::Event};
use core_types::{Clock, Timestamp};
use run_events::timestamp_to_proto;
use sql_store::Database;
use tokio::sync::Mutex;

use super::{chain::Chain, failure::AuditFailure};
use crate::store::{
    StoreError,
    denials::{Counted, Denial, DenialStore},
};

/// The nanoseconds of a minute.
const MINUTE: i64 = 60 * 1_000_000_000;

/// The most sorts of denials in a minute; all further ones are one sort.
const MAX_SORTS: usize = 1_000;

/// The most records that are appended at once.
const AT_ONCE: usize = 500;

/// Counts denials. Clone, cheap.
#[derive(Clone)]
pub(super) struct Denials {
    store: Arc<dyn DenialStore>,
    chain: Chain,
    clock: Arc<dyn Clock>,
    /// The sorts of the present minute. Held over a change of the counts.
    present: Arc<Mutex<Minute>>,
    /// Held while minutes are recorded.
    recorded: Arc<Mutex<RecordedMinutes>>,
}

#[derive(Default)]
struct Minute {
    number: i64,
    sorts: HashSet<Denial>,
}

#[derive(Default)]
struct RecordedMinutes {
    /// The minute before which every count is a record.
    before: i64,
    /// Counts that are records and not removed yet.
    counts: Vec<Counted>,
}

impl Denials {
    pub(super) fn new(database: Database, chain: Chain, clock: Arc<dyn Clock>) -> Self {
        Self {
            store: Arc::new(database),
            chain,
            clock,
            present: Arc::default(),
            recorded: Arc::default(),
        }
    }

    /// Counts denials of the present minute.
    ///
    /// # Errors
    /// [`AuditFailure`]: none is counted.
    pub(super) async fn count(&self, denials: Vec<AuditDenied>) -> Result<(), AuditFailure> {
        let mut present = self.present.lock().await;
        // A minute that is recorded gets no more counts, also where the clock was set back.
        let number = minute_of(self.clock.now()).max(present.number);
        if present.number != number {
            *present = Minute {
                number,
                ..Minute::default()
            };
        }
        let mut counts: HashMap<Denial, u64> = HashMap::new();
        for denied in denials {
            let denial = Denial {
                principal: denied.principal,
                method: denied.method,
                reason: denied.reason,
                tool_id: denied.tool_id,
            };
            let is_full = present.sorts.len() >= MAX_SORTS && !present.sorts.contains(&denial);
            let denial = if is_full { other() } else { denial };
            present.sorts.insert(denial.clone());
            let count = counts.entry(denial).or_default();
            *count = count.saturating_add(denied.count);
        }
        let counted: Vec<Counted> = counts
            .into_iter()
            .map(|(denial, count)| Counted {
                minute: number,
                denial,
                count,
            })
            .collect();
        self.store.add(&counted).await.map_err(failed)
    }

    /// Makes records of the minutes that are over at a time.
    pub(super) async fn record_before(&self, now: Timestamp) -> Result<(), AuditFailure> {
        let minute = {
            let mut present = self.present.lock().await;
            let number = minute_of(now).max(present.number);
            if present.number != number {
                *present = Minute {
                    number,
                    ..Minute::default()
                };
            }
            number
        };
        let mut recorded = self.recorded.lock().await;
        if recorded.before == minute {
            return Ok(());
        }
        self.store.remove(&recorded.counts).await.map_err(failed)?;
        recorded.counts.clear();
        let counted = self.store.before(minute).await.map_err(failed)?;
        for some in counted.chunks(AT_ONCE) {
            let entries = some.iter().map(|counted| AuditEntry {
                event: Some(Event::Denied(to_proto(counted))),
                ..AuditEntry::default()
            });
            self.chain.append(entries.collect()).await?;
            recorded.counts = some.to_vec();
            self.store.remove(some).await.map_err(failed)?;
            recorded.counts.clear();
        }
        recorded.before = minute;
        Ok(())
    }

    /// Returns the counts that are no records yet.
    pub(super) async fn counted(&self) -> Result<Vec<Counted>, AuditFailure> {
        self.store.before(i64::MAX).await.map_err(failed)
    }

    /// Removes counts that a crash kept from being removed after they were recorded, and takes up the present minute.
    pub(super) async fn recover(&self) -> Result<(), AuditFailure> {
        let mut counted = self.counted().await?;
        let Some(oldest) = counted.first().map(|counted| counted.minute) else {
            return Ok(());
        };
        let end_of_oldest = Timestamp::from_unix_nanos((oldest + 1).saturating_mul(MINUTE));
        let mut recorded = HashSet::new();
        self.chain
            .backwards(|time, entry| {
                if let Some(Event::Denied(denied)) = entry.event {
                    recorded.insert(sort_of(&denied));
                }
                time >= end_of_oldest
            })
            .await?;
        counted.retain(|it| recorded.contains(&(it.minute, it.denial.clone())));
        self.store.remove(&counted).await.map_err(failed)?;
        let left = self.counted().await?;
        let mut present = self.present.lock().await;
        if let Some(number) = left.last().map(|counted| counted.minute) {
            let of_last = left.into_iter().filter(|counted| counted.minute == number);
            present.number = number;
            present.sorts = of_last.map(|counted| counted.denial).collect();
        }
        Ok(())
    }
}

/// Returns the record of counted denials.
pub(super) fn to_proto(counted: &Counted) -> AuditDenied {
    let Denial {
        principal,
        method,
        reason,
        tool_id,
    } = counted.denial.clone();
    AuditDenied {
        principal,
        method,
        reason,
        count: counted.count,
        tool_id,
        minute: Some(timestamp_to_proto(begin(counted.minute))),
    }
}

/// Returns the time at which a minute begins.
pub(super) fn begin(minute: i64) -> Timestamp {
    Timestamp::from_unix_nanos(minute.saturating_mul(MINUTE))
}

fn sort_of(denied: &AuditDenied) -> (i64, Denial) {
    let seconds = denied.minute.map_or(0, |minute| minute.seconds);
    let denial = Denial {
        principal: denied.principal.clone(),
        method: denied.method.clone(),
        reason: denied.reason.clone(),
        tool_id: denied.tool_id.clone(),
    };
    (seconds / 60, denial)
}

/// The sort of all denials beyond the bound.
fn other() -> Denial {
    Denial {
        principal: String::new(),
        method: "other".to_owned(),
        reason: String::new(),
        tool_id: String::new(),
    }
}

fn minute_of(time: Timestamp) -> i64 {
    time.unix_nanos().div_euclid(MINUTE)
}

fn failed(error: StoreError) -> AuditFailure {
    AuditFailure::Counters(Arc::new(error))
}
