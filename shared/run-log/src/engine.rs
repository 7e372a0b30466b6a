//! The work of every run log that does not depend on its storage.

use std::sync::Arc;

use core_types::{Durability, RequestId, RunId, Tenant, Timestamp};
use tokio::sync::oneshot;

use crate::{
    AppendError, CreateError, Created, DeleteError, Event, Fault, Follower, NewEvent, NewRun,
    Order, Owners, ReadError, ReopenError, Reopened, RequestKey, RunCursor, RunFilter, RunPage,
    RunState, RunSummary, RunWriter, StorageError, Verification,
    cell::{ChainPosition, Purpose, Registry, RunCell},
    event::Head,
    keys::Keys,
    limits::{self, MAX_PAGE_RUNS, MAX_READ_BYTES, MAX_READ_EVENTS},
    sink::Sink,
    step::{Deletion, RunRow, Step, StepError, Store, Tail},
};

/// The most events of a deleted run that are deleted in one commit.
const DELETED_TOGETHER: u64 = 4_096;

/// The process that holds a run after an attempt to take it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Here,
    Elsewhere,
}

/// A run log over a place to read from and a place to write to.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    sink: Sink,
    pub(crate) registry: Arc<Registry>,
    keys: Keys,
}

impl Engine {
    /// Makes a log of its two places.
    pub(crate) fn new(store: Arc<dyn Store>, sink: Sink, keys: Keys) -> Self {
        Self {
            store,
            sink,
            registry: Arc::default(),
            keys,
        }
    }

    pub(crate) async fn create(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<Created, CreateError> {
        let bytes = limits::check_run(&run, &first).map_err(CreateError::Invalid)?;
        let (request, durability) = (run.request.clone(), run.durability);
        let tenant = run.owner.tenant();
        if let Some(created) = self.replay(tenant, request.as_ref()).await? {
            return Ok(created);
        }
        let writer = self.writer(run.id, durability).await?;
        let (reply, answer) = oneshot::channel();
        let stored = match self.send_new(&writer, run, first, bytes, Some(reply)).await {
            Ok(()) => answer.await.unwrap_or(Err(AppendError::Unknown.into())),
            Err(error) => Err(error.into()),
        };
        match stored {
            Ok(()) => Ok(Created::New(writer)),
            Err(error) => {
                writer.cell().chain().abandon();
                match error {
                    // Another call with the same request id was faster, or the run id is taken.
                    StepError::Duplicate => self
                        .replay(tenant, request.as_ref())
                        .await?
                        .ok_or(CreateError::RunExists),
                    StepError::Append(AppendError::Storage(error)) => Err(error.into()),
                    StepError::HeldElsewhere => Err(StorageError::Closed.into()),
                    StepError::Append(_) => Err(CreateError::Unknown),
                }
            }
        }
    }

    pub(crate) async fn create_in_batch(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<RunWriter, CreateError> {
        let bytes = limits::check_run(&run, &first).map_err(CreateError::Invalid)?;
        let writer = self.writer(run.id, run.durability).await?;
        match self.send_new(&writer, run, first, bytes, None).await {
            Ok(()) => Ok(writer),
            Err(error) => {
                writer.cell().chain().abandon();
                match error {
                    AppendError::Storage(error) => Err(error.into()),
                    _ => Err(CreateError::Unknown),
                }
            }
        }
    }

    /// Acquires a run without an owner, to create it.
    async fn writer(&self, run: RunId, durability: Durability) -> Result<RunWriter, CreateError> {
        let key = self.keys.next().await?;
        let cell = self.registry.cell(run);
        let lease = cell.chain().begin().ok_or(CreateError::RunExists)?;
        let sink = self.sink.clone();
        Ok(RunWriter::new(cell, key, lease, sink, durability))
    }

    /// Sends the creation of a run; without `reply` it may wait for others.
    async fn send_new(
        &self,
        writer: &RunWriter,
        run: NewRun,
        first: Vec<NewEvent>,
        bytes: usize,
        reply: Option<oneshot::Sender<Result<(), StepError>>>,
    ) -> Result<(), AppendError> {
        let slot = self.sink.reserve(bytes).await.map_err(AppendError::from)?;
        let cell = writer.cell();
        let mut chain = cell.chain();
        let assigned = chain.assign(writer.lease(), run.id, first, Purpose::Append)?;
        let step = Step {
            cell: Arc::clone(cell),
            key: writer.key(),
            epoch: assigned.epoch,
            create: Some(Box::new(run)),
            events: assigned.events,
            finish: None,
            phase: None,
            takes_over: false,
            deletion: None,
            place: assigned.place,
            may_wait: reply.is_none(),
            reply,
            room: None,
        };
        slot.send(step, &mut chain);
        Ok(())
    }

    /// Finds the run that a request made before.
    async fn replay(
        &self,
        tenant: Tenant,
        request: Option<&RequestKey>,
    ) -> Result<Option<Created>, CreateError> {
        let Some(request) = request else {
            return Ok(None);
        };
        let found = self
            .store
            .row_by_request(tenant, &request.scope, &request.request_id);
        match found.await? {
            None => Ok(None),
            Some(row) if row.deleted => Err(CreateError::RequestOfDeletedRun {
                run: row.summary.id,
                owner: row.summary.owner,
            }),
            Some(row) => replayed(row.summary, request).map(Some),
        }
    }

    pub(crate) async fn reopen(&self, run: RunId) -> Result<RunWriter, ReopenError> {
        let row = self
            .row_of_any_owner(run)
            .await?
            .ok_or(ReopenError::NoSuchRun)?;
        let reopened = self.reopen_listed(&row.summary, 1).await?;
        Ok(reopened.writer)
    }

    pub(crate) async fn reopen_listed(
        &self,
        run: &RunSummary,
        newest: usize,
    ) -> Result<Reopened, ReopenError> {
        if run.state != RunState::Open {
            return Err(ReopenError::Finished);
        }
        let cell = self.registry.cell(run.id);
        let lease = cell.chain().seize();
        let held = self.send(&cell, run.key, None).await?;
        // Steps queued before the seizure are now stored or rejected, so this is the truth.
        let newest = newest.clamp(1, MAX_READ_EVENTS);
        let tail = self.store.tail(run.key, newest, MAX_READ_BYTES);
        let Tail { ended, events } = tail.await?.ok_or(ReopenError::NoSuchRun)?;
        let head = events.last().map_or(Head::empty(), Event::head);
        if !cell.chain().resume(lease, ChainPosition { head, ended }) {
            return Err(ReopenError::Fenced);
        }
        cell.advance(head.sequence, ended);
        if ended {
            return Err(ReopenError::Finished);
        }
        if held == Held::Elsewhere {
            return Err(ReopenError::Fenced);
        }
        let (sink, durability) = (self.sink.clone(), run.durability);
        let writer = RunWriter::new(cell, run.key, lease, sink, durability);
        Ok(Reopened { writer, events })
    }

    /// Deletes a finished run: it is hidden at once, and then its events go in bounded portions, so
    /// that no other run waits long for its commit.
    pub(crate) async fn delete(&self, run: RunId) -> Result<(), DeleteError> {
        let cell = self.registry.cell(run);
        let row = self
            .row_of_any_owner(run)
            .await?
            .ok_or(DeleteError::NoSuchRun)?;
        if row.summary.state == RunState::Open {
            return Err(DeleteError::Open);
        }
        self.send_deletion(&cell, row.key, Deletion::Hide).await?;
        let last = row.summary.last_sequence;
        self.delete_hidden(&cell, row.key, last).await?;
        Ok(())
    }

    /// Deletes a finished run with the name of its request; a small run in one commit.
    pub(crate) async fn forget(&self, run: RunId) -> Result<(), DeleteError> {
        let cell = self.registry.cell(run);
        let row = self
            .row_of_any_owner(run)
            .await?
            .ok_or(DeleteError::NoSuchRun)?;
        if row.summary.state == RunState::Open {
            return Err(DeleteError::Open);
        }
        let last = row.summary.last_sequence;
        if last > DELETED_TOGETHER {
            self.send_deletion(&cell, row.key, Deletion::Hide).await?;
            self.delete_events(&cell, row.key, last).await?;
        }
        Ok(self.send_deletion(&cell, row.key, Deletion::Forget).await?)
    }

    /// Deletes the remaining events of a hidden run.
    pub(crate) async fn delete_hidden(
        &self,
        cell: &Arc<RunCell>,
        key: i64,
        last: u64,
    ) -> Result<(), StorageError> {
        self.delete_events(cell, key, last).await?;
        self.send_deletion(cell, key, Deletion::Run).await
    }

    /// Deletes the events of a hidden run in portions.
    async fn delete_events(
        &self,
        cell: &Arc<RunCell>,
        key: i64,
        last: u64,
    ) -> Result<(), StorageError> {
        let mut up_to = 0;
        while up_to < last {
            up_to = last.min(up_to + DELETED_TOGETHER);
            let events = Deletion::Events { up_to };
            self.send_deletion(cell, key, events).await?;
        }
        Ok(())
    }

    /// Sends a deletion, as [`Engine::send`] does.
    async fn send_deletion(
        &self,
        cell: &Arc<RunCell>,
        key: i64,
        deletion: Deletion,
    ) -> Result<(), StorageError> {
        match self.send(cell, key, Some(deletion)).await? {
            Held::Here => Ok(()),
            Held::Elsewhere => Err(StorageError::Closed),
        }
    }

    /// Sends a deletion, or what takes a run over, and waits until it and everything queued before is dealt with.
    async fn send(
        &self,
        cell: &Arc<RunCell>,
        key: i64,
        deletion: Option<Deletion>,
    ) -> Result<Held, StorageError> {
        let slot = self.sink.reserve(0).await?;
        let (reply, answer) = oneshot::channel();
        {
            let mut chain = cell.chain();
            let step = Step {
                cell: Arc::clone(cell),
                key,
                epoch: chain.epoch(),
                create: None,
                events: Vec::new(),
                finish: None,
                phase: None,
                takes_over: deletion.is_none(),
                deletion,
                place: chain.durable(),
                reply: Some(reply),
                may_wait: false,
                room: None,
            };
            slot.send(step, &mut chain);
        }
        match answer.await {
            // A rejection means that another writer seized the run meanwhile; `resume` notices. No
            // writer seizes a run that has ended.
            Ok(Ok(()) | Err(StepError::Duplicate | StepError::Append(AppendError::Fenced))) => {
                Ok(Held::Here)
            }
            Ok(Err(StepError::HeldElsewhere)) => Ok(Held::Elsewhere),
            Ok(Err(StepError::Append(AppendError::Storage(error)))) => Err(error),
            Ok(Err(StepError::Append(_))) | Err(_) => Err(StorageError::Closed),
        }
    }

    pub(crate) async fn close(&self) {
        self.store.close(&self.registry).await;
    }

    pub(crate) async fn due(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StorageError> {
        self.store.due(now, limit.clamp(1, MAX_PAGE_RUNS)).await
    }

    pub(crate) async fn summary(
        &self,
        run: RunId,
        owners: &Owners,
    ) -> Result<Option<RunSummary>, StorageError> {
        Ok(self.store.row(run, owners).await?.map(|row| row.summary))
    }

    /// Returns a run of any owner, for work on a run that was looked up for its reader before.
    async fn row_of_any_owner(&self, run: RunId) -> Result<Option<RunRow>, StorageError> {
        self.store.row(run, &Owners::All).await
    }

    pub(crate) async fn by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunSummary>, StorageError> {
        let row = self.store.row_by_request(tenant, scope, request_id);
        let row = row.await?;
        Ok(row.filter(|row| !row.deleted).map(|row| row.summary))
    }

    pub(crate) async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        self.store
            .list(filter, order, after, limit.clamp(1, MAX_PAGE_RUNS))
            .await
    }

    pub(crate) async fn read(
        &self,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let limit = limit.clamp(1, MAX_READ_EVENTS);
        let events = self.store.page_of(run, after, limit, MAX_READ_BYTES);
        let events = events.await?;
        if events.is_empty() {
            self.row_of_any_owner(run)
                .await?
                .ok_or(ReadError::NoSuchRun)?;
        }
        Ok(events)
    }

    pub(crate) async fn follow(&self, run: RunId, after: u64) -> Result<Follower, ReadError> {
        // The cell first: events committed after the row was read then reach the follower.
        let cell = self.registry.cell(run);
        let row = self
            .row_of_any_owner(run)
            .await?
            .ok_or(ReadError::NoSuchRun)?;
        Ok(Follower::new(cell, Arc::clone(&self.store), &row, after))
    }

    pub(crate) async fn verify(&self, run: RunId) -> Result<Verification, ReadError> {
        let row = self
            .row_of_any_owner(run)
            .await?
            .ok_or(ReadError::NoSuchRun)?;
        let mut head = Head::empty();
        loop {
            let events = self
                .store
                .page(row.key, head.sequence, 256, MAX_READ_BYTES)
                .await?;
            if events.is_empty() {
                break;
            }
            for event in events {
                let sequence = head.sequence + 1;
                if event.sequence != sequence {
                    return Ok(Verification::Broken {
                        sequence,
                        fault: Fault::Missing,
                    });
                }
                if !event.continues(head.hash, run) {
                    return Ok(Verification::Broken {
                        sequence,
                        fault: Fault::HashMismatch,
                    });
                }
                head = event.head();
            }
        }
        Ok(match row.end {
            _ if row.summary.state == RunState::Open => intact(head),
            Some(end) if end == head => intact(head),
            Some(end) if end.sequence > head.sequence => Verification::Broken {
                sequence: head.sequence + 1,
                fault: Fault::Missing,
            },
            end => {
                let sequence = end.map_or(head.sequence, |end| end.sequence);
                Verification::Broken {
                    sequence,
                    fault: Fault::EndMismatch,
                }
            }
        })
    }
}

/// Answers a repeated request with the run that it created, unless its body differs now.
pub(crate) fn replayed(summary: RunSummary, request: &RequestKey) -> Result<Created, CreateError> {
    let body = summary.request.as_ref().map(|request| request.body_hash);
    if body == Some(request.body_hash) {
        Ok(Created::Replayed(summary))
    } else {
        Err(CreateError::RequestIdConflict {
            run: summary.id,
            owner: summary.owner,
        })
    }
}

fn intact(head: Head) -> Verification {
    Verification::Intact {
        events: head.sequence,
        head: head.hash,
    }
}
