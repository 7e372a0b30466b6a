//! Draws a run as a timeline, from its events alone.

mod scenes;
mod waits;

use std::borrow::Cow;
use std::fmt::Write;
use std::io::IsTerminal;

use contracts::tavern::common::v1::{
    self as common, CallError, CallResult, CallStatus, NodeState, OutputChunk, Run, RunEvent,
    RunOutcome, RunState, Severity, StopReason, run_event::Kind,
};
use contracts::watch::voids_answer;

pub(crate) use waits::decide_by;

/// The longest line of a result that is shown where the width of the terminal is unknown, in
/// characters.
const WIDTH: usize = 100;

/// The columns before the text of a line, in characters.
const MARGIN: usize = 23;

/// The most lines of a result that are shown on a terminal.
const MOST_LINES: usize = 6;

/// Draws the events of a run and its end.
pub(crate) fn draw(events: &[RunEvent], run: &Run) -> String {
    let mut timeline = Timeline::new(Style::default());
    let mut text: String = events.iter().map(|event| timeline.event(event)).collect();
    text.push_str(&timeline.end(run));
    text
}

/// The look of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// The longest line of a result of a tool or a node, in characters; `None` where results are
    /// shown whole, as all other texts are.
    pub(crate) width: Option<usize>,
    /// Whether the kind of each line is coloured.
    pub(crate) colour: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: Some(WIDTH),
            colour: false,
        }
    }
}

impl Style {
    /// Returns the style for standard output: coloured, with results cut to the width, on a terminal.
    pub(crate) fn of_stdout() -> Self {
        let Some(columns) = terminal_columns() else {
            return Self {
                width: None,
                colour: false,
            };
        };
        Self {
            width: Some(columns.saturating_sub(MARGIN).max(20)),
            colour: std::env::var_os("NO_COLOR").is_none(),
        }
    }
}

/// Returns the width of the terminal in characters; `None` where standard output is not a terminal.
pub(crate) fn terminal_columns() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    match rustix::termios::tcgetwinsize(stdout).map_or(0, |size| size.ws_col) {
        0 => Some(WIDTH + MARGIN),
        columns => Some(columns.into()),
    }
}

/// A timeline that grows event by event.
pub(crate) struct Timeline {
    style: Style,
    text: String,
    /// The time at which the run began, in nanoseconds since the epoch; `None` before the first
    /// event.
    start: Option<i64>,
    /// The time of the last event, in nanoseconds since the epoch.
    last: i64,
    /// The number of events drawn.
    count: usize,
    trace_id: String,
    /// Whether a result was not shown whole.
    has_cut: bool,
    /// The last line of the standard error of a tool that was shown.
    last_output: String,
}

impl Timeline {
    /// Begins a timeline.
    pub(crate) fn new(style: Style) -> Self {
        Self {
            style,
            text: String::new(),
            start: None,
            last: 0,
            count: 0,
            trace_id: String::new(),
            has_cut: false,
            last_output: String::new(),
        }
    }

    /// Returns the message of a failure, without the standard error if it was shown as output already.
    pub(crate) fn message<'e>(&self, error: &'e CallError) -> &'e str {
        let message = error.message.as_str();
        if self.last_output.is_empty() || self.has_cut || !message.ends_with(&self.last_output) {
            return message;
        }
        let streams = ["\nOn standard error:\n", "\nThe end of standard error:\n"];
        let whole = streams.iter().find_map(|name| message.split_once(name));
        whole.map_or(message, |(before, _)| before)
    }

    /// Returns the lines of an event; most events have one, some have none.
    pub(crate) fn event(&mut self, event: &RunEvent) -> String {
        self.last = nanos(event);
        self.start.get_or_insert(self.last);
        self.count += 1;
        if self.trace_id.is_empty() {
            self.trace_id.clone_from(&event.trace_id);
        }
        self.draw(event);
        std::mem::take(&mut self.text)
    }

    /// Returns the lines of the end of a run.
    pub(crate) fn end(&mut self, run: &Run) -> String {
        self.summary(run);
        std::mem::take(&mut self.text)
    }

    fn draw(&mut self, event: &RunEvent) {
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
            Some(Kind::Thinking(thinking)) => self.line(event, "thinking", &thinking.text),
            Some(Kind::Text(text)) => self.line(event, "text", text.text.trim_end()),
            Some(Kind::Diagnosed(diagnosed)) => self.diagnosed(event, diagnosed),
            Some(Kind::CallDispatched(call)) => {
                self.line(
                    event,
                    "call",
                    &format!("{} {}", call.tool_id, call.arguments_json),
                );
            }
            Some(Kind::OutputChunk(chunk)) => self.chunk(event, chunk),
            Some(Kind::OutputReset(reset)) if !reset.interface_key.is_empty() => {
                let text = format!("{}: begins again", reset.interface_key);
                self.line(event, "live", &text);
            }
            Some(Kind::OutputReset(reset)) if voids_answer(reset) => {
                let text = "the answer was cut off and is requested again; discard it so far";
                self.line(event, "asked", text);
            }
            Some(Kind::OutputReset(_)) => {
                self.line(
                    event,
                    "output",
                    "the tool began again; discard its output so far",
                );
            }
            Some(Kind::ProgressReported(report)) => {
                self.line(event, "progress", &progress(report));
            }
            Some(Kind::CallSettled(settled)) => self.settled(event, settled),
            Some(Kind::NodeFinished(node)) => self.node(event, node),
            Some(Kind::Observation(observation)) => {
                self.result(event, "observed", &observation.text);
            }
            Some(Kind::CancelRequested(cancel)) => self.line(event, "cancel", &cancel.reason),
            Some(Kind::RunPaused(pause)) => self.line(event, "paused", &pause.reason),
            Some(Kind::NodeRetrying(retrying)) => {
                let error = retrying
                    .error
                    .as_ref()
                    .map_or("", |error| error.message.as_str());
                let line = format!(
                    "{}: attempt {} failed: {error}",
                    retrying.node_id, retrying.attempt
                );
                self.line(event, "retry", &line);
            }
            Some(Kind::RunQueued(_)) => self.line(event, "queued", "the run waits for its turn"),
            Some(Kind::RunDequeued(_)) => self.line(event, "started", "the turn of the run came"),
            Some(Kind::RunResumed(_)) => self.line(event, "resumed", "the run continues"),
            // A checkpoint concerns only the service.
            Some(Kind::Checkpoint(_)) | None => {}
            Some(waiting) => self.waiting(event, waiting),
        }
    }

    fn chunk(&mut self, event: &RunEvent, chunk: &OutputChunk) {
        let named = |text: &str| match chunk.interface_key.as_str() {
            "" => text.to_owned(),
            key => format!("{key}: {text}"),
        };
        if chunk.json_lines {
            for value in chunk.text.lines() {
                self.result(event, "value", &named(value));
            }
            return;
        }
        let word = match chunk.interface_key.is_empty() {
            true => "output",
            false => "live",
        };
        if let (true, Some(last)) = (
            chunk.interface_key.is_empty(),
            chunk.text.trim_end().lines().last(),
        ) {
            last.clone_into(&mut self.last_output);
        }
        self.result(event, word, &named(chunk.text.trim_end()));
    }

    fn waiting(&mut self, event: &RunEvent, kind: &Kind) {
        match kind {
            Kind::NodeWaiting(waiting) => {
                let wait = waiting.wait.as_ref();
                self.line(
                    event,
                    "waiting",
                    &wait.map(waits::waiting).unwrap_or_default(),
                );
            }
            Kind::NodeWoken(woken) => self.line(event, "woken", &waits::woken(woken)),
            Kind::SignalReceived(signal) => self.line(event, "signal", &signal.name),
            Kind::ApprovalRequested(asked) => {
                let text = format!(
                    "{} waits for the approval {} ({})",
                    asked.tool_id,
                    asked.approval_id,
                    asked.rule_ids.join(", ")
                );
                self.line(event, "approval", &text);
            }
            Kind::SteeringAccepted(accepted) => self.line(event, "steering", &accepted.message),
            Kind::Steered(_) => self.line(event, "steering", "the model is asked with the message"),
            Kind::BudgetsEdited(_) => self.line(event, "budget", "the budgets were changed"),
            Kind::BudgetReached(reached) => self.line(event, "budget", &budget(reached)),
            Kind::ApprovalEnded(ended) => {
                self.line(event, "approval", &waits::approval(ended));
            }
            Kind::HookApplied(applied) => self.line(event, "hook", &waits::hook(applied)),
            Kind::CallInDoubt(call) => self.line(event, "in doubt", &waits::in_doubt(call)),
            Kind::CallDecided(decided) => self.line(event, "decided", &waits::decided(decided)),
            kind => {
                if let Some((word, text)) = scenes::line(kind) {
                    self.line(event, word, &text);
                }
            }
        }
    }

    fn opening(&mut self, event: &RunEvent, started: &common::RunStarted) {
        let input: Option<String> = serde_json::from_str(&started.input_json).ok();
        if let (false, Some(message)) = (started.input_is_model_text, input) {
            self.line(event, "user", &message);
        }
    }

    fn diagnosed(&mut self, event: &RunEvent, diagnosed: &common::Diagnosed) {
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

    fn settled(&mut self, event: &RunEvent, settled: &common::CallSettled) {
        let Some(result) = &settled.result else {
            return;
        };
        let took = duration(result.duration);
        let replayed = if result.replayed { ", replayed" } else { "" };
        match result.status() {
            CallStatus::Succeeded => {
                self.result(
                    event,
                    "result",
                    &format!("{}   ({took}{replayed})", output_text(result)),
                );
            }
            status => {
                let error = result.error.clone().unwrap_or_default();
                let status = name(status.as_str_name(), "CALL_STATUS_");
                let text = format!(
                    "{} {status}: {} ({})",
                    result.tool_id,
                    self.message(&error),
                    error.code
                );
                self.line(event, "failed", &text);
            }
        }
    }

    fn node(&mut self, event: &RunEvent, node: &common::NodeFinished) {
        let took = duration(node.duration);
        let text = match node.state() {
            NodeState::Succeeded => {
                format!(
                    "{} ({}) {}   ({took})",
                    node.node_id, node.node_type, node.outputs_json
                )
            }
            NodeState::Cached => {
                let source = node.cache.as_ref().map_or("", |cache| &cache.source_run_id);
                format!(
                    "{} ({}) cached {}   (of {source})",
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
        self.result(event, "node", &text);
    }

    fn summary(&mut self, run: &Run) {
        let state = name(
            RunState::try_from(run.state)
                .unwrap_or_default()
                .as_str_name(),
            "RUN_STATE_",
        );
        let took = millis(self.last - self.start.unwrap_or(self.last));
        let durability = name(run.durability().as_str_name(), "DURABILITY_");
        let count = self.count;
        let error = run
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.error.as_ref());
        let error = error.map_or(String::new(), |error| format!(": {}", self.message(error)));
        let stop = run
            .outcome
            .as_ref()
            .map_or(StopReason::Unspecified, RunOutcome::stop_reason);
        let stop = match stop {
            StopReason::Unspecified | StopReason::Stop => String::new(),
            reason => format!(
                ", stopped by {}",
                name(reason.as_str_name(), "STOP_REASON_")
            ),
        };
        self.push(
            took.as_str(),
            0,
            &state,
            &format!("{count} events, durability {durability}{stop}{error}"),
        );
        let trace_id = std::mem::take(&mut self.trace_id);
        self.push("", 0, "trace", &trace_id);
        if std::mem::take(&mut self.has_cut) {
            self.push(
                "",
                0,
                "cut",
                "results are not shown whole; `--json` has them",
            );
        }
    }

    /// Writes a message or an event, whole.
    fn line(&mut self, event: &RunEvent, word: &str, text: &str) {
        let at = millis(nanos(event) - self.start.unwrap_or_default());
        self.push(&at, event.parent_path.len(), word, text);
    }

    /// Writes the result of a tool or a node, cut to the width of the style.
    fn result(&mut self, event: &RunEvent, word: &str, text: &str) {
        let Some(width) = self.style.width else {
            return self.line(event, word, text);
        };
        let lines: Vec<&str> = text.lines().collect();
        let (first, more) = lines.split_at(lines.len().min(MOST_LINES));
        let mut shown: Vec<String> = first.iter().map(|line| cut(line, width)).collect();
        if !more.is_empty() {
            shown.push(format!("... {} more lines", more.len()));
        }
        self.has_cut |= !more.is_empty() || first.iter().any(|line| exceeds(line, width));
        self.line(event, word, &shown.join("\n"));
    }

    /// Writes one entry: time, kind, and its text with every line below the first indented.
    fn push(&mut self, at: &str, depth: usize, word: &str, text: &str) {
        let indent = "  ".repeat(depth);
        for (number, line) in text.lines().enumerate() {
            let (at, word) = if number == 0 { (at, word) } else { ("", "") };
            let word = coloured(word, self.style.colour);
            let line = cut(line, usize::MAX);
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "  {at:>9}  {indent}{word} {line}");
        }
    }
}

/// Returns the kind of a line, padded to its column.
fn coloured(word: &str, colour: bool) -> String {
    let code = match word {
        "call" | "node" | "run" => 36,
        "result" | "succeeded" => 32,
        "failed" | "cancelled" | "in doubt" | "in_doubt" => 31,
        "remark" | "cancel" => 33,
        _ => 90,
    };
    match colour {
        true => format!("\u{1b}[{code}m{word:<9}\u{1b}[0m"),
        false => format!("{word:<9}"),
    }
}

/// Whether a line has more than `width` characters.
fn exceeds(line: &str, width: usize) -> bool {
    line.chars().nth(width).is_some()
}

/// Cuts a line and replaces control characters, so that no output of a tool can steer the terminal.
pub(crate) fn cut(line: &str, width: usize) -> String {
    let shown: String = line
        .chars()
        .take(width)
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect();
    if exceeds(line, width) {
        format!("{shown}...")
    } else {
        shown
    }
}

/// Returns the output of a call that succeeded, for a person to read: JSON text, and of a long
/// output its beginning and its handle.
pub(crate) fn output_text(result: &CallResult) -> Cow<'_, str> {
    match &result.long_output {
        None => Cow::Borrowed(&result.output_json),
        Some(long) => Cow::Owned(format!(
            "{} … ({} bytes, handle {})",
            long.head, long.total_bytes, result.effect_id
        )),
    }
}

fn nanos(event: &RunEvent) -> i64 {
    event.time.map_or(0, |time| {
        time.seconds * 1_000_000_000 + i64::from(time.nanos)
    })
}

/// Returns the name of an enum value without its prefix: `RUN_STATE_SUCCEEDED` is `succeeded`.
pub fn name(value: &str, prefix: &str) -> String {
    value.strip_prefix(prefix).unwrap_or(value).to_lowercase()
}

fn millis(nanos: i64) -> String {
    // Shown to a tenth; the rounding matters only for display.
    format!("{:.1} ms", nanos as f64 / 1e6)
}

fn duration(duration: Option<prost_types::Duration>) -> String {
    millis(duration.map_or(0, |d| d.seconds * 1_000_000_000 + i64::from(d.nanos)))
}

/// Writes the used part of a budget.
fn budget(reached: &common::BudgetReached) -> String {
    let name = reached.unit().as_str_name();
    let name = name.trim_start_matches("BUDGET_UNIT_").to_lowercase();
    let state = if reached.spent {
        "spent"
    } else {
        "nearly spent"
    };
    format!("{name}: {} of {} ({state})", reached.used, reached.limit)
}

/// Writes a report of a script's progress.
fn progress(report: &common::ProgressReported) -> String {
    let part = report.fraction.map(|done| format!("{:.0} %", done * 100.0));
    let message = (!report.message.is_empty()).then(|| report.message.clone());
    part.into_iter()
        .chain(message)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{Observation, TextDelta};

    use super::*;

    /// Draws an answer and an observation of ten long lines each.
    fn drawn(width: Option<usize>) -> String {
        let long: String = (0..10)
            .map(|at| format!("{at}{}|\n", "x".repeat(200)))
            .collect();
        let kinds = [
            Kind::Text(TextDelta { text: long.clone() }),
            Kind::Observation(Observation {
                text: long,
                ..Observation::default()
            }),
        ];
        let style = Style {
            width,
            colour: false,
        };
        let mut timeline = Timeline::new(style);
        let events = kinds.map(|kind| RunEvent {
            kind: Some(kind),
            ..RunEvent::default()
        });
        let mut text: String = events.iter().map(|event| timeline.event(event)).collect();
        text.push_str(&timeline.end(&Run::default()));
        text
    }

    #[test]
    fn a_terminal_shows_answers_whole_and_says_that_it_cuts_results() {
        let text = drawn(Some(40));
        assert_eq!(text.matches("x|").count(), 10, "{text}");
        assert!(
            text.contains("... 4 more lines") && text.contains("`--json`"),
            "{text}"
        );
    }

    #[test]
    fn a_long_output_is_its_beginning_its_size_and_its_handle() {
        let long = common::LongOutput {
            head: "[1".to_owned(),
            total_bytes: 9,
        };
        let result = CallResult {
            effect_id: "e1".to_owned(),
            long_output: Some(long),
            ..CallResult::default()
        };
        assert_eq!(output_text(&result), "[1 … (9 bytes, handle e1)");
    }

    #[test]
    fn a_pipe_has_everything_whole() {
        let text = drawn(None);
        assert_eq!(text.matches("x|").count(), 20, "{text}");
        assert!(!text.contains("not shown whole"), "{text}");
    }
}
