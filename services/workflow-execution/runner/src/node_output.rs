//! The text of a node's script or model, on its way into the log of its run.

use contracts::tavern::{
    common::v1::{OutputStream, run_event::Kind},
    sandbox::v1::ScriptProgress,
};
use run_events::{CallOutput, Recorder, parts};
use run_log::AppendError;

use super::slot_stream::SlotStream;

/// The output of one node.
pub(super) struct NodeOutput {
    recorder: Recorder,
    output: CallOutput,
    /// The streaming outputs of the node.
    streams: Vec<SlotStream>,
    began_before: bool,
}

impl NodeOutput {
    /// Makes the output of a node, with its streaming outputs; `began_before` if the node was
    /// started before.
    pub(super) fn new(
        recorder: Recorder,
        effect_id: &str,
        node_id: &str,
        streams: Vec<SlotStream>,
        began_before: bool,
    ) -> Self {
        Self {
            recorder,
            output: CallOutput::of_node(effect_id, node_id),
            streams,
            began_before,
        }
    }

    /// Records that the output starts again, unless it starts for the first time.
    pub(super) async fn begin(&mut self) -> Result<(), AppendError> {
        if !std::mem::replace(&mut self.began_before, true) {
            return Ok(());
        }
        let now = self.recorder.now();
        let reset = Kind::OutputReset(self.output.begin_again(now));
        let streams = self.streams.iter();
        for kind in streams.flat_map(|stream| stream.begin(now)).chain([reset]) {
            self.recorder.submit(kind).await?;
        }
        Ok(())
    }

    /// Records text. It is durable with the next commit.
    pub(super) async fn write(
        &mut self,
        stream: OutputStream,
        text: String,
    ) -> Result<(), AppendError> {
        let pieces = match stream {
            OutputStream::Out => self.pieces(&text, false),
            OutputStream::Err | OutputStream::Results | OutputStream::Unspecified => Vec::new(),
        };
        let chunk = self.output.write(stream, text).map(Kind::OutputChunk);
        self.submit(chunk.into_iter().chain(pieces)).await
    }

    /// Records JSON values, each a line. They are durable with the next commit.
    pub(super) async fn write_lines(&mut self, lines: String) -> Result<(), AppendError> {
        for lines in parts(lines).into_iter().filter(|lines| !lines.is_empty()) {
            let pieces = self.pieces(&lines, true);
            let chunk = self.output.write_lines(lines).map(Kind::OutputChunk);
            self.submit(chunk.into_iter().chain(pieces)).await?;
        }
        Ok(())
    }

    /// Returns the pieces for the streams that accept text, or JSON values.
    fn pieces(&self, text: &str, lines: bool) -> Vec<Kind> {
        let streams = self.streams.iter();
        let streams = streams.filter(|stream| stream.takes_lines() == lines);
        streams
            .flat_map(|stream| stream.write(text, self.recorder.now()))
            .collect()
    }

    async fn submit(&self, kinds: impl Iterator<Item = Kind>) -> Result<(), AppendError> {
        for kind in kinds {
            self.recorder.submit(kind).await?;
        }
        Ok(())
    }

    /// Records a report of the script's progress.
    pub(super) async fn report(&mut self, report: ScriptProgress) -> Result<(), AppendError> {
        let reported = self.output.report(report.fraction, report.message);
        self.recorder
            .submit(Kind::ProgressReported(reported))
            .await
            .map(drop)
    }
}
