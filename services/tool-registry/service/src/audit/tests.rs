//! The audit over days, crashes and a disk without room, with a clock that the test sets.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use contracts::tavern::registry::v1::{
    AuditActor, AuditDenied, AuditFaultKind, AuditHead, AuditKind, AuditOutcome, AuditRecord,
    audit_entry::Event,
};
use core_types::{Clock, Principal, SystemIds, Tenant, Timestamp};
use data_home::DataHome;
use documents::{DocumentStore, StoredDocuments};
use sql_store::Database;
use tempfile::TempDir;
use tonic::Code;

use super::{
    Audit, AuditFailure, AuditFilter, AuditSettings, AuditedChange, Ended, Stores, Subject,
};
use crate::{
    identities::{Identities, Issuers},
    store::{denials::DenialStore, open_database, run_sql, tools_of},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// 2026-11-27T23:00:00Z.
const EVENING: i64 = 1_795_820_400;

#[derive(Debug)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// An audit on a fresh directory, with the stores whose things change.
struct Fixture {
    directory: TempDir,
    clock: Arc<SetClock>,
    settings: AuditSettings,
    open: Option<(Audit, Database)>,
}

impl Fixture {
    async fn new() -> Self {
        let mut fixture = Self {
            directory: tempfile::tempdir().expect("a directory"),
            clock: Arc::new(SetClock(AtomicI64::new(EVENING * 1_000_000_000))),
            settings: AuditSettings::default(),
            open: None,
        };
        fixture.reopen().await;
        fixture
    }

    /// Opens the audit again, as the next process does after a crash.
    async fn reopen(&mut self) {
        if let Some((audit, database)) = self.open.take() {
            audit.chain.close().await;
            database.close().await;
        }
        let home = DataHome::of_files(self.directory.path()).expect("a directory");
        let database = open_database(&home).await.expect("the database opens");
        let clock: Arc<dyn Clock> = self.clock.clone();
        let issuers = Issuers::new(Vec::new(), Duration::ZERO, &clock);
        let identities =
            Identities::load(database.clone(), issuers, Arc::clone(&clock), true).await;
        let stores = Stores {
            database: database.clone(),
            identities: identities.expect("there are none"),
            documents: Arc::new(StoredDocuments::new(database.clone())),
        };
        let parts = (clock, Arc::new(SystemIds) as Arc<_>);
        let audit = Audit::open(&home, self.settings.clone(), stores, parts).await;
        self.open = Some((audit.expect("the audit opens"), database));
    }

    fn audit(&self) -> &Audit {
        &self.open.as_ref().expect("it is open").0
    }

    fn advance(&self, by: Duration) {
        let nanos = i64::try_from(by.as_nanos()).expect("it fits");
        self.clock.0.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Stores a tool, as a change of it does.
    async fn store_tool(&self, id: &str) {
        let (_, database) = self.open.as_ref().expect("it is open");
        let documents = StoredDocuments::new(database.clone());
        let stored = documents.replace(
            tools_of(Tenant::DEFAULT),
            id,
            "text",
            None,
            self.clock.now(),
        );
        stored.await.expect("it is stored");
    }

    async fn change(&self, id: &str, code: Code) -> Result<(), AuditFailure> {
        let ended = Ended {
            code,
            key_ids: Vec::new(),
        };
        let made = async { ((), ended) };
        self.audit().changes().make(change(id), made).await
    }

    async fn records(&self, filter: &AuditFilter) -> Vec<AuditRecord> {
        let (mut records, mut after) = (Vec::new(), None);
        loop {
            let page = self.audit().list(filter, after, 2).await;
            let (page, next) = page.expect("it is read");
            records.extend(page);
            match next {
                Some(next) => after = Some(next),
                None => return records,
            }
        }
    }

    async fn outcomes(&self) -> Vec<(String, AuditOutcome, bool)> {
        let filter = AuditFilter {
            kind: AuditKind::ChangeEnded,
            ..AuditFilter::default()
        };
        let records = self.records(&filter).await;
        let ended = records
            .into_iter()
            .filter_map(|record| match record.entry?.event? {
                Event::ChangeEnded(ended) => Some(ended),
                _ => None,
            });
        let outcome = ended.map(|ended| {
            let (outcome, found) = (ended.outcome(), ended.found_at_start);
            let names = ended.subject.unwrap_or_default().names;
            (names.join(" "), outcome, found)
        });
        outcome.collect()
    }

    /// Runs SQL on the closed file of the audit.
    async fn tamper(&mut self, sql: &str) {
        let (audit, database) = self.open.take().expect("it is open");
        audit.chain.close().await;
        database.close().await;
        drop((audit, database));
        run_sql(&self.directory.path().join(super::LOG.file), sql).await;
        self.reopen().await;
    }
}

fn change(id: &str) -> AuditedChange {
    AuditedChange {
        method: "tavern.registry.v1.ToolRegistryService/PutTool".to_owned(),
        actor: AuditActor {
            principal: "ada".to_owned(),
            key_id: String::new(),
        },
        subject: Subject::Tool {
            tenant: Tenant::DEFAULT,
            id: id.to_owned(),
        },
        values: Vec::new(),
        request: String::new(),
    }
}

fn denied(principal: &str, count: u64) -> AuditDenied {
    AuditDenied {
        principal: principal.to_owned(),
        method: "a.S/M".to_owned(),
        reason: "PERMISSION_DENIED".to_owned(),
        count,
        ..AuditDenied::default()
    }
}

fn kinds(records: &[AuditRecord]) -> Vec<AuditKind> {
    let entries = records.iter().filter_map(|record| record.entry.as_ref());
    entries.map(super::chain::kind).collect()
}

#[tokio::test]
async fn a_day_opens_with_the_head_of_the_day_before() {
    let mut fixture = Fixture::new().await;
    fixture.change("core:a", Code::Ok).await.unwrap();
    fixture.advance(DAY);
    fixture.change("core:b", Code::NotFound).await.unwrap();
    fixture.reopen().await;
    fixture.advance(3 * DAY);
    fixture.change("core:c", Code::Internal).await.unwrap();

    let records = fixture.records(&AuditFilter::default()).await;
    use AuditKind::{ChangeEnded, ChangeIntended, DayClosed, DayOpened};
    let day = [DayOpened, ChangeIntended, ChangeEnded, DayClosed];
    let expected = [&day[..], &day[..], &day[..3]].concat();
    assert_eq!(kinds(&records), expected);
    let days: Vec<&str> = records
        .iter()
        .step_by(4)
        .map(|record| record.day.as_str())
        .collect();
    assert_eq!(days, ["2026-11-27", "2026-11-28", "2026-12-01"]);
    let Some(Event::DayOpened(opened)) = records[4].entry.as_ref().unwrap().event.as_ref() else {
        panic!("{:?}", records[4]);
    };
    let before = opened.previous.as_ref().unwrap();
    assert_eq!((before.day.as_str(), before.sequence), ("2026-11-27", 4));
    assert_eq!(before.hash, records[3].hash);
    let report = fixture.audit().verify(&[]).await;
    assert_eq!((report.fault, report.days, report.records), (None, 3, 11));
    let outcomes = fixture.outcomes().await;
    let outcomes: Vec<AuditOutcome> = outcomes
        .into_iter()
        .map(|(_, outcome, _)| outcome)
        .collect();
    let expected = [
        AuditOutcome::Done,
        AuditOutcome::Refused,
        AuditOutcome::Failed,
    ];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn a_change_that_a_crash_cut_off_gets_its_outcome_at_the_next_start() {
    let mut fixture = Fixture::new().await;
    fixture.change("core:before", Code::Ok).await.unwrap();
    for (id, is_made) in [("core:made", true), ("core:not-made", false)] {
        let make = async {
            if is_made {
                fixture.store_tool(id).await;
            }
            pending().await
        };
        let made = fixture.audit().changes().make::<()>(change(id), make);
        let cut_off = tokio::time::timeout(Duration::from_millis(200), made).await;
        assert!(cut_off.is_err());
    }
    fixture.advance(DAY);
    fixture.change("core:later", Code::Ok).await.unwrap();
    fixture.reopen().await;

    let outcomes = fixture.outcomes().await;
    let outcomes: Vec<_> = outcomes
        .iter()
        .map(|(name, it, found)| (name.as_str(), *it, *found))
        .collect();
    use AuditOutcome::{Done, Failed};
    let expected = [
        ("core:before", Done, false),
        ("core:later", Done, false),
        ("core:made", Done, true),
        ("core:not-made", Failed, true),
    ];
    assert_eq!(outcomes, expected);
    fixture.reopen().await;
    assert_eq!(fixture.outcomes().await.len(), expected.len());
}

#[tokio::test]
async fn an_outcome_is_unknown_where_a_later_change_hides_it() {
    let mut fixture = Fixture::new().await;
    let made = fixture
        .audit()
        .changes()
        .make::<()>(change("core:a"), pending());
    let cut_off = tokio::time::timeout(Duration::from_millis(200), made).await;
    assert!(cut_off.is_err());
    fixture.store_tool("core:a").await;
    fixture.change("core:a", Code::Ok).await.unwrap();
    fixture.reopen().await;
    let outcomes = fixture.outcomes().await;
    assert_eq!(
        outcomes[1],
        ("core:a".to_owned(), AuditOutcome::Unknown, true)
    );
}

#[tokio::test]
async fn denials_of_a_minute_are_one_record_for_each_sort() {
    let mut fixture = Fixture::new().await;
    for _ in 0..3 {
        let denials = vec![denied("ada", 2), denied("", 1)];
        fixture.audit().deny(denials).await.unwrap();
        fixture.reopen().await;
    }
    let counts = async |fixture: &Fixture| {
        let records = fixture.records(&AuditFilter::default()).await;
        let counts = records
            .into_iter()
            .filter_map(|record| match record.entry?.event? {
                Event::Denied(denied) => Some((denied.principal, denied.count, record.sequence)),
                _ => None,
            });
        counts.collect::<Vec<_>>()
    };
    let counted = [(String::new(), 3, 0), ("ada".to_owned(), 6, 0)];
    assert_eq!(counts(&fixture).await, counted);
    fixture.audit().tick(fixture.clock.now()).await;
    assert_eq!(counts(&fixture).await, counted);

    fixture.advance(Duration::from_secs(60));
    // The process ends after the records were appended and before the counts were removed.
    let (_, database) = fixture.open.as_ref().unwrap();
    let kept = database.before(i64::MAX).await.unwrap();
    fixture.audit().tick(fixture.clock.now()).await;
    database.add(&kept).await.unwrap();
    fixture.reopen().await;
    fixture.audit().tick(fixture.clock.now()).await;
    let recorded = [(String::new(), 3, 2), ("ada".to_owned(), 6, 3)];
    assert_eq!(counts(&fixture).await, recorded);

    // The sorts of a minute are bounded.
    let many = (0..1_500).map(|number| denied(&format!("p{number}"), 1));
    fixture.audit().deny(many.collect()).await.unwrap();
    let counted = counts(&fixture).await;
    assert_eq!(counted.len(), 2 + 1_001);
    assert!(counted.contains(&(String::new(), 500, 0)));
}

#[tokio::test]
async fn a_list_is_narrowed_by_time_principal_method_and_tenant() {
    let fixture = Fixture::new().await;
    let begin = fixture.clock.now();
    fixture.change("core:a", Code::Ok).await.unwrap();
    fixture.advance(Duration::from_secs(600));
    fixture
        .audit()
        .deny(vec![denied("acme/bob", 1), denied("", 4)])
        .await
        .unwrap();
    fixture.advance(Duration::from_secs(600));
    fixture.audit().tick(fixture.clock.now()).await;
    fixture.advance(DAY);
    fixture.change("core:b", Code::Ok).await.unwrap();

    for (narrowed, count, narrow) in narrowed(begin) {
        let mut filter = AuditFilter::default();
        narrow(&mut filter);
        let listed = fixture.records(&filter).await.len();
        assert_eq!(listed, count, "{narrowed}");
    }
}

type Narrow = Box<dyn Fn(&mut AuditFilter)>;

/// Returns filters with the number of records that they leave.
fn narrowed(begin: Timestamp) -> Vec<(&'static str, usize, Narrow)> {
    let after = begin.plus(Duration::from_secs(1));
    vec![
        ("all", 9, Box::new(|_| {})),
        ("since", 6, Box::new(move |it| it.since = Some(after))),
        ("until", 3, Box::new(move |it| it.until = Some(after))),
        (
            "principal",
            4,
            Box::new(|it| it.principal = Principal::new("ada").ok()),
        ),
        (
            "denied",
            1,
            Box::new(|it| it.principal = Principal::new("acme/bob").ok()),
        ),
        ("method", 4, Box::new(|it| it.method = "PutTool".to_owned())),
        (
            "other method",
            0,
            Box::new(|it| it.method = "Put".to_owned()),
        ),
        ("kind", 2, Box::new(|it| it.kind = AuditKind::Denied)),
        (
            "tenant",
            1,
            Box::new(|it| it.tenant = Tenant::new("acme").ok()),
        ),
        (
            "default",
            4,
            Box::new(|it| it.tenant = Some(Tenant::DEFAULT)),
        ),
    ]
}

#[tokio::test]
async fn tampering_is_found_and_named() {
    let anchor = |record: &AuditRecord| AuditHead {
        day: record.day.clone(),
        sequence: record.sequence,
        hash: record.hash.clone(),
    };
    let of_second = "(SELECT key FROM runs WHERE subject = '2026-11-28')";
    let changed =
        format!("UPDATE events SET payload = x'00' WHERE run = {of_second} AND sequence = 2");
    let cut = "DELETE FROM events WHERE run = (SELECT key FROM runs WHERE subject = '2026-11-29') AND sequence > 1";
    let forgotten = format!("DELETE FROM events WHERE run = {of_second}");
    let gone = "DELETE FROM runs WHERE subject = '2026-11-28'";
    let last_gone = "DELETE FROM runs WHERE subject = '2026-11-29'";
    use AuditFaultKind::{Changed, Missing, ShorterThanAnchor};
    for (sql, fault) in [
        (changed.as_str(), Some((Changed, "2026-11-28", 2))),
        (&forgotten, Some((Missing, "2026-11-28", 1))),
        (gone, Some((Missing, "2026-11-28", 0))),
        (cut, Some((ShorterThanAnchor, "2026-11-29", 3))),
        (last_gone, Some((ShorterThanAnchor, "2026-11-29", 0))),
        ("DELETE FROM events WHERE FALSE", None),
    ] {
        let mut fixture = Fixture::new().await;
        for id in ["core:a", "core:b", "core:c"] {
            fixture.change(id, Code::Ok).await.unwrap();
            fixture.advance(DAY);
        }
        let records = fixture.records(&AuditFilter::default()).await;
        let anchors: Vec<AuditHead> = records.iter().map(anchor).collect();
        fixture.tamper(sql).await;
        let report = fixture.audit().verify(&anchors).await;
        let found = report
            .fault
            .as_ref()
            .map(|it| (it.kind(), it.day.as_str(), it.sequence));
        // The first heads that miss something are those of the end.
        let found = found.map(|(kind, day, sequence)| match kind {
            ShorterThanAnchor if sequence > 0 => (kind, day, 3),
            _ => (kind, day, sequence),
        });
        assert_eq!(found, fault, "{sql}: {report:?}");
    }
}

#[tokio::test]
async fn a_chain_that_was_written_anew_differs_from_the_logged_heads() {
    let (one, other) = (Fixture::new().await, Fixture::new().await);
    for fixture in [&one, &other] {
        fixture.change("core:a", Code::Ok).await.unwrap();
    }
    let heads = async |fixture: &Fixture| fixture.audit().verify(&[]).await.head.unwrap();
    let report = one.audit().verify(&[heads(&one).await]).await;
    assert_eq!((report.fault, report.anchors), (None, 1));
    let fault = one
        .audit()
        .verify(&[heads(&other).await])
        .await
        .fault
        .unwrap();
    assert_eq!(fault.kind(), AuditFaultKind::OtherThanAnchor);
    assert_eq!((fault.day.as_str(), fault.sequence), ("2026-11-27", 3));
}

#[tokio::test]
async fn retention_deletes_whole_days_and_the_chain_stays_whole() {
    let fixture = Fixture::new().await;
    let head = async || fixture.audit().verify(&[]).await.head.unwrap();
    fixture.change("core:a", Code::Ok).await.unwrap();
    let first = head().await;
    for _ in 0..3 {
        fixture.advance(200 * DAY);
        fixture.change("core:a", Code::Ok).await.unwrap();
        fixture.audit().retire(fixture.clock.now()).await;
    }
    let report = fixture.audit().verify(&[first, head().await]).await;
    // The first day ended with the first record of the second one, 400 days ago.
    assert_eq!((report.fault, report.days), (None, 3));
    assert_eq!((report.anchors, report.anchors_not_kept), (1, 1));
}

#[tokio::test]
async fn without_room_no_change_begins_and_outcomes_wait() {
    let mut fixture = Fixture::new().await;
    fixture.change("core:a", Code::Ok).await.unwrap();
    fixture.settings.max_bytes = 1 << 20;
    fixture
        .tamper("CREATE TABLE ballast AS SELECT randomblob(1000000) AS bytes")
        .await;
    let refused = loop {
        if let Err(error) = fixture.change("core:b", Code::Ok).await {
            break error;
        }
    };
    assert!(
        matches!(refused, AuditFailure::Storage(run_log::StorageError::Full)),
        "{refused:?}"
    );
    // Nothing begins, also where the outcome of an earlier change could not be recorded.
    assert!(fixture.change("core:c", Code::Ok).await.is_err());
    let named = |name: &str, outcomes: &[(String, AuditOutcome, bool)]| {
        outcomes.iter().filter(|(it, ..)| it == name).count()
    };
    assert_eq!(named("core:c", &fixture.outcomes().await), 0);
    // Denials are counted meanwhile.
    fixture.audit().deny(vec![denied("ada", 1)]).await.unwrap();

    fixture.settings.max_bytes = 0;
    fixture.reopen().await;
    fixture.change("core:c", Code::Ok).await.unwrap();
    let outcomes = fixture.outcomes().await;
    assert_eq!(named("core:c", &outcomes), 1);
    let intents = AuditFilter {
        kind: AuditKind::ChangeIntended,
        ..AuditFilter::default()
    };
    assert_eq!(fixture.records(&intents).await.len(), outcomes.len());
    assert_eq!(fixture.audit().verify(&[]).await.fault, None);
}
