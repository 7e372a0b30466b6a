//! What the script or model of a node writes, on its way into the log of its run.

use contracts::tavern::common::v1::{OutputStream, run_event::Kind};
use run_events::{CallOutput, Recorder};
use run_log::AppendError;

/// The output of one node.
pub(super) struct NodeOutput {
    recorder: Recorder,
    output: CallOutput,
    began_before: bool,
}

impl NodeOutput {
    /// Takes what names the node, and whether it was started before.
    pub(super) fn new(
        recorder: Recorder,
        effect_id: &str,
        node_id: &str,
        began_before: bool,
    ) -> Self {
        Self {
            recorder,
            output: CallOutput::of_node(effect_id, node_id),
            began_before,
        }
    }

    /// Records that the output begins anew, unless it begins for the first time.
    pub(super) async fn begin(&mut self) -> Result<(), AppendError> {
        if !std::mem::replace(&mut self.began_before, true) {
            return Ok(());
        }
        let reset = self.output.begin_again(self.recorder.now());
        self.recorder.submit(Kind::OutputReset(reset)).await
    }

    /// Records what was written. It rides on the next commit.
    pub(super) async fn write(
        &mut self,
        stream: OutputStream,
        text: String,
    ) -> Result<(), AppendError> {
        match self.output.write(stream, text) {
            Some(chunk) => self.recorder.submit(Kind::OutputChunk(chunk)).await,
            None => Ok(()),
        }
    }
}
