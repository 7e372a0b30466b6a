//! Draws a run as a timeline, from its events and from nothing else.

use std::fmt::Write;

use contracts::tavern::common::v1::{
    self as common, CallStatus, Event, NodeState, Run, RunState, Severity, event::Kind,
};

use super::check::name;

/// The longest line of text that is shown, in characters.
const WIDTH: usize = 100;

/// How many lines of one text are shown.
const MOST_LINES: usize = 6;

/// Draws the events of a run and its end.
pub(crate) fn draw(events: &[Event], run: &Run) -> String {
    let mut drawing = Drawing {
        text: String::new(),
        start: events.first().map_or(0, nanos),
    };
    for event in events {
        drawing.event(event);
    }
    drawing.end(events, run);
    drawing.text
}

struct Drawing {
    text: String,
    /// When the run began, in nanoseconds since the epoch.
    start: i64,
}

impl Drawing {
    fn event(&mut self, event: &Event) {
        match event.kind.as_ref() {
            Some(Kind::RunStarted(started)) if event.parent_path.is_empty() => {
                self.opening(event, started)
            }
            Some(Kind::RunStarted(started)) => {
                self.line(event, "run", &format!("{} begins", started.subject))
            }
            Some(Kind::IterationStarted(round)) if round.iteration > 1 => {
                self.line(
                    event,
                    "round",
                    &format!("{} of at most {}", round.iteration, round.limit),
                );
            }
            Some(Kind::Thinking(thinking)) => self.line(event, "thinks", &thinking.text),
            Some(Kind::Text(text)) => self.line(event, "says", text.text.trim_end()),
            Some(Kind::Diagnosed(diagnosed)) => self.diagnosed(event, diagnosed),
            Some(Kind::CallDispatched(call)) => {
                self.line(
                    event,
                    "calls",
                    &format!("{} {}", call.tool_id, call.arguments_json),
                );
            }
            Some(Kind::OutputChunk(chunk)) => self.line(event, "writes", chunk.text.trim_end()),
            Some(Kind::CallSettled(settled)) => self.settled(event, settled),
            Some(Kind::NodeFinished(node)) => self.node(event, node),
            Some(Kind::Observation(told)) => self.line(event, "told", &told.text),
            Some(Kind::CancelRequested(cancel)) => self.line(event, "cancel", &cancel.reason),
            _ => {}
        }
    }

    fn opening(&mut self, event: &Event, started: &common::RunStarted) {
        let input: Option<String> = serde_json::from_str(&started.input_json).ok();
        if let (false, Some(message)) = (started.input_is_model_text, input) {
            self.line(event, "user", &message);
        }
    }

    fn diagnosed(&mut self, event: &Event, diagnosed: &common::Diagnosed) {
        let Some(remark) = &diagnosed.diagnostic else {
            return;
        };
        if remark.severity() != Severity::Note {
            self.line(
                event,
                "remark",
                &format!("{}: {}", remark.rule, remark.message),
            );
        }
    }

    fn settled(&mut self, event: &Event, settled: &common::CallSettled) {
        let Some(result) = &settled.result else {
            return;
        };
        let took = duration(result.duration);
        let replayed = if result.replayed { ", replayed" } else { "" };
        match result.status() {
            CallStatus::Succeeded => {
                self.line(
                    event,
                    "gives",
                    &format!("{}   ({took}{replayed})", result.output_json),
                );
            }
            status => {
                let error = result.error.clone().unwrap_or_default();
                let status = name(status.as_str_name(), "CALL_STATUS_");
                let text = format!(
                    "{} {status}: {} ({})",
                    result.tool_id, error.message, error.code
                );
                self.line(event, "fails", &text);
            }
        }
    }

    fn node(&mut self, event: &Event, node: &common::NodeFinished) {
        let took = duration(node.duration);
        let text = match node.state() {
            NodeState::Succeeded => {
                format!(
                    "{} ({}) {}   ({took})",
                    node.node_id, node.node_type, node.outputs_json
                )
            }
            state => {
                let error = node.error.clone().unwrap_or_default();
                let state = name(state.as_str_name(), "NODE_STATE_");
                format!(
                    "{} ({}) {state}: {}",
                    node.node_id, node.node_type, error.message
                )
            }
        };
        self.line(event, "node", &text);
    }

    fn end(&mut self, events: &[Event], run: &Run) {
        let state = name(
            RunState::try_from(run.state)
                .unwrap_or_default()
                .as_str_name(),
            "RUN_STATE_",
        );
        let end = events.last().map_or(self.start, nanos);
        let took = millis(end - self.start);
        let durability = name(run.durability().as_str_name(), "DURABILITY_");
        let trace = events.first().map_or("", |event| event.trace_id.as_str());
        let count = events.len();
        let error = run
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.error.as_ref());
        let error = error.map_or(String::new(), |error| format!(": {}", error.message));
        let stop = run
            .outcome
            .as_ref()
            .map_or("", |outcome| &outcome.stop_reason);
        let stop = match stop {
            "" | "stop" => String::new(),
            reason => format!(", stopped by {reason}"),
        };
        self.push(
            took.as_str(),
            0,
            &state,
            &format!("{count} events, durability {durability}{stop}{error}"),
        );
        self.push("", 0, "trace", trace);
    }

    fn line(&mut self, event: &Event, word: &str, text: &str) {
        let at = millis(nanos(event) - self.start);
        self.push(&at, event.parent_path.len(), word, text);
    }

    /// Writes one entry: when, what, and its text with every line below the first indented.
    fn push(&mut self, at: &str, depth: usize, word: &str, text: &str) {
        let indent = "  ".repeat(depth);
        let lines: Vec<&str> = text.lines().collect();
        let (shown, more) = lines.split_at(lines.len().min(MOST_LINES));
        for (number, line) in shown.iter().enumerate() {
            let (at, word) = if number == 0 { (at, word) } else { ("", "") };
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "  {at:>9}  {indent}{word:<9} {}", cut(line));
        }
        if !more.is_empty() {
            let _ = writeln!(
                self.text,
                "  {:>9}  {indent}{:<9} ... {} more lines",
                "",
                "",
                more.len()
            );
        }
    }
}

/// Cuts a line and shows control characters as what they are, so that no output of a tool can
/// steer the terminal.
fn cut(line: &str) -> String {
    let shown: String = line
        .chars()
        .take(WIDTH)
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect();
    if line.chars().nth(WIDTH).is_some() {
        format!("{shown}...")
    } else {
        shown
    }
}

fn nanos(event: &Event) -> i64 {
    event.time.map_or(0, |time| {
        time.seconds * 1_000_000_000 + i64::from(time.nanos)
    })
}

fn millis(nanos: i64) -> String {
    // Shown to a tenth; the rounding is for the eye only.
    format!("{:.1} ms", nanos as f64 / 1e6)
}

fn duration(duration: Option<prost_types::Duration>) -> String {
    millis(duration.map_or(0, |d| d.seconds * 1_000_000_000 + i64::from(d.nanos)))
}
