//! Sessions: confined interpreters that run one cell after the other.
//!
//! [`Sessions`] holds and counts all of them. Each is an [`actor`]: a task that owns the channels
//! of one interpreter, sends cells to the driver inside, and ends it when its time is over. The
//! driver is data of the runtime's profile; [`frames`] reads its messages.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use core_types::Tenant;
use futures::future::join_all;
use grpc_kit::CallContext;
use sandbox_engine::domain::{
    limits::Limits, outcome::Captured, owner::Owner, script::Script, workspace::WorkspaceChanges,
};
use tenancy::LimitReached;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tracing::Span;

pub mod frames;

mod actor;
mod cell;
mod channels;
mod command;
mod files;
pub mod results;

use crate::{
    domain::session::{
        CellOutcome, EndReason, Interruption, SessionEnd, SessionInfo, SessionState,
    },
    error::Refusal,
    runner::{
        shares::Share,
        streaming::{StreamHandle, output_queue::OutputQueue},
    },
    settings::SessionSettings,
};
pub(crate) use actor::{Actor, session_io};
use command::{Command, SessionOrder};
pub use files::CellFiles;
pub(crate) use files::{SharedFiles, TakenChanges};
pub(crate) use results::ResultStore;

/// A request for a new session.
#[derive(Debug)]
pub struct SessionRequest {
    /// The driver, with the caller, runtime, files, variables and limits.
    pub script: Script,
    /// The id by which a repeated request finds its session; may be empty.
    pub request_id: String,
    /// The limits, of which the wall time and the output are those of a cell.
    pub limits: Limits,
    /// The longest time without a cell.
    pub idle_time: Duration,
    /// The longest lifetime.
    pub total_time: Duration,
    /// Whether it may be ended for another session while it is idle.
    pub evictable: bool,
    /// Its name among the sessions of its caller, runtime and package set; may be empty.
    pub key: String,
}

/// The name of a session in a request.
#[derive(Clone, Copy, Debug)]
pub struct SessionName<'a> {
    /// The context of the request, which sees the sessions of some principals.
    pub context: &'a CallContext,
    /// The name of the caller among those of the session's principal.
    pub caller_id: &'a str,
    /// The id.
    pub id: &'a str,
}

impl SessionName<'_> {
    /// Whether the request reaches the session of this owner.
    fn reaches(&self, owner: &Owner) -> bool {
        self.context.sees(owner.principal()) && owner.caller_id() == self.caller_id
    }
}

/// An event of a cell, except its output.
#[derive(Clone, Debug)]
pub enum CellEvent {
    /// It was sent to the interpreter.
    Started {
        /// Its number.
        cell: u64,
        /// Its wall time.
        wall_time: Duration,
        /// Its limit on output, in bytes.
        output: usize,
    },
    /// The value of its last expression.
    Value(frames::Value),
    /// Its error.
    Error(frames::CellError),
    /// A result.
    Result(Box<results::CellResult>),
    /// It has ended.
    Ended(Box<CellEnd>),
}

/// The end of a cell.
#[derive(Clone, Debug)]
pub struct CellEnd {
    /// The outcome.
    pub outcome: CellOutcome,
    /// The reason of its interruption, if it was interrupted.
    pub interruption: Option<Interruption>,
    /// The end of the session, if it ended.
    pub session_end: Option<SessionEnd>,
    /// Its wall time.
    pub wall_time: Duration,
    /// The figures of standard output, and the end of the part that was not sent.
    pub stdout: Captured,
    /// The same of standard error.
    pub stderr: Captured,
    /// The changes to the files, where it has a workspace.
    pub workspace: Option<WorkspaceChanges>,
    /// The number of results that were not sent.
    pub dropped_results: u32,
}

/// A cell to run.
#[derive(Debug)]
pub struct CellRequest {
    /// Its code.
    pub source: String,
    /// The session's limits, with the wall time and the output of this cell.
    pub limits: Limits,
    /// The deadline of its caller.
    pub deadline: Instant,
    /// The files of its workspace, to be the same before and after it.
    pub workspace: Option<Box<CellFiles>>,
}

/// One session as the list holds it.
#[derive(Debug)]
struct SessionEntry {
    view: watch::Receiver<SessionInfo>,
    /// `None` once the session was ordered to end. One order waits in the channel, more wait at
    /// their senders.
    orders: Option<mpsc::Sender<SessionOrder>>,
    request: Option<(String, [u8; 32])>,
    files: SharedFiles,
}

/// All sessions.
#[derive(Debug)]
pub struct Sessions {
    settings: SessionSettings,
    /// Locked for a look-up or an insertion only, never across an await.
    entries: Mutex<BTreeMap<String, SessionEntry>>,
}

/// A session that may be started: its quota is taken.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) view: watch::Sender<SessionInfo>,
    pub(crate) orders: mpsc::Receiver<SessionOrder>,
    pub(crate) share: Share,
    pub(crate) files: SharedFiles,
    /// The end of the previous session of the same key, if it is remembered.
    pub(crate) predecessor: Option<SessionEnd>,
}

/// The result of looking up a session.
pub(crate) enum SessionLookup {
    /// The session is new.
    New(Box<Admitted>),
    /// The same request made it before; its id.
    Replayed(String),
    /// A session of the same key lives; its id.
    Found(String),
}

/// The origin of a session.
#[derive(Debug)]
pub enum SessionOrigin {
    /// The request made it.
    New {
        /// The end of the previous session of the same key, if it is remembered.
        predecessor: Option<SessionEnd>,
    },
    /// An earlier request with the same id made it.
    Replayed,
    /// It was found by its key.
    Found,
}

/// The limit on the sessions of one caller, as refusals name it.
const OF_CALLER: &str = "sessions_of_caller";

/// The limit on all sessions, as refusals name it.
pub(crate) const OF_ALL: &str = "sessions";

impl Sessions {
    pub(crate) fn new(settings: SessionSettings) -> Self {
        Self {
            settings,
            entries: Mutex::default(),
        }
    }

    /// Claims a place for a session, for which `share` takes one of the tenant.
    pub(crate) fn look_up(
        &self,
        (request_id, digest): (&str, [u8; 32]),
        view: SessionInfo,
        share: impl FnOnce() -> Result<Share, LimitReached>,
    ) -> Result<SessionLookup, Refusal> {
        let mut entries = self.lock();
        if !request_id.is_empty() {
            let same = |entry: &&SessionEntry| {
                let request = entry.request.as_ref();
                request.is_some_and(|(known, _)| known == request_id)
                    && entry.view.borrow().owner == view.owner
            };
            if let Some(entry) = entries.values().find(same) {
                let known = entry.request.as_ref().is_some_and(|it| it.1 == digest);
                let id = entry.view.borrow().id.clone();
                let request_id = request_id.to_owned();
                return match known {
                    true => Ok(SessionLookup::Replayed(id)),
                    false => Err(Refusal::RequestIdReused { request_id }),
                };
            }
        }
        let mut predecessor: Option<SessionEnd> = None;
        for entry in entries.values() {
            let other = entry.view.borrow();
            match other.end() {
                _ if !view.has_key_of(&other) => {}
                None => return Ok(SessionLookup::Found(other.id.clone())),
                Some(end) if predecessor.as_ref().is_some_and(|last| last.at > end.at) => {}
                Some(end) => predecessor = Some(end.clone()),
            }
        }
        for (limit, maximum, owner) in [
            (OF_CALLER, self.settings.per_caller, Some(&view.owner)),
            (OF_ALL, self.settings.maximum, None),
        ] {
            let maximum = maximum as usize;
            if alive(&entries, owner) >= maximum {
                return Err(Refusal::Quota { limit, maximum });
            }
        }
        let share = share()?;
        forget(&mut entries, self.settings.remembered as usize);
        let (id, view) = (view.id.clone(), watch::Sender::new(view));
        let (send, orders) = mpsc::channel(1);
        let files = SharedFiles::default();
        let entry = SessionEntry {
            files: files.clone(),
            view: view.subscribe(),
            orders: Some(send),
            request: (!request_id.is_empty()).then(|| (request_id.to_owned(), digest)),
        };
        entries.insert(id, entry);
        Ok(SessionLookup::New(Box::new(Admitted {
            view,
            orders,
            share,
            files,
            predecessor,
        })))
    }

    /// Makes room below the limit that a request of `owner` has reached: ends the evictable session that has been idle
    /// longest, of that owner or of the tenant with most sessions, and waits for its end. Returns false if there is
    /// none.
    pub(crate) async fn make_room(&self, limit: &str, owner: &Owner) -> bool {
        loop {
            let Some(id) = evictable(&self.lock(), limit, owner) else {
                return false;
            };
            let (answer, done) = oneshot::channel();
            let command = Command::Evict;
            let ordered = self
                .order(&id, SessionOrder { command, answer }, done)
                .await;
            // A session that runs a cell by now refuses, and stays.
            if ordered.is_err() {
                return true;
            }
        }
    }

    /// Waits until a session is ready or has ended.
    pub(crate) async fn ready(&self, name: SessionName<'_>) -> Result<SessionInfo, Refusal> {
        let mut view = self.view(name)?;
        let started = |view: &SessionInfo| view.state != SessionState::Starting;
        let view = view.wait_for(started).await.map(|view| view.clone());
        view.map_err(|_| Refusal::Lost)
    }

    /// The number of sessions that have not ended.
    pub fn alive(&self) -> usize {
        alive(&self.lock(), None)
    }

    /// The files of a session that are the same as those of its workspace.
    ///
    /// # Errors
    /// Fails when it is unknown.
    pub(crate) fn files(&self, name: SessionName<'_>) -> Result<SharedFiles, Refusal> {
        self.view(name)?;
        let entry = self.lock().get(name.id).map(|entry| entry.files.clone());
        entry.ok_or_else(|| unknown(name.id))
    }

    /// The present state of a session.
    ///
    /// # Errors
    /// Fails when it is unknown.
    pub fn get(&self, name: SessionName<'_>) -> Result<SessionInfo, Refusal> {
        Ok(self.view(name)?.borrow().clone())
    }

    /// The next sessions after `after`, by id, of the owners that `listed` accepts, and whether there are
    /// more.
    pub fn list(
        &self,
        listed: impl Fn(&Owner) -> bool,
        after: Option<&str>,
        most: usize,
    ) -> (Vec<SessionInfo>, bool) {
        let entries = self.lock();
        let mut found: Vec<SessionInfo> = entries
            .iter()
            .filter(|(id, _)| after.is_none_or(|after| id.as_str() > after))
            .map(|(_, entry)| entry.view.borrow().clone())
            .filter(|view| listed(&view.owner))
            .take(most + 1)
            .collect();
        let more = found.len() > most;
        found.truncate(most);
        (found, more)
    }

    /// Runs a cell. Dropping the handle interrupts it.
    ///
    /// # Errors
    /// Fails when the session is unknown, has ended, or runs a cell.
    pub async fn run(
        &self,
        name: SessionName<'_>,
        request: CellRequest,
    ) -> Result<StreamHandle<CellEvent>, Refusal> {
        let queue = OutputQueue::new();
        let (stream, gone) = StreamHandle::new(queue.clone());
        let (answer, accepted) = oneshot::channel();
        let order = SessionOrder {
            command: Command::Run {
                request,
                queue,
                gone,
                span: Span::current(),
            },
            answer,
        };
        self.view(name)?;
        if self.order(name.id, order, accepted).await? {
            return Ok(stream);
        }
        let cell = self.get(name)?.cells;
        let id = name.id.to_owned();
        Err(Refusal::SessionBusy { id, cell })
    }

    /// Interrupts the running cell, and waits for its end. False: none runs.
    ///
    /// # Errors
    /// Fails when the session is unknown or has ended before.
    pub async fn interrupt(&self, name: SessionName<'_>, grace: Duration) -> Result<bool, Refusal> {
        self.view(name)?;
        let (answer, done) = oneshot::channel();
        let command = Command::Interrupt { grace };
        let order = SessionOrder { command, answer };
        self.order(name.id, order, done).await
    }

    /// Ends a session, waits until no process of it is left, and forgets it.
    ///
    /// # Errors
    /// Fails when it is unknown.
    pub async fn delete(&self, name: SessionName<'_>) -> Result<SessionInfo, Refusal> {
        let mut view = self.view(name)?;
        let (answer, done) = oneshot::channel();
        let command = Command::End(EndReason::Deleted);
        let order = SessionOrder { command, answer };
        // An ended session needs no order.
        let _ = self.order(name.id, order, done).await;
        let ended = view.wait_for(|view| view.end().is_some()).await;
        let ended = ended.map(|view| view.clone()).map_err(|_| Refusal::Lost);
        self.lock().remove(name.id);
        ended
    }

    /// Ends every session and waits until no process of any is left.
    pub async fn shutdown(&self) {
        let mut views = Vec::new();
        for entry in self.lock().values_mut() {
            // A session without a sender of orders ends.
            entry.orders = None;
            views.push(entry.view.clone());
        }
        for mut view in views {
            // A session whose task has died has ended as well.
            let _ = view.wait_for(|view| view.end().is_some()).await;
        }
    }

    /// Ends every session of a tenant and waits until no process of any is left.
    pub(crate) async fn end_of(&self, tenant: Tenant) {
        let ids = |entries: &BTreeMap<String, SessionEntry>| -> Vec<String> {
            let alive = entries.iter().filter(|(_, entry)| {
                let view = entry.view.borrow();
                view.end().is_none() && view.owner.principal().tenant() == tenant
            });
            alive.map(|(id, _)| id.clone()).collect()
        };
        let ids = ids(&self.lock());
        let ends = ids.iter().map(|id| {
            let (answer, done) = oneshot::channel();
            let command = Command::End(EndReason::Deleted);
            self.order(id, SessionOrder { command, answer }, done)
        });
        // A session that has ended meanwhile needs no order.
        drop(join_all(ends).await);
    }

    /// Forgets the ended sessions of a tenant.
    pub(crate) fn forget_of(&self, tenant: Tenant) {
        self.lock().retain(|_, entry| {
            let view = entry.view.borrow();
            view.end().is_none() || view.owner.principal().tenant() != tenant
        });
    }

    /// Sends an order and waits for its answer.
    async fn order(
        &self,
        id: &str,
        order: SessionOrder,
        answer: oneshot::Receiver<bool>,
    ) -> Result<bool, Refusal> {
        let (orders, mut view) = {
            let entries = self.lock();
            let entry = entries.get(id).ok_or_else(|| unknown(id))?;
            (entry.orders.clone(), entry.view.clone())
        };
        if let Some(orders) = orders
            && orders.send(order).await.is_ok()
            && let Ok(answer) = answer.await
        {
            return Ok(answer);
        }
        // The task accepts no more orders, and its last view reports the end.
        let ended = view.wait_for(|view| view.end().is_some()).await;
        match ended.as_ref().map(|view| view.end()) {
            Ok(Some(end)) => Err(Refusal::SessionEnded {
                id: id.to_owned(),
                end: Box::new(end.clone()),
            }),
            _ => Err(Refusal::Lost),
        }
    }

    fn view(&self, name: SessionName<'_>) -> Result<watch::Receiver<SessionInfo>, Refusal> {
        let entries = self.lock();
        let entry = entries.get(name.id);
        let own = entry.filter(|entry| name.reaches(&entry.view.borrow().owner));
        Ok(own.ok_or_else(|| unknown(name.id))?.view.clone())
    }

    /// Forgets a session that never became usable.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SessionEntry>> {
        // Every change is complete before anything can panic.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal::SessionNotFound { id: id.to_owned() }
}

/// Returns the session that has been idle longest among those which may be ended for another one of `owner`: of its
/// own ones where its own limit is reached, otherwise of the tenant with most among its own and those with more.
fn evictable(
    entries: &BTreeMap<String, SessionEntry>,
    limit: &str,
    owner: &Owner,
) -> Option<String> {
    let tenant = |owner: &Owner| owner.principal().tenant();
    let mut alive: HashMap<Tenant, usize> = HashMap::new();
    for entry in entries.values() {
        let view = entry.view.borrow();
        if view.end().is_none() {
            *alive.entry(tenant(&view.owner)).or_default() += 1;
        }
    }
    let count = |owner: &Owner| alive.get(&tenant(owner)).copied().unwrap_or_default();
    let idle = entries.values().filter_map(|entry| {
        let view = entry.view.borrow();
        let has_more = || count(&view.owner) > count(owner);
        let counts = match limit {
            OF_CALLER => view.owner == *owner,
            _ => tenant(&view.owner) == tenant(owner) || has_more(),
        };
        let is_idle = view.evictable && view.state == SessionState::Idle;
        let place = || {
            (
                Reverse(count(&view.owner)),
                view.idle_since,
                view.id.clone(),
            )
        };
        (is_idle && counts).then(place)
    });
    idle.min().map(|(_, _, id)| id)
}

/// Counts the sessions of one owner, or of all, that have not ended.
fn alive(entries: &BTreeMap<String, SessionEntry>, owner: Option<&Owner>) -> usize {
    let counts = |entry: &&SessionEntry| {
        let view = entry.view.borrow();
        view.end().is_none() && owner.is_none_or(|owner| view.owner == *owner)
    };
    entries.values().filter(counts).count()
}

/// Forgets ended sessions until there is room for one more, of the tenant that has most of them; the first to end is
/// forgotten first.
fn forget(entries: &mut BTreeMap<String, SessionEntry>, most: usize) {
    let mut ended: BTreeMap<Tenant, BTreeSet<(i64, String)>> = BTreeMap::new();
    for (id, entry) in entries.iter() {
        let view = entry.view.borrow();
        if let Some(end) = view.end() {
            let tenant = view.owner.principal().tenant();
            ended
                .entry(tenant)
                .or_default()
                .insert((end.at, id.clone()));
        }
    }
    let remembered: usize = ended.values().map(BTreeSet::len).sum();
    for _ in 0..(remembered + 1).saturating_sub(most.max(1)) {
        let of_one = ended.values_mut().max_by_key(|of_one| of_one.len());
        if let Some((_, id)) = of_one.and_then(BTreeSet::pop_first) {
            entries.remove(&id);
        }
    }
}
