//! The source of an answer, and the request to it.

use std::time::{Duration, Instant};

use agent_domain::{
    budgets,
    deliberation::Situation,
    goals,
    message::{ChatMessage, Role},
    prompt::Prompt,
};
use call_prompt::grammar::{Mode, render_grammar};
use contracts::tavern::common::v1 as common;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use model_client::{AnswerEnd, GrammarUse, Model, ModelRequest, Piece, Pieces};
use serde_json::{Value, json};
use turn_log::forked;

use crate::runner::{
    driver::{
        Driver,
        call::HelperParts,
        deliberation::{Answer, AnswerRequest, Deliberation, Inputs},
        stop::{NoAnswer, model_failure},
    },
    prompting,
};

/// The source of an answer.
pub(in crate::runner::driver) enum AnswerSource {
    Model(Model),
    Workflow(Box<Deliberation>),
    /// The answer at which the turn was forked.
    Given,
}

impl AnswerSource {
    /// Ends a run that continues when the pieces of the answer are dropped.
    pub(in crate::runner::driver) async fn cancel(&self, reason: &str) {
        if let Self::Workflow(deliberation) = self {
            deliberation.cancel(reason).await;
        }
    }

    /// Returns the usage of a workflow's run, once it is known.
    pub(in crate::runner::driver) fn take_used(&self) -> Option<common::UsageReported> {
        match self {
            Self::Model(_) | Self::Given => None,
            Self::Workflow(deliberation) => deliberation.take_used(),
        }
    }

    /// Returns the end of an answer that was not read to its end.
    pub(in crate::runner::driver) fn stopped(
        &self,
        reason: &str,
        prompt_bytes: usize,
        answer_bytes: usize,
    ) -> AnswerEnd {
        match self {
            Self::Model(model) => model.stopped(reason, prompt_bytes, answer_bytes),
            Self::Workflow(deliberation) => deliberation.stopped(reason),
            Self::Given => AnswerEnd {
                finish_reason: reason.to_owned(),
                ..AnswerEnd::default()
            },
        }
    }
}

impl Driver {
    /// Requests an answer of the model, or of the agent's deliberation workflow; an answer that is
    /// taken over is requested of neither.
    pub(in crate::runner::driver) async fn begin(
        &mut self,
        model: &str,
        prompt: Prompt,
        started: Instant,
    ) -> Result<(AnswerSource, Answer), NoAnswer> {
        if let Some(answer) = self.log.state().answer_taken() {
            let end = AnswerEnd {
                finish_reason: answer.finish_reason.clone(),
                tool_calls: forked::tool_calls(&answer.native_calls),
                reasoning: call_wire::reasoning_from_proto(&answer.reasoning_json).map(Box::new),
                model: answer.model.clone(),
                ..AnswerEnd::default()
            };
            let pieces = [Piece::Text(answer.text.clone()), Piece::End(end)];
            return Ok((AnswerSource::Given, stream::iter(pieces.map(Ok)).boxed()));
        }
        let Some(question) = self.question(&prompt) else {
            let model = self.model(model)?;
            let pieces = self.request(&model, prompt, started);
            let pieces = pieces.map(|piece| piece.map_err(NoAnswer::Model)).boxed();
            return Ok((AnswerSource::Model(model), pieces));
        };
        let (peers, recorder) = (self.shared.peers.clone(), self.log.recorder().clone());
        let context = self.control.call_context();
        let prepared = Deliberation::prepare(peers, recorder, context, question).await?;
        let pieces = prepared.answer();
        Ok((AnswerSource::Workflow(Box::new(prepared)), pieces))
    }

    pub(in crate::runner::driver) fn model(&self, name: &str) -> Result<Model, NoAnswer> {
        let fallbacks = self.plan.fallbacks.as_deref();
        let found = self.shared.models.with_fallbacks(name, fallbacks);
        found.map_err(|unknown| {
            let message = format!("no model is called `{unknown}` in the settings");
            NoAnswer::Stopped(model_failure("model_not_found", &message, false))
        })
    }

    /// Returns the request to the agent's deliberation workflow; none without such a workflow.
    fn question(&self, prompt: &Prompt) -> Option<AnswerRequest> {
        Some(AnswerRequest {
            workflow_id: self.plan.deliberation.clone()?,
            conversation_id: self.meta.conversation_id.clone(),
            number: match self.turn().steered() {
                0 => (self.turn().answers() + 1).to_string(),
                steered => format!("{}.{steered}", self.turn().answers() + 1),
            },
            inputs: {
                let situation = self.situation(prompt);
                Box::new(move |interface| situation.inputs(interface))
            },
            void_until: self.retries.void_until,
            grant: self.grant_of_workflow(),
        })
    }

    /// Prepares a run of a workflow that works for the turn in addition to its deliberation.
    pub(in crate::runner::driver) fn helper(
        &self,
        workflow_id: &str,
        number: String,
        inputs: Inputs,
    ) -> BoxFuture<'static, Result<Deliberation, NoAnswer>> {
        self.helper_parts(workflow_id)(number, inputs)
    }

    /// Returns a function that prepares such a run, also while the turn continues.
    pub(in crate::runner::driver) fn helper_parts(&self, workflow_id: &str) -> HelperParts {
        let (peers, recorder) = (self.shared.peers.clone(), self.log.recorder().clone());
        let (context, grant) = (self.control.call_context(), self.grant_of_workflow());
        let conversation_id = self.meta.conversation_id.clone();
        let workflow_id = workflow_id.to_owned();
        Box::new(move |number, inputs| {
            let question = AnswerRequest {
                workflow_id,
                conversation_id,
                number,
                inputs,
                void_until: 0,
                grant,
            };
            Deliberation::prepare(peers, recorder, context, question).boxed()
        })
    }

    /// Returns the subject of a workflow's deliberation (rule G201).
    fn situation(&self, prompt: &Prompt) -> Situation {
        let said = prompt.messages.iter();
        let said = said.filter(|message| message.role != Role::System);
        let is_last = self.turn().last().is_some();
        let events = self.log.state().opening_events();
        Situation {
            user_query: match self.turn().messages().first() {
                _ if !events.is_empty() => String::new(),
                Some(opening) if opening.message.role == Role::User => opening.message.text.clone(),
                _ => String::new(),
            },
            conversation: said.map(ChatMessage::to_json).collect(),
            private_state: self
                .states
                .private
                .as_ref()
                .map(|state| state.value.clone()),
            world_state: self.states.world.as_ref().map(|state| state.value.clone()),
            events: events.to_vec(),
            goals: self
                .states
                .goals
                .as_ref()
                .map_or_else(Vec::new, |state| goals::for_workflow(&state.value)),
            observations: self.log.state().observations().items(),
            manifest: if is_last {
                String::new()
            } else {
                prompting::manifest_of_turn(&self.plan, self.catalogue())
            },
            tools: if is_last {
                Vec::new()
            } else {
                self.described_tools()
            },
            system_prompt: self.plan.system_prompt.clone(),
            agent: match &self.plan.scene {
                Some(scene) => json!({"instance_id": scene.instance_id,
                    "profile_id": self.meta.subject, "scene_id": scene.scene_id}),
                None => json!({"instance_id": self.meta.conversation_id,
                    "profile_id": self.meta.subject, "scene_id": ""}),
            },
            trigger: match events.first() {
                Some(event) => json!({"kind": "event", "id": event["event_id"]}),
                None => json!({"kind": "user", "id": self.log.recorder().run_id().to_string()}),
            },
            iteration: self.turn().rounds(),
            calls_remaining: if is_last { 0 } else { self.turn().calls_left() },
        }
    }

    /// Sends a prompt to a model; the answer is a stream of pieces.
    fn request(&self, model: &Model, prompt: Prompt, started: Instant) -> Pieces {
        let reserved = self.reserved(self.turn().last().is_some());
        let reserved = reserved.unwrap_or(Some(budgets::SHORTEST_ANSWER));
        // The deadline of the run comes first, through its control.
        let deadline = started + self.log.recorder().remaining() + Duration::from_secs(1);
        model.generate(ModelRequest {
            max_output_tokens: budgets::within(self.plan.max_output_tokens, reserved),
            temperature: self.plan.temperature,
            tools: match self.plan.tools.is_native() {
                true => self.described_tools(),
                false => Vec::new(),
            },
            may_call: self.turn().last().is_none(),
            grammar: self.grammar(model.grammar()),
            begins_in_thought: self.plan.begins_in_thought,
            ..ModelRequest::new(self.meta.principal.tenant(), prompt.messages, deadline)
        })
    }

    /// Returns the grammar of the next answer; empty if it needs none, or the model calls natively.
    fn grammar(&self, used: GrammarUse) -> String {
        let mode = match used {
            GrammarUse::None => return String::new(),
            GrammarUse::CallFirst if self.turn().answers() == 0 => Mode::Call,
            GrammarUse::Free | GrammarUse::CallFirst => Mode::Free,
        };
        let may_call = self.turn().last().is_none() && !self.catalogue().is_empty();
        if self.plan.tools.is_native() || !may_call {
            return String::new();
        }
        match render_grammar(
            self.catalogue(),
            self.plan.taught_dialect(),
            mode,
            self.plan.nonce.as_deref(),
        ) {
            Ok(grammar) => grammar.text,
            Err(error) => {
                tracing::warn!(agent = self.meta.subject, %error, "sent the request without a grammar");
                String::new()
            }
        }
    }

    /// Returns the tools with `name`, `description` and `parameters`.
    fn described_tools(&self) -> Vec<Value> {
        let tools = self.catalogue().tools();
        tools
            .map(|tool| {
                let parameters = match &tool.parameters {
                    Value::Object(schema) => schema.clone().into(),
                    _ => json!({"type": "object"}),
                };
                json!({"name": tool.id, "description": tool.description,
                                   "parameters": parameters})
            })
            .collect()
    }
}
