//! The runs of the days, and appending to them.
//!
//! A day is a run of kind `audit`. It opens with the head of the day before, and ends with the first record of a
//! later day. Times in the chain never go back, whatever the clock does.

use std::sync::Arc;

use contracts::tavern::registry::v1::{
    AuditDayClosed, AuditDayOpened, AuditEntry, AuditHead, AuditKind, audit_entry::Event,
};
use core_types::{Clock, IdSource, RequestId, RunOwner, Timestamp};
use data_home::{DataHome, HomeError, LogOptions};
use prost::Message;
use run_log::{
    AppendError, CreateError, Created, DeleteError, Event as Logged, Hash, NewEvent, NewRun, Order,
    ReadError, ReopenError, RequestKey, RunFilter, RunLogs, RunState, RunSummary, RunWriter,
    StorageError,
};

use super::failure::AuditFailure;
use crate::tenants::day_of;

/// The log.
pub(crate) const LOG: LogOptions = LogOptions::new("tool-registry.audit.db", "audit");
/// The kind of the runs.
const KIND: &str = "audit";
/// The code of a day that is over.
const OVER: i32 = 1;
/// The number of records after which a head is logged.
const HEAD_RECORDS: u64 = 1_000;
/// The number of records that are read at once.
const PAGE: u64 = 256;
/// The nanoseconds of a day.
const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// The chain of all days. Clone, cheap.
#[derive(Clone)]
pub(crate) struct Chain {
    inner: Arc<Inner>,
}

struct Inner {
    logs: RunLogs,
    /// Held over an append, so that records are in the order of their times.
    day: tokio::sync::Mutex<Day>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

/// The present day.
#[derive(Default)]
struct Day {
    /// Its writer; `None` before the first record of the process, and after doubt.
    writer: Option<RunWriter>,
    /// The number of the day since 1970.
    number: i64,
    last: Timestamp,
    open_changes: u32,
    /// Records that could not be written yet: outcomes of changes that were made.
    waiting: Vec<AuditEntry>,
    /// The number of records since a head was logged.
    unlogged: u64,
}

impl Chain {
    /// Opens the log; its file has at most `max_bytes`, 0 leaves that to the disk.
    pub(super) async fn open(
        home: &DataHome,
        max_bytes: u64,
        (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
    ) -> Result<Self, HomeError> {
        let options = LogOptions {
            max_bytes: (max_bytes > 0).then_some(max_bytes),
            ..LOG
        };
        Ok(Self {
            inner: Arc::new(Inner {
                logs: home.log(options).await?,
                day: tokio::sync::Mutex::default(),
                clock,
                ids,
            }),
        })
    }

    /// Appends events in one commit, after those that wait.
    ///
    /// # Errors
    /// [`AuditFailure`]: none of them is recorded, but for [`AuditFailure::Unknown`].
    pub(super) async fn append(&self, entries: Vec<AuditEntry>) -> Result<(), AuditFailure> {
        let mut day = self.inner.day.lock().await;
        self.write_waiting(&mut day).await?;
        self.write(&mut day, entries).await
    }

    /// Appends the outcome of a change that was made. If that fails, it waits, and no other change begins before.
    pub(super) async fn append_or_wait(&self, entry: AuditEntry) {
        let mut day = self.inner.day.lock().await;
        day.waiting.push(entry);
        if let Err(error) = self.write_waiting(&mut day).await {
            tracing::warn!(%error, "the outcome of a change cannot be recorded yet");
        }
    }

    /// Writes the records that wait.
    pub(super) async fn flush(&self) -> Result<(), AuditFailure> {
        let mut day = self.inner.day.lock().await;
        self.write_waiting(&mut day).await
    }

    async fn write_waiting(&self, day: &mut Day) -> Result<(), AuditFailure> {
        if day.waiting.is_empty() {
            return Ok(());
        }
        self.write(day, day.waiting.clone()).await?;
        day.waiting.clear();
        Ok(())
    }

    async fn write(&self, day: &mut Day, entries: Vec<AuditEntry>) -> Result<(), AuditFailure> {
        let writer = self.today(day).await?;
        let (mut open, count) = (day.open_changes, entries.len() as u64);
        let events = entries.into_iter().map(|mut entry| {
            open = match &entry.event {
                Some(Event::ChangeIntended(_)) => open + 1,
                Some(Event::ChangeEnded(_)) => open.saturating_sub(1),
                _ => open,
            };
            entry.open_changes = open;
            logged(day.last, &entry)
        });
        let events = events.collect();
        if let Err(error) = writer.append(events).await {
            return Err(in_doubt(day, error));
        }
        day.open_changes = open;
        day.unlogged += count;
        if day.unlogged >= HEAD_RECORDS {
            self.log_head_of(day).await;
        }
        Ok(())
    }

    /// Returns the writer of the present day, and sets its time.
    async fn today(&self, day: &mut Day) -> Result<RunWriter, AuditFailure> {
        if day.writer.is_none() {
            self.take_up(day).await?;
        }
        let now = self.inner.clock.now().max(day.last);
        let number = day_of(now);
        let previous = match &day.writer {
            Some(writer) if day.number == number => {
                day.last = now;
                return Ok(writer.clone());
            }
            Some(writer) => {
                let closed = AuditEntry {
                    open_changes: day.open_changes,
                    ..entry(Event::DayClosed(AuditDayClosed {}))
                };
                let finished = writer.finish(OVER, vec![logged(day.last, &closed)]).await;
                finished.map_err(|error| in_doubt(day, error))?;
                day.writer = None;
                self.newest().await?
            }
            None => self.newest().await?,
        };
        let previous = match previous {
            Some(run) => self.head(&run).await?,
            None => None,
        };
        let writer = self
            .create(number, now, (previous, day.open_changes))
            .await?;
        (day.writer, day.number, day.last) = (Some(writer.clone()), number, now);
        Ok(writer)
    }

    /// Takes up the newest day after a start, or after doubt about its end.
    async fn take_up(&self, day: &mut Day) -> Result<(), AuditFailure> {
        let Some(newest) = self.newest().await? else {
            return Ok(());
        };
        let last = self.event(&newest, newest.last_sequence).await?;
        if let Some(last) = &last {
            day.last = day.last.max(last.time);
            day.open_changes = read(last).open_changes;
        }
        day.number = day_of(newest.created);
        if newest.state == RunState::Open {
            let writer = self.inner.logs.reopen(newest.id).await;
            day.writer = Some(writer.map_err(|error| match error {
                ReopenError::Storage(error) => AuditFailure::Storage(error),
                _ => AuditFailure::Unknown,
            })?);
        }
        Ok(())
    }

    async fn create(
        &self,
        number: i64,
        now: Timestamp,
        (previous, open_changes): (Option<AuditHead>, u32),
    ) -> Result<RunWriter, AuditFailure> {
        let name = day_name(number);
        let request_id = RequestId::new(name.clone()).map_err(|_| AuditFailure::Unknown)?;
        let run = NewRun {
            subject: name,
            request: Some(RequestKey {
                scope: KIND.to_owned(),
                request_id,
                body_hash: Hash::of(KIND.as_bytes()),
            }),
            ..NewRun::new(self.inner.ids.next_run(RunOwner::Registry), KIND, now)
        };
        let opened = AuditEntry {
            open_changes,
            ..entry(Event::DayOpened(AuditDayOpened { previous }))
        };
        match self
            .inner
            .logs
            .create(run, vec![logged(now, &opened)])
            .await
        {
            Ok(Created::New(writer)) => Ok(writer),
            Err(CreateError::Storage(error)) => Err(AuditFailure::Storage(error)),
            Ok(Created::Replayed(_)) | Err(_) => Err(AuditFailure::Unknown),
        }
    }

    async fn newest(&self) -> Result<Option<RunSummary>, AuditFailure> {
        let logs = &self.inner.logs;
        let page = logs
            .list(&RunFilter::default(), Order::NewestFirst, None, 1)
            .await?;
        Ok(page.runs.into_iter().next())
    }

    /// Returns the days, the oldest first.
    pub(super) async fn days(&self) -> Result<Vec<RunSummary>, StorageError> {
        let (filter, order) = (RunFilter::default(), Order::OldestFirst);
        let (mut days, mut after) = (Vec::new(), None);
        loop {
            let page = self.inner.logs.list(&filter, order, after.as_ref(), 500);
            let page = page.await?;
            days.extend(page.runs);
            after = page.next;
            if after.is_none() {
                return Ok(days);
            }
        }
    }

    /// Returns the log.
    pub(super) fn logs(&self) -> &RunLogs {
        &self.inner.logs
    }

    /// Returns an event of a day.
    pub(super) async fn event(
        &self,
        day: &RunSummary,
        sequence: u64,
    ) -> Result<Option<Logged>, StorageError> {
        let events = self.inner.logs.read(day.id, sequence.saturating_sub(1), 1);
        match events.await {
            Ok(events) => Ok(events.into_iter().find(|event| event.sequence == sequence)),
            Err(ReadError::NoSuchRun) => Ok(None),
            Err(ReadError::Storage(error)) => Err(error),
        }
    }

    async fn head(&self, day: &RunSummary) -> Result<Option<AuditHead>, StorageError> {
        let last = self.event(day, day.last_sequence).await?;
        Ok(last.map(|last| AuditHead {
            day: day.subject.clone(),
            sequence: last.sequence,
            hash: last.hash.to_string(),
        }))
    }

    /// Hands the records of all days to `take`, the newest first, until it returns false.
    pub(super) async fn backwards(
        &self,
        mut take: impl FnMut(Timestamp, AuditEntry) -> bool,
    ) -> Result<(), AuditFailure> {
        for day in self.days().await?.into_iter().rev() {
            let mut end = day.last_sequence;
            while end > 0 {
                let after = end.saturating_sub(PAGE);
                let events =
                    self.inner
                        .logs
                        .read(day.id, after, usize::try_from(PAGE).unwrap_or(1));
                let events = events.await.map_err(|error| match error {
                    ReadError::Storage(error) => AuditFailure::Storage(error),
                    ReadError::NoSuchRun => AuditFailure::Unknown,
                })?;
                for event in events.iter().rev().filter(|event| event.sequence <= end) {
                    if !take(event.time, read(event)) {
                        return Ok(());
                    }
                }
                end = after;
            }
        }
        Ok(())
    }

    /// Logs the head if there are records since the last time.
    pub(super) async fn log_head(&self) {
        let mut day = self.inner.day.lock().await;
        if day.unlogged > 0 {
            self.log_head_of(&mut day).await;
        }
    }

    async fn log_head_of(&self, day: &mut Day) {
        let newest = self.newest().await;
        let head = match newest {
            Ok(Some(newest)) => self.head(&newest).await.ok().flatten(),
            Ok(None) | Err(_) => None,
        };
        if let Some(AuditHead {
            day: name,
            sequence,
            hash,
        }) = head
        {
            // One word, whatever form the log has.
            tracing::info!(target: "tavern::audit::checkpoint", "audit-head={name}:{sequence}:{hash}");
            day.unlogged = 0;
        }
    }

    /// Deletes the days that ended before a time, the oldest first. Returns their number.
    pub(super) async fn delete_before(&self, before: Timestamp) -> Result<u64, StorageError> {
        let mut deleted = 0;
        for day in self.days().await? {
            if day.finished.is_none_or(|finished| finished >= before) {
                break;
            }
            match self.inner.logs.forget(day.id).await {
                Ok(()) | Err(DeleteError::NoSuchRun) => deleted += 1,
                Err(DeleteError::Open) => break,
                Err(DeleteError::Storage(error)) => return Err(error),
            }
        }
        if deleted > 0 {
            run_log::retention::in_steps(|| self.inner.logs.reclaim()).await?;
        }
        Ok(deleted)
    }

    pub(super) async fn close(&self) {
        self.inner.logs.close().await;
    }
}

/// Makes an entry in the trace of the caller.
pub(super) fn entry(event: Event) -> AuditEntry {
    AuditEntry {
        open_changes: 0,
        trace_id: telemetry::context::current_trace_id(),
        event: Some(event),
    }
}

/// Reads an entry; one that is damaged is empty, and `verify` finds it.
pub(super) fn read(event: &Logged) -> AuditEntry {
    AuditEntry::decode(event.payload.clone()).unwrap_or_default()
}

/// Returns the kind of an entry.
pub(super) fn kind(entry: &AuditEntry) -> AuditKind {
    match &entry.event {
        Some(Event::DayOpened(_)) => AuditKind::DayOpened,
        Some(Event::ChangeIntended(_)) => AuditKind::ChangeIntended,
        Some(Event::ChangeEnded(_)) => AuditKind::ChangeEnded,
        Some(Event::Denied(_)) => AuditKind::Denied,
        Some(Event::DayClosed(_)) => AuditKind::DayClosed,
        None => AuditKind::Unspecified,
    }
}

/// Returns the name of a day by its number since 1970.
pub(super) fn day_name(number: i64) -> String {
    let begin = Timestamp::from_unix_nanos(number.saturating_mul(DAY));
    let (seconds, nanos) = begin.seconds_and_nanos();
    let text = prost_types::Timestamp { seconds, nanos }.to_string();
    text.chars().take(10).collect()
}

fn logged(time: Timestamp, entry: &AuditEntry) -> NewEvent {
    NewEvent::new(time, kind(entry).into(), entry.encode_to_vec())
}

/// Forgets the writer after an error that leaves doubt: the next record takes the day up again.
fn in_doubt(day: &mut Day, error: AppendError) -> AuditFailure {
    if !matches!(error, AppendError::Storage(_)) {
        day.writer = None;
    }
    error.into()
}
