//! The rows of a group of steps, as arrays that a statement takes apart again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use core_types::{Durability, RunId, Timestamp};
use membership::writer::LOCK;
use sqlx::{Postgres, postgres::PgArguments, query::QueryAs};

use crate::{Event, NewRun, rows::integer, step::Step};

/// The result of a statement: whether the writer's row was found, and the keys of the runs that were made and changed.
pub(super) type Outcome = (i64, Vec<i64>, Vec<i64>);

type Query<'q> = QueryAs<'q, Postgres, Outcome, PgArguments>;

/// The events of a group, in the order of their runs.
pub(super) struct Events<'a>(Vec<(i64, &'a Event)>);

impl<'a> Events<'a> {
    pub(super) fn of(steps: impl Iterator<Item = &'a Step>) -> Self {
        let events = steps.flat_map(|step| step.events.iter().map(|event| (step.key, event)));
        let mut events: Vec<_> = events.collect();
        events.sort_by_key(|(run, event)| (*run, event.sequence));
        Self(events)
    }

    pub(super) fn runs(&self) -> Vec<i64> {
        self.0.iter().map(|(run, _)| *run).collect()
    }

    pub(super) fn sequences(&self) -> Vec<i64> {
        self.0
            .iter()
            .map(|(_, event)| integer(event.sequence))
            .collect()
    }

    pub(super) fn hashes(&self) -> Vec<&'a [u8]> {
        self.0.iter().map(|(_, event)| &event.hash.0[..]).collect()
    }

    /// Binds the columns `run`, `sequence`, `time`, `kind`, `payload` and `hash`.
    pub(super) fn bind<'q>(&self, query: Query<'q>) -> Query<'q>
    where
        'a: 'q,
    {
        let times: Vec<i64> = self
            .0
            .iter()
            .map(|(_, event)| event.time.unix_nanos())
            .collect();
        let kinds: Vec<i32> = self.0.iter().map(|(_, event)| event.kind).collect();
        let payloads: Vec<&[u8]> = self.0.iter().map(|(_, event)| &event.payload[..]).collect();
        query
            .bind(self.runs())
            .bind(self.sequences())
            .bind(times)
            .bind(kinds)
            .bind(payloads)
            .bind(self.hashes())
    }
}

/// The changes of a group to one run.
#[derive(Clone, Copy, Default)]
struct Change {
    takes_over: bool,
    phase: Option<i32>,
    /// Whether the time of its rest is set, or ended.
    sets_due: bool,
    due: Option<i64>,
    end: Option<End>,
}

#[derive(Clone, Copy)]
struct End {
    state: i32,
    finished: i64,
    sequence: i64,
    hash: [u8; 32],
}

impl Change {
    /// Adds a later step; of several changes of one column the last counts.
    fn add(&mut self, step: &Step) {
        if step.takes_over {
            self.takes_over = true;
            (self.sets_due, self.due) = (true, None);
        }
        if let Some(phase) = step.phase {
            self.phase = Some(phase.code);
            (self.sets_due, self.due) = (true, phase.due.map(Timestamp::unix_nanos));
        }
        if let Some(finish) = step.finish {
            let head = step.place.head;
            self.end = Some(End {
                state: finish.state,
                finished: finish.time.unix_nanos(),
                sequence: integer(head.sequence),
                hash: head.hash.0,
            });
        }
    }

    fn changes(step: &Step) -> bool {
        step.takes_over || step.phase.is_some() || step.finish.is_some()
    }
}

/// The runs that a group creates, with the changes of its later steps to them: a statement does not see its own rows.
pub(super) struct NewRuns<'a>(Vec<(i64, &'a NewRun, Change)>);

/// The changes of a group to runs that it does not create.
pub(super) struct Changes(Vec<(i64, Change)>);

fn changes_of<'a>(steps: impl Iterator<Item = &'a Step>) -> BTreeMap<i64, Change> {
    let mut changes: BTreeMap<i64, Change> = BTreeMap::new();
    for step in steps.filter(|step| Change::changes(step)) {
        changes.entry(step.key).or_default().add(step);
    }
    changes
}

impl<'a> NewRuns<'a> {
    pub(super) fn of(steps: impl Iterator<Item = &'a Step> + Clone) -> Self {
        let changes = changes_of(steps.clone());
        let new = steps.filter_map(|step| Some((step.key, step.create.as_deref()?)));
        let mut new: Vec<_> = new
            .map(|(key, run)| (key, run, changes.get(&key).copied().unwrap_or_default()))
            .collect();
        new.sort_by_key(|(key, ..)| *key);
        Self(new)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, key: i64) -> bool {
        self.0.binary_search_by_key(&key, |(key, ..)| *key).is_ok()
    }

    fn column<T>(&self, value: impl Fn(&'a NewRun) -> T) -> Vec<T> {
        self.0.iter().map(|(_, run, _)| value(run)).collect()
    }

    fn changed<T>(&self, value: impl Fn(&Change) -> T) -> Vec<T> {
        self.0.iter().map(|(.., change)| value(change)).collect()
    }

    /// Binds the columns of `new` in [`MIXED`].
    pub(super) fn bind<'q>(&self, query: Query<'q>) -> Query<'q>
    where
        'a: 'q,
    {
        let text = |id: Option<RunId>| id.map(|id| id.to_string());
        let keys: Vec<i64> = self.0.iter().map(|(key, ..)| *key).collect();
        let query = query
            .bind(keys)
            .bind(self.column(|run| run.id.to_string()))
            .bind(self.column(|run| run.owner.tenant().to_string()))
            .bind(self.column(|run| run.owner.as_str()))
            .bind(self.column(|run| run.kind.as_str()))
            .bind(self.column(|run| run.subject.as_str()))
            .bind(self.column(|run| run.conversation.as_str()))
            .bind(self.column(|run| run.request.as_ref().map(|request| request.scope.as_str())))
            .bind(self.column(|run| {
                run.request
                    .as_ref()
                    .map(|request| request.request_id.as_str())
            }))
            .bind(self.column(|run| run.request.as_ref().map(|request| &request.body_hash.0[..])))
            .bind(self.column(|run| text(run.parent)))
            .bind(self.column(|run| text(run.forks)))
            .bind(self.column(|run| run.durability != Durability::Sync))
            .bind(self.column(|run| run.created.unix_nanos()))
            .bind(self.column(|run| run.deadline.map(Timestamp::unix_nanos)))
            .bind(self.column(|run| &run.meta[..]));
        query
            .bind(self.changed(|change| change.phase.unwrap_or_default()))
            .bind(self.changed(|change| change.due))
            .bind(self.changed(|change| change.end.map(|end| end.state)))
            .bind(self.changed(|change| change.end.map(|end| end.finished)))
            .bind(self.changed(|change| change.end.map(|end| end.sequence)))
            .bind(self.changed(|change| change.end.map(|end| end.hash.to_vec())))
    }
}

impl Changes {
    pub(super) fn of<'a>(steps: impl Iterator<Item = &'a Step> + Clone) -> Self {
        let new = steps.clone().filter(|step| step.create.is_some());
        let new: BTreeSet<i64> = new.map(|step| step.key).collect();
        let changes = changes_of(steps).into_iter();
        Self(changes.filter(|(key, _)| !new.contains(key)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn column<T>(&self, value: impl Fn(&Change) -> T) -> Vec<T> {
        self.0.iter().map(|(_, change)| value(change)).collect()
    }

    /// Binds the columns of `change` in [`MIXED`].
    pub(super) fn bind<'q>(&self, query: Query<'q>) -> Query<'q> {
        let keys: Vec<i64> = self.0.iter().map(|(key, _)| *key).collect();
        query
            .bind(keys)
            .bind(self.column(|change| change.takes_over))
            .bind(self.column(|change| change.phase))
            .bind(self.column(|change| change.sets_due))
            .bind(self.column(|change| change.due))
            .bind(self.column(|change| change.end.map(|end| end.state)))
            .bind(self.column(|change| change.end.map(|end| end.finished)))
            .bind(self.column(|change| change.end.map(|end| end.sequence)))
            .bind(self.column(|change| change.end.map(|end| end.hash.to_vec())))
    }
}

/// The statement for a group that only appends events.
pub(super) static EVENTS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH fence AS MATERIALIZED ({LOCK}), stored AS (INSERT INTO events \
         SELECT e.* FROM fence, unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], $7::bytea[], \
         $8::bytea[]) AS e) \
         SELECT count(*), '{{}}'::bigint[], '{{}}'::bigint[] FROM fence"
    )
});

/// The statement for a group that creates, changes or ends runs beside its events. A run that rests or has ended has no
/// holder; one is taken over only if no other member holds it.
pub(super) static MIXED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH fence AS MATERIALIZED ({LOCK}), \
         created AS (INSERT INTO runs (key, id, tenant, principal, kind, subject, conversation, scope, request_id, \
             body_hash, parent, forks, batched, created, deadline, meta, phase, due, state, finished, end_sequence, \
             end_hash, log, holder) \
             SELECT new.*, $10, CASE WHEN new.due IS NULL AND new.state IS NULL THEN $9 END FROM fence, unnest( \
             $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], \
             $18::text[], $19::text[], $20::bytea[], $21::text[], $22::text[], $23::boolean[], $24::bigint[], \
             $25::bigint[], $26::bytea[], $27::integer[], $28::bigint[], $29::integer[], $30::bigint[], \
             $31::bigint[], $32::bytea[]) \
             AS new (key, id, tenant, principal, kind, subject, conversation, scope, request_id, body_hash, parent, \
             forks, batched, created, deadline, meta, phase, due, state, finished, end_sequence, end_hash) \
             ON CONFLICT DO NOTHING RETURNING key), \
         changed AS (UPDATE runs SET phase = coalesce(change.phase, runs.phase), \
             due = CASE WHEN change.sets_due THEN change.due ELSE runs.due END, \
             state = change.state, finished = change.finished, end_sequence = change.end_sequence, \
             end_hash = change.end_hash, \
             holder = CASE WHEN change.state IS NOT NULL OR change.due IS NOT NULL THEN NULL \
                 WHEN change.takes_over THEN $9 ELSE runs.holder END \
             FROM fence, unnest($33::bigint[], $34::boolean[], $35::integer[], $36::boolean[], $37::bigint[], \
             $38::integer[], $39::bigint[], $40::bigint[], $41::bytea[]) \
             AS change (key, takes_over, phase, sets_due, due, state, finished, end_sequence, end_hash) \
             WHERE runs.key = change.key AND runs.state IS NULL \
             AND (runs.holder IS NULL OR runs.holder = $9) RETURNING runs.key), \
         stored AS (INSERT INTO events SELECT e.* FROM fence, unnest($3::bigint[], $4::bigint[], $5::bigint[], \
             $6::integer[], $7::bytea[], $8::bytea[]) AS e (run, sequence, time, kind, payload, hash) \
             WHERE e.run <> ALL ($11) OR e.run IN (SELECT key FROM created)) \
         SELECT (SELECT count(*) FROM fence), ARRAY(SELECT key FROM created), ARRAY(SELECT key FROM changed)"
    )
});
