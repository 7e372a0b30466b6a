//! Cells of a conversation with files, as the caller of a tool sees them.

use std::time::Instant;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::CallStatus;
use contracts::tavern::registry::v1::{
    CallToolRequest, WriteFileHeader, WriteFileRequest, call_service_client::CallServiceClient,
    call_tool_response::Record, workspace_service_client::WorkspaceServiceClient,
    write_file_request::Part,
};
use grpc_kit::{ClientSettings, Outbound, Transport};
use serde_json::json;

use crate::harness::Effort;
use crate::series::Series;
use crate::support::served::Served;
use crate::table::Figure;

/// The size of the file, in bytes.
const SIZE: usize = 10 << 20;

/// Goals for the seconds that a file adds to a cell: unchanged, and changed by either side.
const UNCHANGED_GOAL: f64 = 5e-3;
const CHANGED_GOAL: f64 = 150e-3;

/// A cell that does nothing.
const NOTHING: &str = "None";

/// A cell that writes the whole file anew.
const CHANGE: &str =
    "import os\nwith open('data.bin', 'wb') as data:\n data.write(os.urandom(10 << 20))";

struct Conversation {
    id: &'static str,
    calls: CallServiceClient<Outbound>,
    files: WorkspaceServiceClient<Outbound>,
}

impl Conversation {
    fn new(id: &'static str, transport: &Transport) -> Self {
        Self {
            id,
            calls: CallServiceClient::new(transport.clone().outermost()),
            files: WorkspaceServiceClient::new(transport.clone().outermost()),
        }
    }

    /// Runs a cell, and returns its seconds.
    async fn cell(&mut self, code: &str) -> anyhow::Result<f64> {
        let request = CallToolRequest {
            tool_id: "CodeInterpreter:run_cell".to_owned(),
            arguments_json: json!({"language": "python", "code": code}).to_string(),
            conversation_id: self.id.to_owned(),
            ..CallToolRequest::default()
        };
        let begin = Instant::now();
        let mut answers = self.calls.call_tool(request).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            if let Some(Record::Result(result)) = answer.record {
                ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
                return Ok(begin.elapsed().as_secs_f64());
            }
        }
        anyhow::bail!("the call has no result")
    }

    /// Writes the file from outside.
    async fn write(&mut self, seed: u8) -> anyhow::Result<()> {
        let header = Part::Header(WriteFileHeader {
            conversation_id: self.id.to_owned(),
            path: "data.bin".to_owned(),
            ..WriteFileHeader::default()
        });
        let piece = vec![seed; 1 << 20];
        let pieces = (0..SIZE >> 20).map(move |_| Part::Chunk(piece.clone()));
        let parts = std::iter::once(header).chain(pieces);
        let messages = parts.map(|part| WriteFileRequest { part: Some(part) });
        let written = self.files.write_file(tokio_stream::iter(messages)).await?;
        let file = written.into_inner().file.context("the file is described")?;
        ensure!(file.size_bytes == SIZE as u64);
        Ok(())
    }
}

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let server = Served::start(effort, "127.84.1.1", &[]).await?;
    let transport = grpc_kit::remote(&ClientSettings::to(server.address().to_owned()))?;
    let [mut empty, mut unchanged, mut by_code, mut from_outside] =
        ["empty", "unchanged", "by_code", "outside"].map(|id| Conversation::new(id, &transport));
    unchanged.write(1).await?;
    let (mut without, mut same) = (Vec::new(), Vec::new());
    let (mut changed, mut replaced) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(50) {
        let took = [
            empty.cell(NOTHING).await?,
            unchanged.cell(NOTHING).await?,
            by_code.cell(CHANGE).await?,
        ];
        from_outside.write(u8::try_from(round % 250)?).await?;
        let placed = from_outside.cell(NOTHING).await?;
        // The first cells start their interpreters.
        if round > 0 {
            without.push(took[0]);
            same.push(took[1]);
            changed.push(took[2]);
            replaced.push(placed);
        }
    }
    let floor = Series::seconds(without);
    let figure = |what: &str, took: Vec<f64>, goal: f64| {
        let figure = Figure::new(what, Series::seconds(took));
        let limit = floor.median() + goal;
        figure
            .floor("a cell without files", floor.clone())
            .goal(limit)
    };
    Ok(vec![
        figure("cell with 10 MiB unchanged", same, UNCHANGED_GOAL),
        figure("cell that changes 10 MiB", changed, CHANGED_GOAL),
        figure(
            "cell after a change of 10 MiB from outside",
            replaced,
            CHANGED_GOAL,
        ),
    ])
}
