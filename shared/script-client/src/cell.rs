//! Runs one cell of a session.

use contracts::tavern::{
    common::v1::OutputStream,
    sandbox::v1::{
        CellEnded, CellError, CellResult, CellValue, RunCellRequest, run_cell_response::Event,
        session_service_client::SessionServiceClient,
    },
};
use futures::Stream;
use grpc_kit::{CallContext, Transport};
use tokio::time::Instant;

use crate::{Broken, Cut, Output, next, refused};

/// An event of a cell.
#[derive(Debug)]
pub enum CellEvent {
    /// A piece of its output.
    Output(OutputStream, String),
    /// A result, after the output before it.
    Result(CellResult),
    /// The end; no event follows.
    Ended(Box<Cell>),
}

/// The outcome of a cell.
#[derive(Debug, Default)]
pub struct Cell {
    /// Its number in the session, from 1.
    pub number: u64,
    /// All of standard output; above the limit a line replaces the middle.
    pub stdout: Vec<u8>,
    /// All of standard error, likewise.
    pub stderr: Vec<u8>,
    /// The value of its last expression, if there is one.
    pub value: Option<CellValue>,
    /// The error that ended it, if one did.
    pub error: Option<CellError>,
    /// The kind of its end.
    pub ended: CellEnded,
}

/// Runs a cell to its end. Dropping the stream interrupts it.
///
/// The stream yields [`CellEvent`]s and ends after the first [`Broken`]. A cell is never run twice
/// by itself: its changes to the session stay.
pub fn run_cell(
    sandbox: &Transport,
    context: &CallContext,
    request: RunCellRequest,
) -> impl Stream<Item = Result<CellEvent, Broken>> + Send + use<> {
    let mut client = SessionServiceClient::new(sandbox.with(context));
    async_stream::try_stream! {
        let mut answers = client.run_cell(request).await.map_err(refused)?.into_inner();
        let mut output = Output::default();
        let mut cell = Box::<Cell>::default();
        loop {
            let event = tokio::select! {
                event = next(&mut answers, |answer| answer.event) => Some(event),
                () = output.coalescer.due() => None,
            };
            let mut ended = None;
            let mut result = None;
            let pieces = match event.transpose()? {
                None => output.coalescer.release(Instant::now()),
                Some(Event::Output(chunk)) => output.take(&chunk),
                Some(Event::Ended(end)) => {
                    let stdout = Cut::of(end.stdout_truncated_bytes, &end.stdout_end);
                    let stderr = Cut::of(end.stderr_truncated_bytes, &end.stderr_end);
                    let rest = output.finish(stdout, stderr);
                    ended = Some(end);
                    rest
                }
                Some(Event::Result(shown)) => {
                    result = Some(shown);
                    output.coalescer.release(Instant::now())
                }
                Some(Event::Started(started)) => {
                    cell.number = started.cell;
                    continue;
                }
                Some(Event::Value(value)) => {
                    cell.value = Some(value);
                    continue;
                }
                Some(Event::Error(error)) => {
                    cell.error = Some(error);
                    continue;
                }
                Some(Event::Alive(_)) => continue,
            };
            for (stream, text) in pieces {
                yield CellEvent::Output(stream, text);
            }
            if let Some(result) = result {
                yield CellEvent::Result(result);
            }
            if let Some(end) = ended {
                cell.ended = end;
                (cell.stdout, cell.stderr) = output.into_bytes();
                yield CellEvent::Ended(cell);
                return;
            }
        }
    }
}
