//! Admits sessions.

use std::{sync::Arc, time::Instant};

use core_types::{Clock as _, IdSource as _, SystemClock, SystemIds};
use grpc_kit::CallContext;
use sandbox_engine::{
    domain::{limits::Limits, script::Script},
    run::{self, Job, Origin},
    runtimes::{Interpreter, Runtime},
    slot::HostResources,
};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::Sandbox;
use crate::{
    audit::Record,
    domain::session::{CPU_TIME, SessionInfo, SessionState},
    error::Refusal,
    runner::session::{
        Actor, Admitted, OF_ALL, ResultStore, SessionLookup, SessionName, SessionOrigin,
        SessionRequest, Sessions, session_io,
    },
};

impl Sandbox {
    /// Every session.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Checks whether the tenant of a session may run a cell.
    ///
    /// # Errors
    /// The tenant has no seconds left in the present day, or is closed.
    pub(crate) fn admit_cell(&self, session: &SessionInfo) -> Result<(), Refusal> {
        let tenant = session.owner.principal().tenant();
        self.still_serves(tenant)?;
        Ok(self.shares.check_seconds(tenant)?)
    }

    /// The limits of a session that names none, and the greatest that it can choose.
    pub fn session_limits(&self) -> (Limits, Limits) {
        let (default, maximum) = self.streamed_limits();
        let cpu_time = |cpu_time, limits| Limits { cpu_time, ..limits };
        (
            cpu_time(CPU_TIME.default, default),
            cpu_time(CPU_TIME.maximum, maximum),
        )
    }

    /// Makes or finds a session and waits until it is ready; returns it with its origin.
    ///
    /// # Errors
    /// Fails when it is refused, or its interpreter did not become ready.
    pub async fn create_session(
        &self,
        context: &CallContext,
        digest: [u8; 32],
        request: SessionRequest,
    ) -> Result<(SessionInfo, SessionOrigin), Refusal> {
        let request_id = request.request_id;
        let id = format!("sess_{}", SystemIds.next_uuid().simple());
        let mut record = Record::of_session(&id, &request_id, &request.script);
        let means = self.session_means(&request.script);
        let (tools, runtime, interpreter) = means.map_err(|refusal| record.refused(refusal))?;
        // Before another session makes room for this one.
        let held = self
            .hold_packages(&request.script, runtime, interpreter, Some(&id))
            .await;
        let (packages, interpreter) = held.map_err(|refusal| record.refused(refusal))?;
        let view = SessionInfo {
            id: id.clone(),
            owner: request.script.owner.clone(),
            runtime: runtime.profile.name.clone(),
            packages: request.script.packages.clone(),
            key: request.key,
            state: SessionState::Starting,
            limits: request.limits,
            idle_time: request.idle_time,
            total_time: request.total_time,
            created: SystemClock.now().unix_nanos(),
            cells: 0,
            idle_since: 0,
            evictable: request.evictable,
            isolation: tools.backend.level,
            missing: Vec::new(),
            enforcement: self.engine.report.enforcement,
        };
        let found = self.look_up_session((&request_id, digest), &view).await;
        let caller_id = view.owner.caller_id();
        let named = |id| SessionName {
            context,
            caller_id,
            id,
        };
        let mut admitted = match found.map_err(|refusal| record.refused(refusal))? {
            SessionLookup::New(admitted) => *admitted,
            SessionLookup::Replayed(id) => {
                record.replayed();
                let replayed = self.sessions.ready(named(&id)).await?;
                return Ok((replayed, SessionOrigin::Replayed));
            }
            SessionLookup::Found(id) => {
                record.replayed();
                let found = self.sessions.ready(named(&id)).await?;
                return Ok((living(found)?, SessionOrigin::Found));
            }
        };
        let predecessor = admitted.predecessor.take();
        // If the caller goes and cannot return to the session, the session is forgotten.
        let mut forget = ForgetOnDrop {
            sessions: &self.sessions,
            id: Some(&id),
        };
        let script = Arc::new(request.script);
        let blobs = self.hold_blobs(&script).await;
        let blobs = blobs.map_err(|refusal| record.refused(refusal))?;
        let user = tools.users.take();
        let user = user.map_err(|_| record.refused(self.busy()))?;
        let job = Job {
            script,
            blobs,
            profile: runtime.profile.clone(),
            interpreter: interpreter.clone(),
            packages,
            origin: Origin::Driver(user),
            accepted: Instant::now(),
        };
        record.admitted(&runtime.profile.name);
        self.start(admitted, job, tools.clone(), record);
        if !request_id.is_empty() || !view.key.is_empty() {
            forget.id = None;
        }
        let ready = self.sessions.ready(named(&id)).await?;
        let ready = living(ready).inspect_err(|_| forget.id = Some(&id))?;
        forget.id = None;
        drop(forget);
        Ok((ready, SessionOrigin::New { predecessor }))
    }

    /// Finds a session, or makes one, in the place of one that may be ended where there is no room.
    async fn look_up_session(
        &self,
        request: (&str, [u8; 32]),
        view: &SessionInfo,
    ) -> Result<SessionLookup, Refusal> {
        loop {
            let share = || self.shares.take(view.owner.principal().tenant());
            match self.sessions.look_up(request, view.clone(), share) {
                Err(Refusal::Quota { limit, .. })
                    if self.sessions.make_room(limit, &view.owner).await => {}
                Err(Refusal::TenantLimit(_))
                    if self.sessions.make_room(OF_ALL, &view.owner).await => {}
                found => return found,
            }
        }
    }

    /// The tools, the runtime and the interpreter for a session.
    fn session_means(
        &self,
        script: &Script,
    ) -> Result<(&HostResources, &Runtime, &Interpreter), Refusal> {
        let means = self.means_for(script)?;
        let (_, runtime, _) = means;
        if runtime.profile.session.is_none() {
            return Err(Refusal::Runtime {
                runtime: runtime.profile.name.clone(),
                problem: "it holds no sessions; ListRuntimes names those that do".to_owned(),
            });
        }
        Ok(means)
    }

    fn start(&self, admitted: Admitted, job: Job, tools: HostResources, record: Record) {
        let (session_io, channels) = session_io();
        let (cancel, cancelled) = oneshot::channel();
        let span = tracing::info_span!("sandbox.session.live", runtime = job.profile.name);
        let run = async move { run::run(&tools, job, session_io, cancelled).await };
        let store = ResultStore::new(self.blobs.clone(), &admitted.view.borrow().owner);
        let actor = Actor {
            view: admitted.view,
            orders: admitted.orders,
            run: tokio::spawn(run.instrument(span.clone())),
            cancel,
            channels,
            outcome: None,
            record,
            share: admitted.share,
            files: admitted.files,
            store,
        };
        tokio::spawn(actor.live().instrument(span));
    }
}

/// Refuses a session that has ended before it became ready.
fn living(view: SessionInfo) -> Result<SessionInfo, Refusal> {
    match view.end().cloned() {
        None => Ok(view),
        Some(end) => Err(Refusal::SessionEnded {
            id: view.id,
            end: Box::new(end),
        }),
    }
}

/// Forgets a session when it is dropped, which ends the session, unless it was disarmed.
struct ForgetOnDrop<'a> {
    sessions: &'a Sessions,
    id: Option<&'a str>,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.sessions.forget(id);
        }
    }
}
