//! What the script or model of a node writes, on its way into the log of its run.

use contracts::tavern::{
    common::v1::{OutputStream, run_event::Kind},
    sandbox::v1::ScriptProgress,
};
use run_events::{CallOutput, Recorder};
use run_log::AppendError;

use super::interface_stream::InterfaceStream;

/// The output of one node.
pub(super) struct NodeOutput {
    recorder: Recorder,
    output: CallOutput,
    /// The outputs of the workflow that it reaches.
    streams: Vec<InterfaceStream>,
    began_before: bool,
}

impl NodeOutput {
    /// Takes what names the node, what else is written, and whether the node was started before.
    pub(super) fn new(
        recorder: Recorder,
        effect_id: &str,
        node_id: &str,
        streams: Vec<InterfaceStream>,
        began_before: bool,
    ) -> Self {
        Self {
            recorder,
            output: CallOutput::of_node(effect_id, node_id),
            streams,
            began_before,
        }
    }

    /// Records that the output begins anew, unless it begins for the first time.
    pub(super) async fn begin(&mut self) -> Result<(), AppendError> {
        if !std::mem::replace(&mut self.began_before, true) {
            return Ok(());
        }
        let now = self.recorder.now();
        let reset = Kind::OutputReset(self.output.begin_again(now));
        let streams = self.streams.iter();
        for kind in streams
            .filter_map(|stream| stream.begin(now))
            .chain([reset])
        {
            self.recorder.submit(kind).await?;
        }
        Ok(())
    }

    /// Records what was written. It rides on the next commit.
    pub(super) async fn write(
        &mut self,
        stream: OutputStream,
        text: String,
    ) -> Result<(), AppendError> {
        let streams = match stream {
            OutputStream::Out => self.streams.as_slice(),
            OutputStream::Err | OutputStream::Unspecified => &[],
        };
        let pieces: Vec<Kind> = streams
            .iter()
            .flat_map(|stream| stream.write(&text, self.recorder.now()))
            .collect();
        let chunk = self.output.write(stream, text).map(Kind::OutputChunk);
        for kind in chunk.into_iter().chain(pieces) {
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
