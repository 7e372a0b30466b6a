//! The interpreters of conversations: one for each conversation and runtime.
//!
//! The sandbox remembers whose an interpreter is, so nothing is kept here and a registry that
//! starts again finds them.

use std::pin::pin;

use call_outcome::{CallOutcome, Failure};
use contracts::tavern::{
    common::v1::{ErrorReason, OutputStream},
    sandbox::v1::{
        CreateSessionRequest, DeleteSessionRequest, Limits, RunCellRequest, Session, SessionState,
        Workspace, session_service_client::SessionServiceClient,
    },
};
use futures::StreamExt;
use grpc_kit::{CallContext, Patience, Transport};
use script_client::{Broken, Cell, CellEvent};
use serde_json::Value;
use tonic::{Code, Status};
use workspace_store::Taken;

use super::{
    CodeFiles, LeftFiles, PATIENCE, code_files::add_room, failure_of, is_lacking_files, lost,
    results,
};
use crate::dispatch::ResolvedCall;

/// The key by which the sandbox finds the interpreter of a conversation.
const KEY: &str = "CodeInterpreter";

/// The reason for a new interpreter where the files did not fit into the one before.
const GROWN: &str = "the files of the conversation need an interpreter with more room";

/// Runs cells in the interpreters of conversations.
#[derive(Clone, Debug)]
pub struct Sessions {
    sandbox: Transport,
}

/// A cell that ran.
#[derive(Debug)]
pub(in crate::dispatch) struct CellRun {
    pub(in crate::dispatch) cell: Cell,
    /// The results that it showed, in order, as the output has them.
    pub(in crate::dispatch) results: Vec<Value>,
    /// Its changes to the files; a failure where none was taken.
    pub(in crate::dispatch) left: Result<LeftFiles, Failure>,
    /// The reason for the end of the previous interpreter, if this one replaced it.
    pub(in crate::dispatch) restarted: Option<String>,
}

/// The interpreter in which a cell runs.
#[derive(Clone, Copy, Debug)]
pub(in crate::dispatch) struct CellPlace<'a> {
    /// The conversation, as the sandbox takes it.
    pub(in crate::dispatch) caller: &'a str,
    pub(in crate::dispatch) runtime: &'a str,
    /// The package set; empty for none.
    pub(in crate::dispatch) packages: &'a str,
}

impl Sessions {
    /// Makes a client.
    pub fn new(sandbox: Transport) -> Self {
        Self { sandbox }
    }

    /// Runs a cell in the caller's interpreter, which is started if there is none.
    ///
    /// # Errors
    /// The outcome of the call when the cell did not run to its end. A cell that may have begun is
    /// in doubt, as its changes to the interpreter stay.
    pub(in crate::dispatch) async fn run_cell(
        &self,
        place: CellPlace<'_>,
        code: &str,
        resolved: &ResolvedCall,
        files: &CodeFiles,
    ) -> Result<CellRun, CallOutcome> {
        let mut patience = Patience::new(PATIENCE, resolved.deadline);
        let (mut ended_meanwhile, mut sendings, mut has_grown) = (false, 0, false);
        loop {
            // Before the files: changes that are taken meanwhile are reported again, and are the same then.
            let taken = files.taken(place.runtime).await;
            let taken = taken.map_err(CallOutcome::Failed)?;
            let wanted = files.wanted().await.map_err(CallOutcome::Failed)?;
            let cell = self.try_cell(place, code, resolved, (files, wanted.clone(), taken));
            let broken = match cell.await {
                Ok(mut ran) => {
                    if has_grown {
                        ran.restarted = Some(GROWN.to_owned());
                    }
                    return Ok(ran);
                }
                Err(broken) => broken,
            };
            if broken.may_have_run {
                return Err(CallOutcome::InDoubt(lost(resolved)));
            }
            // It ended after it was found; the next look does not find it alive.
            let ended = grpc_kit::reason(&broken.status) == Some(ErrorReason::SessionEnded);
            if ended && !std::mem::replace(&mut ended_meanwhile, true) {
                continue;
            }
            if is_without_room(&broken.status) && !has_grown {
                let ended = self.end_idle(place, resolved, &wanted).await;
                ended.map_err(|status| CallOutcome::Failed(failure_of(&status)))?;
                has_grown = true;
                continue;
            }
            if is_lacking_files(&broken.status, &mut sendings) {
                let sent = files.send_missing(&wanted).await;
                sent.map_err(|status| CallOutcome::Failed(failure_of(&status)))?;
                continue;
            }
            if !patience.wait_after(&broken.status).await {
                return Err(CallOutcome::Failed(failure_of(&broken.status)));
            }
        }
    }

    async fn try_cell(
        &self,
        place: CellPlace<'_>,
        code: &str,
        resolved: &ResolvedCall,
        (files, mut wanted, taken): (&CodeFiles, Workspace, Taken),
    ) -> Result<CellRun, Broken> {
        let session = self.session(place, &resolved.context, &wanted).await;
        let (session, restarted) = session.map_err(unharmed)?;
        let is_same = taken.session == session.session_id;
        wanted.taken_cell = Some(if is_same { taken.cell } else { 0 });
        wanted.not_taken = if is_same { taken.not_taken } else { Vec::new() };
        let request = RunCellRequest {
            session_id: session.session_id.clone(),
            caller_id: place.caller.to_owned(),
            source_text: code.to_owned(),
            workspace: Some(wanted),
            ..RunCellRequest::default()
        };
        let cell = script_client::run_cell(&self.sandbox, &resolved.context, request);
        let mut events = pin!(cell);
        let mut shown = Vec::new();
        while let Some(event) = events.next().await {
            match event? {
                CellEvent::Output(stream, text) => resolved.in_flight.output(stream, text),
                CellEvent::Result(result) => {
                    let result = results::described(files, &result).await;
                    resolved
                        .in_flight
                        .output(OutputStream::Results, format!("{result}\n"));
                    shown.push(result);
                }
                CellEvent::Ended(cell) => {
                    let mut cell = *cell;
                    let changes = cell.ended.workspace.take().unwrap_or_default();
                    let of = (session.session_id.as_str(), cell.number);
                    return Ok(CellRun {
                        left: files.take_of_cell(changes, of, place.runtime).await,
                        cell,
                        results: shown,
                        restarted,
                    });
                }
            }
        }
        unreachable!("the events of a cell end with its end or an error")
    }

    /// Ends the caller's interpreter, so that the next one has room for the files.
    ///
    /// # Errors
    /// `SESSION_BUSY` while a cell runs in it.
    async fn end_idle(
        &self,
        place: CellPlace<'_>,
        resolved: &ResolvedCall,
        wanted: &Workspace,
    ) -> Result<(), Status> {
        let (session, _) = self.session(place, &resolved.context, wanted).await?;
        if session.state() == SessionState::Running {
            let busy = "a cell runs in the session";
            let failure = grpc_kit::Failure::new(Code::Aborted, ErrorReason::SessionBusy, busy);
            return Err(failure.into_status());
        }
        let request = DeleteSessionRequest {
            session_id: session.session_id,
            caller_id: place.caller.to_owned(),
        };
        let mut sessions = SessionServiceClient::new(self.sandbox.with(&resolved.context));
        sessions.delete_session(request).await.map(drop)
    }

    /// Returns the caller's interpreter, and why the one before it ended if this one is new.
    async fn session(
        &self,
        place: CellPlace<'_>,
        context: &CallContext,
        wanted: &Workspace,
    ) -> Result<(Session, Option<String>), Status> {
        let mut limits = Limits::default();
        add_room(&mut limits, wanted);
        let request = CreateSessionRequest {
            limits: (limits != Limits::default()).then_some(limits),
            caller_id: place.caller.to_owned(),
            runtime: place.runtime.to_owned(),
            packages: place.packages.to_owned(),
            session_key: KEY.to_owned(),
            // A conversation that rests gives way to others.
            evictable: true,
            ..CreateSessionRequest::default()
        };
        let mut sessions = SessionServiceClient::new(self.sandbox.with(context));
        let created = sessions.create_session(request).await?;
        let created = created.into_inner();
        let ended = created.predecessor_end.map(|end| end.message);
        Ok((created.session.unwrap_or_default(), ended))
    }
}

/// Whether an interpreter has no room for the files: it was started when there were fewer.
fn is_without_room(status: &Status) -> bool {
    let fields = grpc_kit::violations(status);
    fields.iter().any(|(field, _)| field == "workspace.files")
}

/// A failure before any code ran.
fn unharmed(status: Status) -> Broken {
    Broken {
        status,
        may_have_run: false,
    }
}
