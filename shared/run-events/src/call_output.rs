//! Numbers and bounds the output of a tool or script.

use contracts::tavern::common::v1::{
    OutputChunk, OutputReset, OutputStream, ProgressReported, ResultPlace,
};
use core_types::Timestamp;

/// The most text that a call shows, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The most chunks in which a call shows it.
const MAX_CHUNKS: usize = 4_096;

/// The output of one call, as the chunks that its followers see.
#[derive(Debug, Default)]
pub struct CallOutput {
    effect_id: String,
    /// The node of a workflow that writes; empty for a tool.
    node_id: String,
    /// The output of a workflow that is written; empty for the output of a tool or node.
    interface_key: String,
    result_place: ResultPlace,
    generation: u64,
    chunks: usize,
    out_bytes: u64,
    err_bytes: u64,
    result_bytes: u64,
    truncated: bool,
}

impl CallOutput {
    /// Begins the output of a call.
    pub fn of_call(effect_id: &str) -> Self {
        Self {
            effect_id: effect_id.to_owned(),
            ..Self::default()
        }
    }

    /// Begins the output of a node.
    pub fn of_node(effect_id: &str, node_id: &str) -> Self {
        Self {
            node_id: node_id.to_owned(),
            ..Self::of_call(effect_id)
        }
    }

    /// Begins a streaming output of a workflow.
    pub fn of_interface(key: &str, result_place: ResultPlace) -> Self {
        Self {
            interface_key: key.to_owned(),
            result_place,
            ..Self::default()
        }
    }

    /// Returns the number of the present start of the tool.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes the chunk of the text that was written next. Returns none if no more is shown.
    pub fn write(&mut self, stream: OutputStream, text: String) -> Option<OutputChunk> {
        if self.truncated {
            return None;
        }
        let bytes = self.out_bytes + self.err_bytes + self.result_bytes + text.len() as u64;
        self.chunks += 1;
        self.truncated = bytes > MAX_BYTES as u64 || self.chunks == MAX_CHUNKS;
        let text = match self.truncated {
            true => String::new(),
            false => text,
        };
        let written = match stream {
            OutputStream::Err => &mut self.err_bytes,
            OutputStream::Results => &mut self.result_bytes,
            OutputStream::Out | OutputStream::Unspecified => &mut self.out_bytes,
        };
        let offset = *written;
        *written += text.len() as u64;
        Some(OutputChunk {
            effect_id: self.effect_id.clone(),
            stream: stream.into(),
            text,
            offset,
            generation: self.generation,
            truncated: self.truncated,
            node_id: self.node_id.clone(),
            interface_key: self.interface_key.clone(),
            json_lines: stream == OutputStream::Results,
            result_place: self.result_place.into(),
        })
    }

    /// Makes the chunk of JSON values that were written next, one per line. Returns none if no more
    /// is shown.
    pub fn write_lines(&mut self, lines: String) -> Option<OutputChunk> {
        let chunk = self.write(OutputStream::Out, lines)?;
        Some(OutputChunk {
            json_lines: true,
            ..chunk
        })
    }

    /// Makes the event of a script's report of its progress.
    pub fn report(&self, fraction: Option<f64>, message: String) -> ProgressReported {
        ProgressReported {
            effect_id: self.effect_id.clone(),
            generation: self.generation,
            node_id: self.node_id.clone(),
            fraction,
            message,
        }
    }

    /// Begins anew: the output so far is void. Generations grow, also over restarts of the process,
    /// as `now` does.
    pub fn begin_again(&mut self, now: Timestamp) -> OutputReset {
        let millis = u64::try_from(now.unix_nanos() / 1_000_000).unwrap_or_default();
        *self = Self {
            effect_id: std::mem::take(&mut self.effect_id),
            node_id: std::mem::take(&mut self.node_id),
            interface_key: std::mem::take(&mut self.interface_key),
            result_place: self.result_place,
            generation: millis.max(self.generation + 1),
            ..Self::default()
        };
        OutputReset {
            effect_id: self.effect_id.clone(),
            generation: self.generation,
            node_id: self.node_id.clone(),
            interface_key: self.interface_key.clone(),
            result_place: self.result_place.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_counts_its_own_bytes() {
        let mut output = CallOutput::of_call("e");
        let written = [
            (OutputStream::Out, "石"),
            (OutputStream::Err, "no"),
            (OutputStream::Out, "b"),
            (OutputStream::Err, "!"),
        ];
        let offsets = written.map(|(stream, text)| {
            let chunk = output.write(stream, text.to_owned());
            chunk.map(|chunk| chunk.offset)
        });
        assert_eq!(offsets, [Some(0), Some(0), Some(3), Some(2)]);
    }

    #[test]
    fn what_does_not_fit_is_announced_once_and_left_out() {
        let mut output = CallOutput::of_call("e");
        let large = "x".repeat(MAX_BYTES);
        let first = output.write(OutputStream::Out, large);
        assert!(first.is_some_and(|chunk| !chunk.truncated));
        let last = output.write(OutputStream::Out, "y".to_owned());
        let last = last.map(|chunk| (chunk.text, chunk.offset, chunk.truncated));
        assert_eq!(last, Some((String::new(), MAX_BYTES as u64, true)));
        assert_eq!(output.write(OutputStream::Out, "z".to_owned()), None);
    }

    #[test]
    fn the_number_of_chunks_is_bounded() {
        let mut output = CallOutput::of_call("e");
        let chunks = std::iter::from_fn(|| output.write(OutputStream::Err, "x".to_owned()));
        assert_eq!(chunks.count(), MAX_CHUNKS);
    }

    #[test]
    fn a_tool_that_begins_again_writes_from_the_first_byte_in_a_larger_generation() {
        let mut output = CallOutput::of_call("e");
        output.write(OutputStream::Out, "a".to_owned());
        let now = Timestamp::from_unix_nanos(5_000_000);
        assert_eq!(output.begin_again(now).generation, 5);
        let again = output.write(OutputStream::Out, "a".to_owned());
        let again = again.map(|chunk| (chunk.offset, chunk.generation));
        assert_eq!(again, Some((0, 5)));
        assert_eq!(
            output.begin_again(now).generation,
            6,
            "the clock stood still"
        );
    }
}
