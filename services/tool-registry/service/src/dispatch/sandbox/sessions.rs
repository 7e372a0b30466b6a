//! The interpreters of conversations: one for each conversation and runtime.
//!
//! The sandbox remembers whose an interpreter is, so nothing is kept here and a registry that
//! starts again finds them.

use std::pin::pin;

use call_outcome::CallOutcome;
use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        CreateSessionRequest, RunCellRequest, Session, session_service_client::SessionServiceClient,
    },
};
use futures::StreamExt;
use grpc_kit::{CallContext, Patience, Transport};
use script_client::{Broken, Cell, CellEvent};
use tonic::Status;

use super::{PATIENCE, failure_of, lost};
use crate::dispatch::ResolvedCall;

/// The key by which the sandbox finds the interpreter of a conversation.
const KEY: &str = "CodeInterpreter";

/// Runs cells in the interpreters of conversations.
#[derive(Clone, Debug)]
pub struct Sessions {
    sandbox: Transport,
}

/// A cell that ran.
#[derive(Debug)]
pub(in crate::dispatch) struct CellRun {
    pub(in crate::dispatch) cell: Cell,
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
    ) -> Result<CellRun, CallOutcome> {
        let mut patience = Patience::new(PATIENCE, resolved.deadline);
        let mut ended_meanwhile = false;
        loop {
            let broken = match self.try_cell(place, code, resolved).await {
                Ok(ran) => return Ok(ran),
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
    ) -> Result<CellRun, Broken> {
        let session = self.session(place, &resolved.context).await;
        let (session, restarted) = session.map_err(unharmed)?;
        let request = RunCellRequest {
            session_id: session.session_id,
            caller_id: place.caller.to_owned(),
            source_text: code.to_owned(),
            ..RunCellRequest::default()
        };
        let cell = script_client::run_cell(&self.sandbox, &resolved.context, request);
        let mut events = pin!(cell);
        while let Some(event) = events.next().await {
            match event? {
                CellEvent::Output(stream, text) => resolved.in_flight.output(stream, text),
                CellEvent::Ended(cell) => {
                    let cell = *cell;
                    return Ok(CellRun { cell, restarted });
                }
            }
        }
        unreachable!("the events of a cell end with its end or an error")
    }

    /// Returns the caller's interpreter, and why the one before it ended if this one is new.
    async fn session(
        &self,
        place: CellPlace<'_>,
        context: &CallContext,
    ) -> Result<(Session, Option<String>), Status> {
        let request = CreateSessionRequest {
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

/// A failure before any code ran.
fn unharmed(status: Status) -> Broken {
    Broken {
        status,
        may_have_run: false,
    }
}
