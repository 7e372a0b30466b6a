//! Runs a script, or a cell of a session, in the sandbox and reports its output as it is written.
//!
//! The registry uses it for tools, and the workflow service for nodes. [`run`] and [`run_cell`]
//! join the output of the code into pieces of a sensible size and keep all of it for the answer, so
//! that a caller has both.

mod cell;
mod decoder;

pub use cell::{Cell, CellEvent, run_cell};

use contracts::tavern::{
    common::v1::OutputStream,
    sandbox::v1::{
        self as sandbox, ExecuteRequest, ExecuteResponse, ExecuteStreamRequest, ScriptProgress,
        execute_stream_request::Message, execute_stream_response::Event,
        script_sandbox_service_client::ScriptSandboxServiceClient, verdict::Kind,
    },
};
use decoder::Decoder;
use futures::Stream;
use grpc_kit::{CallContext, Transport};
use run_events::Coalescer;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

/// An event of a script.
#[derive(Debug)]
pub enum ScriptEvent {
    /// A piece of its output.
    Output(OutputStream, String),
    /// A report of its progress.
    Progress(ScriptProgress),
    /// The end; no event follows. The response holds all its output; a stream above its limit has a
    /// line in place of the middle.
    Ended(Box<ExecuteResponse>),
}

/// A script or cell that did not end by itself, because the sandbox refused it or was lost.
#[derive(Debug)]
pub struct Broken {
    /// The status that the sandbox returned.
    pub status: Status,
    /// Whether the code may have run, to an unknown extent.
    pub may_have_run: bool,
}

/// Runs a script to its end. Dropping the stream ends the script with all its processes.
///
/// The stream yields [`ScriptEvent`]s and ends after the first [`Broken`]. A script whose stream broke
/// was ended, and runs anew.
pub fn run(
    sandbox: &Transport,
    context: &CallContext,
    request: ExecuteRequest,
) -> impl Stream<Item = Result<ScriptEvent, Broken>> + Send + use<> {
    let mut client = ScriptSandboxServiceClient::new(sandbox.with(context));
    let deadline = context.deadline();
    async_stream::try_stream! {
        let start = ExecuteStreamRequest {
            message: Some(Message::Start(request)),
        };
        // The end of the requests ends the script's input.
        let requests = futures::stream::iter([start]);
        let mut answers = client.execute_stream(requests).await.map_err(refused)?.into_inner();
        let mut output = Output::default();
        loop {
            let event = tokio::select! {
                event = next(&mut answers, |answer| answer.event) => Some(event),
                () = output.coalescer.due() => None,
            };
            let (pieces, ended) = match event.transpose()? {
                None => (output.coalescer.release(Instant::now()), None),
                Some(Event::Output(chunk)) => (output.take(&chunk), None),
                Some(Event::Ended(response)) => {
                    let stdout = Cut::of(response.stdout_truncated_bytes, &response.stdout_end);
                    let stderr = Cut::of(response.stderr_truncated_bytes, &response.stderr_end);
                    (output.finish(stdout, stderr), Some(response))
                }
                Some(Event::Progress(progress)) => {
                    yield ScriptEvent::Progress(progress);
                    continue;
                }
                Some(Event::Started(_) | Event::Stdin(_) | Event::Alive(_)) => continue,
            };
            for (stream, text) in pieces {
                yield ScriptEvent::Output(stream, text);
            }
            if let Some(response) = ended {
                yield ScriptEvent::Ended(Box::new(output.complete(response, deadline)?));
                return;
            }
        }
    }
}

/// The output of a script.
#[derive(Default)]
struct Output {
    coalescer: Coalescer<OutputStream>,
    stdout: Written,
    stderr: Written,
}

/// One output stream. The sandbox bounds it.
#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    decoder: Decoder,
}

impl Written {
    fn take(&mut self, data: &[u8]) -> String {
        self.bytes.extend_from_slice(data);
        self.decoder.decode(data)
    }

    /// Adds the end of a stream, behind a line that states the missing bytes before it.
    fn finish(&mut self, cut: Cut<'_>) -> String {
        let mut text = String::new();
        if cut.missing > 0 {
            let gap = format!("\n[{} bytes of output are left out here]\n", cut.missing);
            text += self.decoder.finish();
            text += &self.take(gap.as_bytes());
        }
        text += &self.take(cut.end);
        text + self.decoder.finish()
    }
}

/// Whether a part of standard output is missing from a response, between its beginning and its end.
pub fn is_cut(response: &ExecuteResponse) -> bool {
    Cut::of(response.stdout_truncated_bytes, &response.stdout_end).missing > 0
}

/// The part of a stream that was not sent.
#[derive(Clone, Copy)]
struct Cut<'a> {
    /// Bytes between the chunks sent and the end.
    missing: u64,
    /// The last bytes.
    end: &'a [u8],
}

impl<'a> Cut<'a> {
    fn of(truncated: u64, end: &'a [u8]) -> Self {
        let missing = truncated.saturating_sub(end.len() as u64);
        Self { missing, end }
    }
}

impl Output {
    /// Adds a chunk and returns the pieces to report now.
    fn take(&mut self, chunk: &sandbox::OutputChunk) -> Vec<(OutputStream, String)> {
        let (stream, written) = match chunk.stream() {
            sandbox::OutputStream::Stdout => (OutputStream::Out, &mut self.stdout),
            sandbox::OutputStream::Stderr => (OutputStream::Err, &mut self.stderr),
            sandbox::OutputStream::Unspecified | sandbox::OutputStream::Result => {
                return Vec::new();
            }
        };
        let text = written.take(&chunk.data);
        self.coalescer.push(stream, &text, Instant::now())
    }

    /// Returns the rest, with the ends of streams of which not all was sent.
    fn finish(&mut self, stdout: Cut<'_>, stderr: Cut<'_>) -> Vec<(OutputStream, String)> {
        let now = Instant::now();
        let mut rest = Vec::new();
        for (stream, written, cut) in [
            (OutputStream::Out, &mut self.stdout, stdout),
            (OutputStream::Err, &mut self.stderr, stderr),
        ] {
            let text = written.finish(cut);
            rest.extend(self.coalescer.push(stream, &text, now));
        }
        rest.extend(self.coalescer.release(now));
        rest
    }

    /// Returns all bytes of standard output and of standard error.
    fn into_bytes(self) -> (Vec<u8>, Vec<u8>) {
        (self.stdout.bytes, self.stderr.bytes)
    }

    /// Adds the whole output to the response, unless the sandbox ended the script for its
    /// own sake, or because the deadline passed.
    fn complete(
        self,
        mut response: ExecuteResponse,
        deadline: Option<Instant>,
    ) -> Result<ExecuteResponse, Broken> {
        let verdict = response.verdict.as_ref();
        if let Some(Kind::Cancelled(_)) = verdict.and_then(|verdict| verdict.kind.as_ref()) {
            return Err(cancelled(deadline));
        }
        (response.stdout, response.stderr) = self.into_bytes();
        Ok(response)
    }
}

/// Returns the next event of a stream that ends with an event of its own.
async fn next<M, E>(answers: &mut Streaming<M>, event: fn(M) -> Option<E>) -> Result<E, Broken> {
    loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                if let Some(event) = event(answer) {
                    return Ok(event);
                }
            }
            Ok(None) => return Err(lost(Status::unavailable("the sandbox ended the stream"))),
            Err(status) => return Err(lost(status)),
        }
    }
}

fn refused(status: Status) -> Broken {
    Broken {
        may_have_run: grpc_kit::may_have_arrived(&status),
        status,
    }
}

/// A stream that broke. At the deadline the sandbox has ended the script, so its end is known.
fn lost(status: Status) -> Broken {
    Broken {
        may_have_run: status.code() != Code::DeadlineExceeded,
        status,
    }
}

/// Returns why a script was cancelled whose caller still listens.
fn cancelled(deadline: Option<Instant>) -> Broken {
    lost(
        match deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            true => Status::deadline_exceeded("the script was ended at the deadline"),
            false => Status::unavailable("the sandbox shut down"),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text that is reported of a stream that was cut, and its bytes.
    fn cut(sent: &[u8], truncated: u64, end: &[u8]) -> (String, Vec<u8>) {
        let mut written = Written::default();
        let text = written.take(sent) + &written.finish(Cut::of(truncated, end));
        (text, written.bytes)
    }

    #[test]
    fn a_line_counts_the_bytes_that_are_missing_before_the_end_of_a_stream() {
        let (text, bytes) = cut(b"begin", 105, b"n\nend");
        assert_eq!(
            text,
            "begin\n[100 bytes of output are left out here]\nn\nend"
        );
        assert_eq!(bytes, text.as_bytes());
        let (text, bytes) = cut("石".as_bytes().split_at(2).0, 10, "\u{77f3}".as_bytes());
        assert_eq!(text, "\u{fffd}\n[7 bytes of output are left out here]\n石");
        assert!(bytes.ends_with("石".as_bytes()));
    }

    #[test]
    fn a_stream_of_which_nothing_is_missing_is_whole() {
        let (begin, end) = "a石b".as_bytes().split_at(2);
        let (text, bytes) = cut(begin, end.len() as u64, end);
        assert_eq!(
            (text.as_str(), bytes.as_slice()),
            ("a石b", "a石b".as_bytes())
        );
        assert_eq!(cut(b"a", 0, b"").0, "a");
    }
}
