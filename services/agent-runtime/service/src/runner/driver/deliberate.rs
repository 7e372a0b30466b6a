//! Requesting an answer of the model, and reading it.

mod answer_source;
mod reading_context;
mod streaming_answer;
mod text_coalescer;

use std::time::{Duration, Instant};

use agent_domain::{
    observation,
    prompt::Prompt,
    reading::{self, CallReading, Context, Reader, Reading, RefusalKind},
    turn::{Ask, CallState, CallStatus, Turn},
};
use call_text::{FinishReason, Parsed, Policy};
use contracts::tavern::common::v1::{self as common, WorkKind, run_event::Kind};
use futures::{StreamExt, stream};
use model_client::{AnswerEnd, MAX_ANSWER_BYTES, Model, ModelError, Piece};
use run_events::outcome;
use telemetry::attributes;
use tracing::Instrument;
use turn_log::journal;

use self::{answer_source::AnswerSource, text_coalescer::Part};
use super::{
    Driver,
    deliberation::Answer,
    settled,
    shown_states::version,
    stop::{NoAnswer, TurnStop, model_failure, without_answer},
};
use crate::{
    runner::prompting::{self, PromptStates},
    wire,
};

pub(in crate::runner) use reading_context::{ReadingContext, selected};
pub(in crate::runner) use streaming_answer::StreamingAnswer;

/// The finish reason of an answer whose request was ended at the name of an unknown tool.
pub(in crate::runner) const STOPPED_AT_UNKNOWN_TOOL: &str = "stopped_at_unknown_tool";

/// The reasons for which the present answer is requested once more; none if it is requested for the first time.
#[derive(Default)]
pub(super) struct Retries {
    /// Whether the model reported that the request is too long.
    pub(super) is_too_long: bool,
    /// Whether the answer was cut off.
    was_cut: bool,
    /// The event up to which the text of the deliberation workflow is void; zero for none.
    pub(super) void_until: u64,
}

/// A whole answer.
struct WholeAnswer {
    text: String,
    end: AnswerEnd,
    parsed: Parsed,
    took: Duration,
    answer: StreamingAnswer,
}

impl Driver {
    /// Requests an answer of the model and handles it up to the dispatch of its calls.
    pub(super) async fn ask(&mut self, ask: Ask) -> Result<(), TurnStop> {
        if self.turn().has_void_text() {
            self.log
                .note(Kind::OutputReset(common::OutputReset::default()))?;
        }
        self.note_ask(ask)?;
        let model = self.model_name()?;
        self.read_state().await?;
        self.compact_if_long(&model).await?;
        let control = self.control.clone();
        let not_paused = loop {
            self.until_resumed().await?;
            if let Some(not_paused) = control.admit_start().await {
                break not_paused;
            }
        };
        let mut prompt = self.prompt();
        let added = self.messages_of_hooks(&model, &prompt).await?;
        self.log.note(Kind::ModelRequested(common::ModelRequested {
            model: model.clone(),
            messages: u32::try_from(prompt.messages.len()).unwrap_or(u32::MAX),
            state_version: version(&self.states.private).unwrap_or_default(),
            world_version: version(&self.states.world).unwrap_or_default(),
            goals_version: version(&self.states.goals).unwrap_or_default(),
            prompt_digest: prompt.digest(),
        }))?;
        prompt.messages.extend(added);
        self.submit_noted().await?;
        drop(not_paused);
        let span = telemetry::spans::chat(&model);
        let reading_context = self.reading_context(self.plan.policy());
        let answered = self
            .deliberate(&model, prompt, &reading_context, &span)
            .await;
        let answered = match answered {
            Ok(answered) => answered,
            Err(asking) => return self.ask_again(&model, asking, &span).await,
        };
        self.retries = Retries::default();
        describe(&span, &answered.end);
        self.log.note(Kind::ModelAnswered(common::ModelAnswered {
            text: answered.text,
            finish_reason: answered.end.finish_reason.clone(),
            input_tokens: answered.end.usage.input_tokens,
            output_tokens: answered.end.usage.output_tokens,
            duration: prost_types::Duration::try_from(answered.took).ok(),
            model: answered.end.model.clone(),
            usage: match self.plan.deliberation {
                Some(_) => None,
                None => Some(wire::usage_to_proto(&answered.end.booking)),
            },
            failed_attempts: answered
                .end
                .failed_attempts
                .iter()
                .map(wire::attempt_to_proto)
                .collect(),
            reasoning_json: answered.end.reasoning_json(),
        }))?;
        let StreamingAnswer {
            reader,
            announced,
            observed,
            ..
        } = answered.answer;
        self.note_reading(
            answered.parsed,
            &answered.end,
            &reading_context,
            reader,
            announced,
        )?;
        for (index, text) in observed {
            self.log.note(journal::observation(Some(index), text))?;
        }
        Ok(())
    }

    /// Repeats the request to the model if its answer is void; ends the turn otherwise.
    async fn ask_again(
        &mut self,
        model: &str,
        asking: NoAnswer,
        span: &tracing::Span,
    ) -> Result<(), TurnStop> {
        match asking {
            NoAnswer::Stopped(stop) => return Err(stop),
            // As after a crash, the answer is lost and requested again.
            NoAnswer::Void(sequence) => self.retries.void_until = sequence,
            NoAnswer::Interrupted => self.retries.void_until = 0,
            // The request is repeated once, with a summary of earlier turns.
            NoAnswer::Model(error)
                if error.is_context_exceeded()
                    && !self.retries.is_too_long
                    && self.earlier.replaceable(&self.plan) > 0 =>
            {
                self.retries.is_too_long = true;
            }
            // The request is repeated once (rule G505), unless a call of the answer was dispatched.
            NoAnswer::Model(error)
                if error.is_cut_off() && !self.retries.was_cut && self.has_sent_nothing() =>
            {
                self.retries.was_cut = true;
            }
            NoAnswer::Model(error) => {
                telemetry::spans::fail(span, error.code(), &error.to_string());
                return Err(without_answer(model, &error));
            }
        }
        self.drop_calls_in_flight().await
    }

    /// Whether no call of the present answer was dispatched.
    fn has_sent_nothing(&self) -> bool {
        let mut calls = self.turn().calls().iter();
        calls.all(|progress| progress.state == CallState::Read)
    }

    /// Notes the remarks that the model reads with its request.
    fn note_ask(&mut self, ask: Ask) -> Result<(), TurnStop> {
        match ask {
            Ask::Round(iteration) => {
                if let Some(times) = self.turn().remarked_repetition() {
                    let remark = call_prompt::observation::repeated(times);
                    self.log.note(journal::observation(None, remark))?;
                }
                if iteration > 1 {
                    self.note_nearly_spent()?;
                }
                self.log
                    .note(Kind::IterationStarted(common::IterationStarted {
                        iteration,
                        limit: self.turn().budgets().iterations,
                    }))?
            }
            Ask::Last(budget) => {
                self.log.note(journal::observation(
                    None,
                    observation::no_calls_remain(budget),
                ))?;
            }
            Ask::Again => {}
        }
        Ok(())
    }

    /// Returns the name of the model or workflow, as in events.
    fn model_name(&self) -> Result<String, TurnStop> {
        let model = match &self.plan.deliberation {
            Some(workflow) => Some(format!("workflow:{workflow}")),
            None => self.plan.model.clone(),
        };
        model.ok_or_else(|| {
            let message = "the agent has no model; name one in its profile or as default_model";
            model_failure("model_not_found", message, false)
        })
    }

    /// Reads the text that the caller provided instead of an answer.
    pub(super) fn read_opening(&mut self, text: &str) -> Result<(), TurnStop> {
        let policy = self.plan.opening_policy();
        let reading_context = self.reading_context(policy);
        let parsed = reading_context.parse_finished(text);
        self.log.read_opening()?;
        if !parsed.thoughts.is_empty() {
            self.log.note(Kind::Thinking(common::ThinkingDelta {
                text: parsed.thoughts.clone(),
            }))?;
        }
        if !parsed.response_text.is_empty() {
            self.log.note(Kind::Text(common::TextDelta {
                text: parsed.response_text.clone(),
            }))?;
        }
        self.note_reading(
            parsed,
            &AnswerEnd::default(),
            &reading_context,
            Reader::default(),
            0,
        )
    }

    fn reading_context(&self, policy: Policy) -> ReadingContext {
        ReadingContext::of(self.log.state(), self.catalogue(), policy)
    }

    /// Calls a function with the context of reading an answer.
    fn reading<T>(
        &self,
        reading_context: &ReadingContext,
        read: impl FnOnce(Context<'_>) -> T,
    ) -> T {
        let turn = (&self.plan, self.log.state(), &self.untrusted);
        reading_context.reading(turn, read)
    }

    pub(super) fn prompt(&self) -> Prompt {
        let shown = PromptStates {
            private: self.states.private.as_ref().map(|state| &state.value),
            world: self.states.world.as_ref().map(|state| &state.value),
            goals: self.states.goals.as_ref().map(|state| &state.value),
        };
        let turns = (self.earlier.turns(), self.turn().messages());
        let prompt = prompting::prompt(
            &self.plan,
            self.catalogue(),
            (turns.0, &turns.1),
            shown,
            self.shared.history_bytes,
        );
        tracing::debug!(
            digest = prompt.digest(),
            bytes = prompt.bytes(),
            turns_left_out = prompt.turns_left_out,
            "asking the model"
        );
        prompt
    }

    /// Streams one answer, releasing text that cannot be part of a call as it arrives, and starting
    /// calls that no later text can change.
    async fn deliberate(
        &mut self,
        model: &str,
        prompt: Prompt,
        reading_context: &ReadingContext,
        span: &tracing::Span,
    ) -> Result<WholeAnswer, NoAnswer> {
        let started = Instant::now();
        let prompt_bytes = prompt.bytes();
        let begun = self.begin(model, prompt, started).instrument(span.clone());
        let (asked, pieces) = begun.await?;
        if let AnswerSource::Model(model) = &asked {
            describe_model(span, model);
        }
        // Only the request is in the span of the model: calls that are carried out meanwhile are in
        // the turn's span, which a span around everything would hide.
        let pieces = polled_in(span.clone(), pieces);
        let pieces = (pieces, prompt_bytes, started);
        let answered = self.read_answer(model, &asked, pieces, reading_context);
        let answered = answered.await;
        if let Some(used) = asked.take_used() {
            self.log.note(Kind::UsageReported(used))?;
        }
        answered
    }

    /// Reads the answer to a request of a given size and start.
    async fn read_answer(
        &mut self,
        model: &str,
        asked: &AnswerSource,
        (mut pieces, prompt_bytes, started): (Answer, usize, Instant),
        reading_context: &ReadingContext,
    ) -> Result<WholeAnswer, NoAnswer> {
        let mut parser = reading_context.parser();
        let mut answer = StreamingAnswer::default();
        let mut text = String::new();
        let control = self.control.clone();
        let tracked = control.track(WorkKind::ModelRequest, model);
        let end = loop {
            let piece = tokio::select! {
                biased;
                () = control.cancelled() => {
                    asked.cancel("the turn ends").await;
                    return Err(NoAnswer::Stopped(self.stopped()));
                }
                Some(ended) = self.in_flight.next() => {
                    self.note_early_end(ended, &mut answer).await?;
                    continue;
                }
                directive = self.inbox.next() => {
                    if self.obey(directive).await? {
                        asked.cancel("a person steers the turn").await;
                        self.tell_all(answer.text.release()).await?;
                        return Err(NoAnswer::Interrupted);
                    }
                    continue;
                }
                piece = pieces.next() => piece,
                () = answer.text.due() => {
                    self.tell_all(answer.text.release()).await?;
                    continue;
                }
            };
            match piece {
                Some(Ok(Piece::Text(piece))) => {
                    text.push_str(&piece);
                    check_size(&text)?;
                    self.on_parser_events(parser.push(&piece), &mut answer, reading_context)
                        .await?;
                    if answer.unknown.is_some() && self.plan.stop_at_unknown_tool {
                        asked.cancel("it names a tool that is not there").await;
                        break asked.stopped(STOPPED_AT_UNKNOWN_TOOL, prompt_bytes, text.len());
                    }
                }
                Some(Ok(Piece::Thinking(piece))) => {
                    self.tell_all(answer.text.push(Part::Thinking, &piece))
                        .await?
                }
                Some(Ok(Piece::End(end))) => break end,
                Some(Err(error)) => {
                    self.tell_all(answer.text.release()).await?;
                    return Err(error);
                }
                None => return Err(unfinished(text.len())),
            }
        };
        // Dropping the answer ends a request that has not ended by itself.
        drop((pieces, tracked));
        let (events, mut parsed) = parser.finish(FinishReason::from_words(&end.finish_reason));
        self.release_events(events, &mut answer).await?;
        if let Some(unknown) = answer.unknown.take()
            && end.finish_reason == STOPPED_AT_UNKNOWN_TOOL
        {
            let cut = |context: Context<'_>| reading::cut_at(&mut parsed, unknown, context);
            self.reading(reading_context, cut);
        }
        Ok(WholeAnswer {
            text,
            end,
            parsed,
            took: started.elapsed(),
            answer,
        })
    }

    /// Notes all parts that were read from an answer, so that they become durable together. The
    /// first `announced` calls were noted while it was written.
    fn note_reading(
        &mut self,
        parsed: Parsed,
        end: &AnswerEnd,
        reading_context: &ReadingContext,
        reader: Reader,
        announced: usize,
    ) -> Result<(), TurnStop> {
        let native = end.native_calls();
        let reading = self.reading(reading_context, |context| {
            let mut reading = reader.finish(parsed, &native.calls, context);
            reading.diagnostics.extend(native.remarks.iter().cloned());
            understood(self.turn(), reading, context)
        });
        for diagnostic in &reading.diagnostics {
            self.log.note(journal::diagnosed(diagnostic))?;
        }
        for call in reading.calls.iter().skip(announced) {
            self.log.note(selected(call))?;
        }
        for call in reading.calls {
            self.note_refusal(call)?;
        }
        match reading.observation {
            Some(text) => self.log.note(journal::observation(None, text)),
            None => Ok(()),
        }
    }

    fn note_refusal(&mut self, reading: CallReading) -> Result<(), TurnStop> {
        let ended = refused(&reading);
        let Some(refusal) = reading.refusal else {
            return Ok(());
        };
        if let Some(ended) = ended {
            self.log.note(ended)?;
        }
        match refusal.observation {
            Some(text) => self
                .log
                .note(journal::observation(Some(reading.call.index), text)),
            None => Ok(()),
        }
    }
}

/// Adds the help for a model that repeats its mistake: the schema and an example (rule L7).
pub(in crate::runner) fn understood(
    turn: &Turn,
    mut reading: Reading,
    context: Context<'_>,
) -> Reading {
    let failure = reading.failure();
    if failure.is_some_and(|failure| turn.failures_with(&failure) > 1) {
        reading.explain(context);
    }
    reading
}

/// Writes the end of a call that was rejected when it was read; none for other calls.
pub(in crate::runner) fn refused(reading: &CallReading) -> Option<Kind> {
    let refusal = reading.refusal.as_ref()?;
    let category = match refusal.kind {
        RefusalKind::Validation => common::ErrorCategory::Validation,
        RefusalKind::Policy => common::ErrorCategory::Policy,
        RefusalKind::Limit => common::ErrorCategory::Limit,
    };
    let status = match refusal.status {
        CallStatus::Skipped => common::CallStatus::Skipped,
        _ => common::CallStatus::Rejected,
    };
    let mut error = outcome::error(category, &refusal.code, refusal.message.clone());
    error.violations = reading
        .written
        .problems
        .iter()
        .map(call_wire::problem_to_proto)
        .collect();
    Some(settled(&reading.call, status, error))
}

/// Reports an answer that stopped without an end.
fn unfinished(released: usize) -> NoAnswer {
    let detail = "the provider ended without an end".to_owned();
    NoAnswer::Model(ModelError::Cut { released, detail })
}

/// Rejects an answer whose text is too long.
fn check_size(text: &str) -> Result<(), NoAnswer> {
    match text.len() > MAX_ANSWER_BYTES {
        true => Err(NoAnswer::Model(ModelError::TooLarge {
            what: "text",
            limit: MAX_ANSWER_BYTES,
        })),
        false => Ok(()),
    }
}

/// Polls the pieces of an answer in a span.
fn polled_in(span: tracing::Span, mut pieces: Answer) -> Answer {
    let polled =
        move |cx: &mut std::task::Context<'_>| span.in_scope(|| pieces.poll_next_unpin(cx));
    stream::poll_fn(polled).boxed()
}

/// Records the provider of the model on the span.
pub(crate) fn describe_model(span: &tracing::Span, model: &Model) {
    let kind = model.provider().kind();
    telemetry::spans::set(span, attributes::PROVIDER_NAME, kind);
}

/// Records the usage of the model on the span.
pub(crate) fn describe(span: &tracing::Span, end: &AnswerEnd) {
    telemetry::spans::set(
        span,
        attributes::RESPONSE_FINISH_REASONS,
        end.finish_reason.clone(),
    );
    telemetry::spans::set(
        span,
        attributes::USAGE_INPUT_TOKENS,
        i64::from(end.usage.input_tokens),
    );
    telemetry::spans::set(
        span,
        attributes::USAGE_OUTPUT_TOKENS,
        i64::from(end.usage.output_tokens),
    );
}
