//! Replacing earlier turns by a summary before a request that would be too long (rule G603).

use std::time::{Duration, Instant};

use agent_domain::{
    compaction::{self, Compaction, SUMMARY_TOKENS, tokens},
    deliberation::Situation,
    prompt,
};
use call_catalogue::names::squash;
use contracts::tavern::common::v1::{
    ConversationCompacted, ModelUsage, conversation_compacted::Method, run_event::Kind,
};
use futures::StreamExt;
use model_client::{AnswerEnd, Model, ModelError, ModelRequest, Piece};
use run_events::{CancelReason, RunControl, timestamp_to_proto};
use sha2::{Digest, Sha256};

use super::{
    Driver,
    stop::{NoAnswer, TENANT_LIMIT, TurnStop, model_failure, without_answer},
};
use crate::wire;

/// The time limit of a summary.
const LONGEST: Duration = Duration::from_secs(120);

/// The most text of turns in one summary if the model's context is not known, in bytes.
const MOST_BYTES: usize = 256 << 10;

/// The replacement of earlier turns; they are left out if it is empty.
struct Summary {
    text: String,
    method: Method,
    /// The model or workflow that wrote it; empty for none.
    model: String,
    usage: Option<ModelUsage>,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            text: String::new(),
            method: Method::Dropped,
            model: String::new(),
            usage: None,
        }
    }
}

impl Driver {
    /// Replaces the turns before the last ones, if the request would fill too much of the model's
    /// context.
    pub(super) async fn compact_if_long(&mut self, name: &str) -> Result<(), TurnStop> {
        // A deliberation workflow uses the models that it names; the profile's model stands in for
        // them.
        let name = self.plan.model.as_deref().unwrap_or(name);
        let fallbacks = self.plan.fallbacks.as_deref();
        let Ok(model) = self.shared.models.with_fallbacks(name, fallbacks) else {
            return Ok(());
        };
        let before = tokens(self.prompt().bytes());
        let output = u64::from(self.plan.max_output_tokens.unwrap_or_default());
        let limit = match model.context_tokens() {
            Some(context) => self.plan.compaction.limit(context, output),
            None if self.retries.is_too_long => self.plan.compaction.limit(before, 0),
            None => return Ok(()),
        };
        if before <= limit && !self.retries.is_too_long {
            return Ok(());
        }
        let covered = self.earlier.replaceable(&self.plan);
        if covered == 0 {
            return Ok(());
        }
        let most_bytes = usize::try_from(limit)
            .unwrap_or(usize::MAX)
            .saturating_mul(3);
        let summary = self.summary(Some(&model), covered, most_bytes).await?;
        let covered = match &summary {
            Some(_) => covered,
            None => self.earlier.turns_to_leave_out(covered, before, limit),
        };
        self.replace(covered, summary, before).await
    }

    /// Replaces the turns before the last ones at a caller's request.
    pub(super) async fn compact_now(&mut self) -> Result<(), TurnStop> {
        let covered = self.earlier.replaceable(&self.plan);
        if covered == 0 || self.log.state().compaction().is_some() {
            return Ok(());
        }
        let before = tokens(self.prompt().bytes());
        let model = self.plan.model.as_deref();
        let fallbacks = self.plan.fallbacks.as_deref();
        let model = model.and_then(|name| self.shared.models.with_fallbacks(name, fallbacks).ok());
        let context = model.as_ref().and_then(Model::context_tokens);
        let limit = context.map_or(MOST_BYTES, |context| {
            let limit = self.plan.compaction.limit(context, SUMMARY_TOKENS.into());
            usize::try_from(limit)
                .unwrap_or(MOST_BYTES)
                .saturating_mul(3)
        });
        match self.summary(model.as_ref(), covered, limit).await? {
            Some(summary) => self.replace(covered, Some(summary), before).await,
            None => {
                let message =
                    "there is no summary, so nothing was replaced; the server's log says why";
                Err(model_failure("summary_failed", message, true))
            }
        }
    }

    /// Returns a summary of the first turns, by the workflow of the profile or the model; none if
    /// both fail.
    async fn summary(
        &mut self,
        model: Option<&Model>,
        covered: usize,
        most_bytes: usize,
    ) -> Result<Option<Summary>, TurnStop> {
        if let Some(workflow) = self.plan.compaction.workflow.clone() {
            return self.summary_by(&workflow, covered, most_bytes).await;
        }
        let mut request = self.summary_request(covered, most_bytes);
        if let Some(request) = &mut request {
            let name = self.plan.model.clone().unwrap_or_default();
            let added = self.added_by_hooks(&name, &request.messages).await?;
            request.messages.extend(added);
        }
        match (model, request) {
            (Some(model), Some(request)) => summarise(model, request, self.control.clone()).await,
            _ => Ok(None),
        }
    }

    /// Returns a summary by a workflow, whose inputs are the turns as a conversation and as a text.
    async fn summary_by(
        &mut self,
        workflow: &str,
        covered: usize,
        most_bytes: usize,
    ) -> Result<Option<Summary>, TurnStop> {
        let turns = &self.earlier.turns()[..covered];
        let digest = prompt::assemble("", "", turns, &[], usize::MAX).digest();
        let conversation = turns.iter().flatten();
        let conversation = conversation.map(|said| said.message.to_json());
        let asked = compaction::request(turns, self.plan.language, most_bytes);
        let situation = Situation {
            conversation: conversation.collect(),
            user_query: asked
                .last()
                .map_or_else(String::new, |said| said.text.clone()),
            system_prompt: asked
                .first()
                .map_or_else(String::new, |said| said.text.clone()),
            ..Situation::default()
        };
        let number = format!("compaction/{}", &digest[..digest.len().min(16)]);
        let inputs = move |interface: &_| {
            let mut inputs = situation.inputs(interface);
            for key in interface.keys() {
                if matches!(squash(key).as_str(), "text" | "texttosummarize") {
                    inputs.insert(key.clone(), situation.user_query.clone().into());
                }
            }
            inputs
        };
        let mut helper = match self.helper(workflow, number, Box::new(inputs)).await {
            Ok(helper) => helper,
            Err(error) => return without_summary(error),
        };
        let control = self.control.clone();
        let answered = helper.whole(&control).await;
        if let Some(used) = helper.take_used() {
            self.log.note(Kind::UsageReported(used))?;
        }
        match answered {
            Ok(text) => Ok(compaction::kept(&text).map(|text| Summary {
                text,
                method: Method::Workflow,
                model: format!("workflow:{workflow}"),
                usage: None,
            })),
            Err(error) => without_summary(error),
        }
    }

    /// Returns the request for a summary of the first turns; none if the budgets leave no room for
    /// it.
    fn summary_request(&self, turns: usize, most_bytes: usize) -> Option<ModelRequest> {
        self.reserved(false).ok()?;
        let turns = &self.earlier.turns()[..turns];
        let messages = compaction::request(turns, self.plan.language, most_bytes);
        let deadline = Instant::now() + self.log.recorder().remaining().min(LONGEST);
        Some(ModelRequest {
            max_output_tokens: Some(SUMMARY_TOKENS),
            may_call: false,
            ..ModelRequest::new(self.meta.principal.tenant(), messages, deadline)
        })
    }

    async fn replace(
        &mut self,
        covered: usize,
        summary: Option<Summary>,
        before: u64,
    ) -> Result<(), TurnStop> {
        let covered = &self.earlier.turns()[..covered];
        let until = covered.last().and_then(|turn| turn.first());
        let Some(until) = until.map(|first| first.time) else {
            return Ok(());
        };
        let replaced = prompt::assemble("", "", covered, &[], usize::MAX);
        let turns = u32::try_from(covered.len()).unwrap_or(u32::MAX);
        let summary = summary.unwrap_or_default();
        let compaction = Compaction {
            until,
            summary: summary.text,
            turns,
        };
        self.earlier.replace(&compaction, &self.plan);
        let after = tokens(self.prompt().bytes());
        let compacted = ConversationCompacted {
            until: Some(timestamp_to_proto(until)),
            method: summary.method.into(),
            turns,
            replaced_digest: replaced.digest(),
            summary_digest: match compaction.summary.as_str() {
                "" => String::new(),
                summary => hex::encode(Sha256::digest(summary)),
            },
            summary: compaction.summary,
            tokens_before: before,
            tokens_after: after,
            model: summary.model,
            usage: summary.usage,
        };
        self.log
            .note_now(Kind::ConversationCompacted(compacted))
            .await?;
        Ok(())
    }
}

/// Continues without the summary of a workflow, unless the turn ends.
fn without_summary(error: NoAnswer) -> Result<Option<Summary>, TurnStop> {
    match error {
        NoAnswer::Stopped(stop @ (TurnStop::Cancelled(_) | TurnStop::Storage(_))) => Err(stop),
        // The next request would end the turn.
        NoAnswer::Stopped(TurnStop::Failed(error)) if error.code == TENANT_LIMIT => {
            Err(TurnStop::Failed(error))
        }
        NoAnswer::Stopped(TurnStop::Failed(error)) => {
            tracing::warn!(error = error.message, "the workflow gave no summary");
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Requests a summary of the model; none if it fails for another reason than a limit of the tenant.
async fn summarise(
    model: &Model,
    request: ModelRequest,
    control: RunControl,
) -> Result<Option<Summary>, TurnStop> {
    let answered = tokio::select! {
        answered = collect(model, request) => answered,
        () = control.cancelled() => {
            return Err(TurnStop::Cancelled(control.why().unwrap_or(CancelReason::Deadline)));
        }
    };
    Ok(match answered {
        Ok((text, end)) => compaction::kept(&text).map(|text| Summary {
            text,
            method: Method::Model,
            usage: Some(wire::usage_to_proto(&end.booking)),
            model: end.model,
        }),
        Err(error @ ModelError::TenantLimit(_)) => return Err(without_answer("", &error)),
        Err(error) => {
            tracing::warn!(%error, "the model gave no summary; earlier turns are left out");
            None
        }
    })
}

async fn collect(model: &Model, request: ModelRequest) -> Result<(String, AnswerEnd), ModelError> {
    let (mut pieces, mut text) = (model.generate(request), String::new());
    while let Some(piece) = pieces.next().await {
        match piece? {
            Piece::Text(piece) => text.push_str(&piece),
            Piece::End(end) => return Ok((text, end)),
            _ => {}
        }
    }
    Err(ModelError::Malformed("the answer has no end".to_owned()))
}
