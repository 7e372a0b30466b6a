//! Sessions and the events of cells, on the wire.

use std::time::Instant;

use contracts::tavern::sandbox::v1::{self as wire, RunCellResponse, run_cell_response::Event};
use futures::StreamExt as _;

use crate::{
    domain::session::{CellOutcome, Interruption, SessionEnd, SessionInfo, SessionState},
    rpc::{
        outward,
        streaming::{ALIVE, ResponseStream},
    },
    runner::{
        session::{
            CellEnd, CellEvent,
            frames::{CellError, Frame, Origin},
            results::{CellResult, Representation, Shown},
        },
        streaming::{StreamHandle, output_queue::Item},
    },
};

pub(super) fn session(view: &SessionInfo) -> wire::Session {
    let state = match view.state {
        SessionState::Starting => wire::SessionState::Starting,
        SessionState::Idle => wire::SessionState::Idle,
        SessionState::Running => wire::SessionState::Running,
        SessionState::Ended(_) => wire::SessionState::Ended,
    };
    wire::Session {
        session_id: view.id.clone(),
        caller_id: view.owner.caller_id().to_owned(),
        runtime: view.runtime.clone(),
        packages: view.packages.clone(),
        session_key: view.key.clone(),
        state: state.into(),
        end: view.end().map(end),
        limits: Some(outward::limits(&view.limits)),
        idle_time: Some(outward::duration(view.idle_time)),
        evictable: view.evictable,
        total_time: Some(outward::duration(view.total_time)),
        create_time: Some(timestamp(view.created)),
        cells: view.cells,
        isolation: outward::level(Some(view.isolation)).into(),
        missing_layers: view.missing.iter().map(outward::missing).collect(),
        memory_enforcement: outward::enforcement(view.enforcement).into(),
    }
}

pub(super) fn end(end: &SessionEnd) -> wire::SessionEnd {
    wire::SessionEnd {
        reason: outward::end_reason(end.reason).into(),
        message: end.message(),
        verdict: Some(wire::Verdict {
            kind: Some(outward::verdict(&end.verdict)),
        }),
        usage: Some(outward::usage(&end.usage)),
        end_time: Some(timestamp(end.at)),
    }
}

fn timestamp(nanos: i64) -> prost_types::Timestamp {
    let (seconds, nanos) = core_types::Timestamp::from_unix_nanos(nanos).seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

/// The responses of a cell.
pub(super) fn answers(stream: StreamHandle<CellEvent>) -> ResponseStream<RunCellResponse> {
    let begin = (stream, Instant::now(), 0_u64, false);
    futures::stream::unfold(begin, |(stream, began, sequence, over)| async move {
        if over {
            return None;
        }
        let event = match stream.next(ALIVE).await {
            Ok(Some(Item::Output(chunk))) => Event::Output(outward::chunk(chunk)),
            Ok(Some(Item::Event(happened))) => event(happened),
            Err(_) => Event::Alive(wire::ExecutionAlive {
                wall_time: Some(outward::duration(began.elapsed())),
            }),
            Ok(None) => return None,
        };
        let sequence = sequence + 1;
        let over = matches!(event, Event::Ended(_));
        let answer = RunCellResponse {
            sequence,
            event: Some(event),
        };
        Some((Ok(answer), (stream, began, sequence, over)))
    })
    .boxed()
}

fn event(happened: CellEvent) -> Event {
    match happened {
        CellEvent::Started {
            cell,
            wall_time,
            output,
        } => Event::Started(wire::CellStarted {
            cell,
            file: format!("<cell {cell}>"),
            wall_time: Some(outward::duration(wall_time)),
            output_bytes: output as u64,
        }),
        CellEvent::Value(value) => Event::Value(wire::CellValue {
            text: value.text,
            truncated_bytes: value.truncated,
        }),
        CellEvent::Error(error) => Event::Error(cell_error(error)),
        CellEvent::Result(result) => Event::Result(cell_result(*result)),
        CellEvent::Ended(ended) => Event::Ended(cell_ended(&ended)),
    }
}

fn cell_error(error: CellError) -> wire::CellError {
    let frame = |frame: Frame| wire::TracebackFrame {
        file: frame.file,
        cell: frame.cell,
        line: frame.line,
        column: frame.column,
        function: frame.function,
        source_line: frame.source,
    };
    wire::CellError {
        r#type: error.r#type,
        message: error.message,
        frames: error.frames.frames.into_iter().map(frame).collect(),
        omitted_frames: error.omitted,
        traceback_text: error.text,
    }
}

fn cell_result(result: CellResult) -> wire::CellResult {
    let origin = outward::same_name! { result.origin, Origin => wire::ResultOrigin:
        Expression Display Figure
    };
    wire::CellResult {
        index: result.index,
        origin: origin.into(),
        main: result.origin == Origin::Expression,
        data: result.data.into_iter().map(representation).collect(),
        metadata_json: result.metadata,
    }
}

fn representation(part: Representation) -> wire::Representation {
    use wire::representation::Content;
    let content = match part.content {
        Shown::Text(text) => Content::Text(text),
        Shown::Bytes(bytes) => Content::Bytes(bytes),
        Shown::Blob(digest) => Content::BlobSha256(digest.to_string()),
    };
    wire::Representation {
        media_type: part.media_type,
        content: Some(content),
        size_bytes: part.size as u64,
    }
}

fn cell_ended(ended: &CellEnd) -> wire::CellEnded {
    let outcome = outward::same_name! { ended.outcome, CellOutcome => wire::CellOutcome:
        Succeeded Raised Interrupted WallExceeded OutputExceeded SessionEnded
    };
    let interruption = ended
        .interruption
        .map_or(wire::CellInterruption::Unspecified, |why| {
            outward::same_name! { why, Interruption => wire::CellInterruption: Wall Output Asked }
        });
    wire::CellEnded {
        outcome: outcome.into(),
        interruption: interruption.into(),
        session_end: ended.session_end.as_ref().map(end),
        wall_time: Some(outward::duration(ended.wall_time)),
        stdout_bytes: ended.stdout.sent,
        stderr_bytes: ended.stderr.sent,
        stdout_truncated_bytes: ended.stdout.truncated,
        stderr_truncated_bytes: ended.stderr.truncated,
        stdout_end: outward::end_of(&ended.stdout),
        stderr_end: outward::end_of(&ended.stderr),
        workspace: ended.workspace.as_ref().map(outward::files::changes),
        dropped_results: ended.dropped_results,
    }
}
