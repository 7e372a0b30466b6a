//! The output text of a call that runs: the beginning of the JSON text of its output, as far as the
//! pieces written so far settle it. A reader that pages by bytes continues in the output when the
//! call has ended.

use contracts::{
    tavern::common::v1::{OutputChunk, ResultPlace, run_event::Kind},
    watch::voids_answer,
};
use serde_json::Value;

/// The first field of the output of code: its standard output.
pub const STDOUT: &str = "stdout";
/// The first field of the output of a turn: the last answer of the agent.
pub const TEXT: &str = "text";

/// The part of an output that was written so far.
#[derive(Debug, Default)]
pub(super) struct OutputText {
    /// The field of the output that is written; none if it is the output itself.
    field: Option<String>,
    written: String,
    /// Whether that is JSON values, each a line, and not text.
    lines: bool,
    /// Whether white space at the end may not be part of the output.
    trimmed: bool,
    /// The number of the start of the tool, or of the run below, that wrote it.
    generation: u64,
}

impl OutputText {
    /// Adds a chunk that the tool itself wrote: messages of a backend, or the output of code.
    pub(super) fn take(&mut self, chunk: &OutputChunk) {
        self.field = (!chunk.json_lines).then(|| STDOUT.to_owned());
        self.add(chunk);
    }

    /// Takes an event of the run that carries the call out. A chunk that was taken before changes nothing.
    pub(super) fn take_below(&mut self, kind: &Kind) {
        match kind {
            Kind::OutputChunk(chunk) if chunk.result_place() != ResultPlace::Unspecified => {
                let is_field = chunk.result_place() == ResultPlace::First;
                self.field = is_field.then(|| chunk.interface_key.clone());
                self.add(chunk);
            }
            Kind::OutputReset(reset) if reset.result_place() != ResultPlace::Unspecified => {
                self.begin_again(reset.generation);
            }
            Kind::Text(piece) => {
                self.field = Some(TEXT.to_owned());
                self.trimmed = true;
                self.written.push_str(&piece.text);
            }
            // The words of an agent before its model was asked again are not its answer.
            Kind::ModelRequested(_) if !self.written.is_empty() => {
                self.begin_again(self.generation + 1);
            }
            // An answer that was cut off is void.
            Kind::OutputReset(reset) if voids_answer(reset) => {
                self.begin_again(self.generation + 1);
            }
            _ => {}
        }
    }

    /// Discards the text written before the tool began again.
    pub(super) fn begin_again(&mut self, generation: u64) {
        if generation > self.generation {
            self.written.clear();
            self.generation = generation;
        }
    }

    /// Returns which start of the tool or the run below wrote the text.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the beginning of the JSON text of the output.
    pub(super) fn beginning(&self) -> String {
        let written = match self.trimmed {
            true => self.written.trim_end(),
            false => &self.written,
        };
        if written.is_empty() {
            return String::new();
        }
        let field = self.field.as_deref();
        let field = field.map(|field| format!("{{{}:", Value::from(field)));
        let mut text = field.unwrap_or_default();
        match self.lines {
            true => {
                let ended = written.strip_suffix('\n').unwrap_or(written);
                text.push('[');
                text.push_str(&ended.replace('\n', ","));
            }
            false => {
                text.push_str(&Value::from(written).to_string());
                // The closing quote.
                text.pop();
            }
        }
        text
    }

    fn add(&mut self, chunk: &OutputChunk) {
        self.begin_again(chunk.generation);
        if (chunk.generation, chunk.offset) == (self.generation, self.written.len() as u64) {
            self.lines = chunk.json_lines;
            self.written.push_str(&chunk.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{ModelRequested, OutputReset, TextDelta};
    use serde_json::json;

    use super::*;

    fn chunk(place: ResultPlace, lines: bool, offset: u64, text: &str) -> Kind {
        Kind::OutputChunk(OutputChunk {
            interface_key: "live".to_owned(),
            text: text.to_owned(),
            offset,
            json_lines: lines,
            result_place: place.into(),
            ..OutputChunk::default()
        })
    }

    fn said(text: &str) -> Kind {
        Kind::Text(TextDelta {
            text: text.to_owned(),
        })
    }

    #[test]
    fn the_text_is_at_each_moment_the_beginning_of_the_output() {
        let asked = || Kind::ModelRequested(ModelRequested::default());
        let [whole, first] = [ResultPlace::Whole, ResultPlace::First];
        let reset = Kind::OutputReset(OutputReset {
            interface_key: "live".to_owned(),
            generation: 7,
            result_place: whole.into(),
            ..OutputReset::default()
        });
        let again = Kind::OutputChunk(OutputChunk {
            generation: 7,
            text: "a\"b".to_owned(),
            result_place: whole.into(),
            ..OutputChunk::default()
        });
        for (kinds, output) in [
            (
                vec![chunk(whole, false, 0, "a\""), chunk(whole, false, 2, "\nb")],
                json!("a\"\nb"),
            ),
            (
                vec![
                    chunk(whole, true, 0, "{\"n\":"),
                    chunk(whole, true, 5, "1}\n2\n"),
                ],
                json!([{"n": 1}, 2]),
            ),
            (
                vec![chunk(first, false, 0, "a"), chunk(first, false, 0, "a")],
                json!({"live": "a", "z": 1}),
            ),
            (
                vec![chunk(first, true, 0, "1\n")],
                json!({"live": [1], "z": 1}),
            ),
            (
                vec![chunk(ResultPlace::Unspecified, false, 0, "a")],
                json!({"z": 1, "live": "a"}),
            ),
            (
                vec![
                    asked(),
                    said("Let me"),
                    asked(),
                    said("So "),
                    said("it is. \n"),
                ],
                json!({"text": "So it is."}),
            ),
            (
                vec![chunk(whole, false, 0, "lost"), reset, again],
                json!("a\"b"),
            ),
        ] {
            let mut text = OutputText::default();
            let output = output.to_string();
            let mut generation = 0;
            let mut before = String::new();
            for kind in &kinds {
                text.take_below(kind);
                let beginning = text.beginning();
                if text.generation() == generation {
                    assert!(beginning.starts_with(&before), "{before} {beginning}");
                }
                (generation, before) = (text.generation(), beginning);
            }
            assert!(output.starts_with(&before), "{output} {before}");
            let shows = !matches!(&kinds[0], Kind::OutputChunk(chunk) if chunk.result_place == 0);
            assert_eq!(!before.is_empty(), shows);
        }
    }
}
