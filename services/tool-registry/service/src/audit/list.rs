//! The records of a time.

use contracts::tavern::registry::v1::{
    AuditEntry, AuditKind, AuditRecord, AuditSubject, audit_entry::Event,
};
use core_types::{Principal, Tenant, Timestamp};
use run_events::timestamp_to_proto;
use run_log::{Event as Logged, ReadError, RunSummary};

use super::{
    Audit,
    chain::{self, Chain},
    denials,
    failure::AuditFailure,
};
use crate::tenants::day_of;

/// The number of records that are read at once.
const READ: usize = 500;
/// The most records that are looked at for a page.
const MAX_LOOKED_AT: usize = 10_000;

/// The filter of a list. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// Only changes by this principal, changes of it, and its denials.
    pub(crate) principal: Option<Principal>,
    pub(crate) kind: AuditKind,
    /// The whole name of a method, or its last part; empty for all.
    pub(crate) method: String,
    /// Only records about this tenant; `None` for the installation.
    pub(crate) tenant: Option<Tenant>,
}

/// The place of a record: its day, and the sequence there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) day: String,
    pub(crate) sequence: u64,
}

impl Audit {
    /// Returns at most `limit` records after a place, the oldest first, and the place of the next page.
    ///
    /// # Errors
    /// [`AuditFailure`]: the audit cannot be read.
    pub(crate) async fn list(
        &self,
        filter: &AuditFilter,
        after: Option<Place>,
        limit: usize,
    ) -> Result<(Vec<AuditRecord>, Option<Place>), AuditFailure> {
        let (mut records, mut looked_at) = (Vec::new(), 0);
        let after = after.as_ref();
        for day in self.chain.days().await? {
            if !may_have(&day, filter) || after.is_some_and(|after| day.subject < after.day) {
                continue;
            }
            let mut place = match after {
                Some(after) if after.day == day.subject => after.sequence,
                _ => first_since(&self.chain, &day, filter.since).await?,
            };
            loop {
                let events = read(&self.chain, &day, place).await?;
                if events.is_empty() {
                    break;
                }
                for event in events {
                    if filter.until.is_some_and(|until| event.time >= until) {
                        return Ok((records, None));
                    }
                    place = event.sequence;
                    looked_at += 1;
                    let entry = chain::read(&event);
                    if filter.admits(&entry) {
                        records.push(record(&day, &event, entry));
                    }
                    if records.len() >= limit || looked_at >= MAX_LOOKED_AT {
                        let next = Place {
                            day: day.subject,
                            sequence: place,
                        };
                        return Ok((records, Some(next)));
                    }
                }
            }
        }
        records.extend(self.counted(filter).await?);
        Ok((records, None))
    }

    /// Returns the denials that are still counted.
    async fn counted(&self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, AuditFailure> {
        let counted = self.denials.counted().await?;
        let records = counted.iter().filter_map(|counted| {
            let begin = denials::begin(counted.minute);
            let entry = AuditEntry {
                event: Some(Event::Denied(denials::to_proto(counted))),
                ..AuditEntry::default()
            };
            // Its record will have a later time.
            let is_early = filter.until.is_some_and(|until| begin >= until);
            let is_listed = !is_early && filter.admits(&entry);
            is_listed.then(|| AuditRecord {
                day: chain::day_name(day_of(begin)),
                time: Some(timestamp_to_proto(begin)),
                entry: Some(entry),
                ..AuditRecord::default()
            })
        });
        Ok(records.collect())
    }
}

impl AuditFilter {
    fn admits(&self, entry: &AuditEntry) -> bool {
        let is_kind = self.kind == AuditKind::Unspecified || self.kind == chain::kind(entry);
        is_kind && self.admits_event(entry.event.as_ref())
    }

    fn admits_event(&self, event: Option<&Event>) -> bool {
        let (method, actor, subject) = match event {
            Some(Event::ChangeIntended(it)) => (&it.method, &it.actor, &it.subject),
            Some(Event::ChangeEnded(it)) => (&it.method, &it.actor, &it.subject),
            Some(Event::Denied(it)) => {
                let principal = Principal::new(&it.principal).ok();
                let principal = principal.filter(|_| !it.principal.is_empty());
                let tenant = principal.as_ref().map(Principal::tenant);
                return self.admits_method(&it.method)
                    && (self.tenant.is_none() || self.tenant == tenant)
                    && (self.principal.is_none() || self.principal == principal);
            }
            _ => {
                let is_plain = self.method.is_empty() && self.principal.is_none();
                return self.tenant.is_none() && is_plain;
            }
        };
        let actor = actor.as_ref().map_or("", |actor| &actor.principal);
        let subject = subject.clone().unwrap_or_default();
        let is_in = |tenant: &Tenant| subject.tenant == tenant.as_str();
        let is_about =
            |principal: &Principal| principal.as_str() == actor || is_subject(&subject, principal);
        self.admits_method(method)
            && self.tenant.as_ref().is_none_or(is_in)
            && self.principal.as_ref().is_none_or(is_about)
    }

    fn admits_method(&self, method: &str) -> bool {
        let is_last = method.rsplit('/').next() == Some(&self.method);
        self.method.is_empty() || method == self.method || is_last
    }
}

fn is_subject(subject: &AuditSubject, principal: &Principal) -> bool {
    subject.kind == "principal"
        && subject.tenant == principal.tenant().as_str()
        && subject.names.iter().any(|name| name == principal.name())
}

/// Whether a day may have records of the time of a filter.
fn may_have(day: &RunSummary, filter: &AuditFilter) -> bool {
    let is_early = day
        .finished
        .zip(filter.since)
        .is_some_and(|(end, since)| end < since);
    let is_late = filter.until.is_some_and(|until| day.created >= until);
    !is_early && !is_late
}

/// Returns the sequence before the first record of a time or later, as times never go back.
async fn first_since(
    chain: &Chain,
    day: &RunSummary,
    since: Option<Timestamp>,
) -> Result<u64, AuditFailure> {
    let Some(since) = since else {
        return Ok(0);
    };
    let (mut early, mut late) = (0, day.last_sequence + 1);
    while late - early > 1 {
        let middle = early + (late - early) / 2;
        match chain.event(day, middle).await? {
            Some(event) if event.time < since => early = middle,
            _ => late = middle,
        }
    }
    Ok(early)
}

async fn read(chain: &Chain, day: &RunSummary, after: u64) -> Result<Vec<Logged>, AuditFailure> {
    match chain.logs().read(day.id, after, READ).await {
        Ok(events) => Ok(events),
        // Retention was faster.
        Err(ReadError::NoSuchRun) => Ok(Vec::new()),
        Err(ReadError::Storage(error)) => Err(error.into()),
    }
}

fn record(day: &RunSummary, event: &Logged, entry: AuditEntry) -> AuditRecord {
    AuditRecord {
        day: day.subject.clone(),
        run_id: day.id.to_string(),
        sequence: event.sequence,
        hash: event.hash.to_string(),
        time: Some(timestamp_to_proto(event.time)),
        entry: Some(entry),
    }
}
