//! Whether the records are as they were written.
//!
//! The hash of a record proves everything before it in its day, and the first record of a day the day before. A user
//! who can write the file can write it anew as a whole; only heads that were logged elsewhere find that.

use std::collections::HashMap;

use contracts::tavern::registry::v1::{
    AuditFault, AuditFaultKind, AuditHead, VerifyAuditResponse, audit_entry::Event,
};
use core_types::Timestamp;
use run_log::{Fault, ReadError, RunSummary, StorageError, Verification};

use super::{
    Audit,
    chain::{self, Chain},
};
use crate::tenants::day_of;

impl Audit {
    /// Recomputes the chain over all days, and compares it with heads that were logged.
    pub(crate) async fn verify(&self, anchors: &[AuditHead]) -> VerifyAuditResponse {
        let kept_since = self
            .settings
            .kept()
            .map(|kept| self.clock.now().minus(kept));
        verify(&self.chain, anchors, kept_since).await
    }
}

/// Recomputes the chain over all days, and compares it with heads that were logged. Days that ended before
/// `kept_since` may be missing at its beginning.
pub(super) async fn verify(
    chain: &Chain,
    anchors: &[AuditHead],
    kept_since: Option<Timestamp>,
) -> VerifyAuditResponse {
    let mut report = VerifyAuditResponse::default();
    let walked = walk(chain, &mut report).await;
    let compared = match walked {
        Ok(days) => compare(chain, &days, anchors, kept_since, &mut report).await,
        Err(fault) => Err(fault),
    };
    report.fault = compared.err().map(|fault| *fault);
    report
}

async fn walk(
    chain: &Chain,
    report: &mut VerifyAuditResponse,
) -> Result<Vec<RunSummary>, Box<AuditFault>> {
    let days = chain.days().await.map_err(|error| unreadable("", &error))?;
    for day in &days {
        let name = day.subject.as_str();
        let (events, head) = match chain.logs().verify(day.id).await {
            Ok(Verification::Intact { events, head }) => (events, head),
            Ok(Verification::Broken { sequence, fault }) => {
                let (kind, text) = match fault {
                    Fault::Missing => (AuditFaultKind::Missing, "the record is missing"),
                    Fault::HashMismatch => (
                        AuditFaultKind::Changed,
                        "the record, or the one before it, was changed",
                    ),
                    Fault::EndMismatch => (
                        AuditFaultKind::Changed,
                        "the record is not the one that the day ended with",
                    ),
                };
                return Err(fault_of(kind, (name, sequence), text));
            }
            // Retention was faster.
            Err(ReadError::NoSuchRun) => continue,
            Err(ReadError::Storage(error)) => return Err(unreadable(name, &error)),
        };
        check_beginning(chain, day, report).await?;
        report.days += 1;
        report.records += events;
        report.head = Some(AuditHead {
            day: name.to_owned(),
            sequence: events,
            hash: head.to_string(),
        });
    }
    Ok(days)
}

/// Checks that a day opens with the head of the day before, which the report has; the first day that is kept may
/// follow days that retention has deleted.
async fn check_beginning(
    chain: &Chain,
    day: &RunSummary,
    report: &VerifyAuditResponse,
) -> Result<(), Box<AuditFault>> {
    let name = day.subject.as_str();
    let first = chain.event(day, 1).await;
    let first = first.map_err(|error| unreadable(name, &error))?;
    let opened = first.map(|first| chain::read(&first).event);
    let Some(Some(Event::DayOpened(opened))) = opened else {
        let text = "the day does not begin with the head of the day before";
        return Err(fault_of(AuditFaultKind::OutOfOrder, (name, 1), text));
    };
    if report.days == 0 || opened.previous == report.head {
        return Ok(());
    }
    let before = opened.previous.unwrap_or_default();
    let found = report.head.as_ref().map_or("", |head| &head.day);
    if before.day.as_str() > found {
        let text = format!("the day is missing; {name} begins with its head");
        return Err(fault_of(AuditFaultKind::Missing, (&before.day, 0), text));
    }
    let text = format!("the day does not begin with the head of {found}");
    Err(fault_of(AuditFaultKind::OutOfOrder, (name, 1), text))
}

async fn compare(
    chain: &Chain,
    days: &[RunSummary],
    anchors: &[AuditHead],
    kept_since: Option<Timestamp>,
    report: &mut VerifyAuditResponse,
) -> Result<(), Box<AuditFault>> {
    let by_name: HashMap<&str, &RunSummary> =
        days.iter().map(|day| (day.subject.as_str(), day)).collect();
    // Retention deletes the oldest days only, and none that ended after this day began.
    let oldest = days
        .first()
        .map(|day| day.subject.clone())
        .unwrap_or_default();
    let kept = kept_since.map_or_else(String::new, |since| chain::day_name(day_of(since)));
    for anchor in anchors {
        let place = (anchor.day.as_str(), anchor.sequence);
        let Some(day) = by_name.get(anchor.day.as_str()) else {
            if anchor.day < oldest && anchor.day <= kept {
                report.anchors_not_kept += 1;
                continue;
            }
            let text = "the day is missing, of which a head was logged";
            let kind = AuditFaultKind::ShorterThanAnchor;
            return Err(fault_of(kind, (&anchor.day, 0), text));
        };
        let event = chain.event(day, anchor.sequence).await;
        match event.map_err(|error| unreadable(&day.subject, &error))? {
            Some(event) if event.hash.to_string() == anchor.hash => report.anchors += 1,
            Some(_) => {
                let text = "the record is another one than a head that was logged: the chain was written anew";
                return Err(fault_of(AuditFaultKind::OtherThanAnchor, place, text));
            }
            None => {
                let text = "the record is missing, of which a head was logged: the chain was cut";
                return Err(fault_of(AuditFaultKind::ShorterThanAnchor, place, text));
            }
        }
    }
    Ok(())
}

fn unreadable(day: &str, error: &StorageError) -> Box<AuditFault> {
    fault_of(AuditFaultKind::Unreadable, (day, 0), error.to_string())
}

fn fault_of(
    kind: AuditFaultKind,
    (day, sequence): (&str, u64),
    text: impl Into<String>,
) -> Box<AuditFault> {
    Box::new(AuditFault {
        kind: kind.into(),
        day: day.to_owned(),
        sequence,
        text: text.into(),
    })
}
