//! Replacing earlier turns by a summary before a request that would be too long (rule G603).

use std::time::{Duration, Instant};

use contracts::tavern::common::v1::{
    ConversationCompacted, conversation_compacted::Method, run_event::Kind,
};
use futures::StreamExt;
use run_events::{CancelReason, RunControl, timestamp_to_proto};
use sha2::{Digest, Sha256};

use super::{driver::Driver, stop::Stop};
use crate::{
    domain::{
        compaction::{self, Compaction, SUMMARY_TOKENS, tokens},
        prompt,
    },
    provider::{AnswerEnd, Model, ModelError, ModelRequest, Piece},
    wire,
};

/// How long a summary may take.
const LONGEST: Duration = Duration::from_secs(120);

impl Driver {
    /// Replaces the turns before the last ones, if the request would fill too much of the model's
    /// context.
    pub(super) async fn compact_if_long(&mut self, name: &str) -> Result<(), Stop> {
        // A deliberation workflow asks the models that it names; that of the profile stands for them.
        let name = self.plan.model.as_deref().unwrap_or(name);
        let fallbacks = self.plan.fallbacks.as_deref();
        let Ok(model) = self.shared.models.with_fallbacks(name, fallbacks) else {
            return Ok(());
        };
        let before = tokens(self.prompt().bytes());
        let output = u64::from(self.plan.max_output_tokens.unwrap_or_default());
        let limit = match model.context_tokens() {
            Some(context) => self.plan.compaction.limit(context, output),
            None if self.is_too_long => self.plan.compaction.limit(before, 0),
            None => return Ok(()),
        };
        if before <= limit && !self.is_too_long {
            return Ok(());
        }
        let covered = self.replaceable();
        if covered == 0 {
            return Ok(());
        }
        let most_bytes = usize::try_from(limit)
            .unwrap_or(usize::MAX)
            .saturating_mul(3);
        let summary = match self.summary_request(covered, most_bytes) {
            Some(request) => summarise(&model, request, self.control.clone()).await?,
            None => None,
        };
        let covered = match &summary {
            Some(_) => covered,
            None => self.fewest(covered, before, limit),
        };
        self.replace(covered, summary, before).await
    }

    /// Returns how many of the first turns can be replaced: more than a summary alone, and not the last ones.
    pub(super) fn replaceable(&self) -> usize {
        let turns = self.earlier.len().saturating_sub(self.given);
        let covered = turns.saturating_sub(self.plan.compaction.keep_turns);
        match self.has_summary && covered == 1 {
            true => 0,
            false => covered,
        }
    }

    /// Returns what asks for a summary of the first turns; none if the budgets leave no room for it.
    fn summary_request(&self, turns: usize, most_bytes: usize) -> Option<ModelRequest> {
        self.reserved(false).ok()?;
        let turns = &self.earlier[..turns];
        Some(ModelRequest {
            messages: compaction::request(turns, self.plan.language, most_bytes),
            max_output_tokens: Some(SUMMARY_TOKENS),
            temperature: None,
            top_p: None,
            seed: None,
            tools: Vec::new(),
            may_call: false,
            grammar: String::new(),
            deadline: Instant::now() + self.recorder.remaining().min(LONGEST),
        })
    }

    /// Returns how many of the oldest turns have to be left out, at most `most`.
    fn fewest(&self, most: usize, before: u64, limit: u64) -> usize {
        let mut left = before;
        for (index, turn) in self.earlier[..most].iter().enumerate() {
            let bytes = turn.iter().map(|said| said.message.bytes()).sum();
            left = left.saturating_sub(tokens(bytes));
            if left <= limit {
                return index + 1;
            }
        }
        most
    }

    async fn replace(
        &mut self,
        covered: usize,
        summary: Option<(String, AnswerEnd)>,
        before: u64,
    ) -> Result<(), Stop> {
        let covered = &self.earlier[..covered];
        let until = covered.last().and_then(|turn| turn.first());
        let Some(until) = until.map(|first| first.time) else {
            return Ok(());
        };
        let replaced = prompt::assemble("", "", covered, &[], usize::MAX);
        let turns = u32::try_from(covered.len()).unwrap_or(u32::MAX);
        let (summary, end) = summary.unzip();
        let method = match summary {
            Some(_) => Method::Model,
            None => Method::Dropped,
        };
        let compaction = Compaction {
            until,
            summary: summary.unwrap_or_default(),
            turns,
        };
        compaction.apply(&mut self.earlier, self.plan.language);
        self.has_summary = true;
        let after = tokens(self.prompt().bytes());
        let compacted = ConversationCompacted {
            until: Some(timestamp_to_proto(until)),
            method: method.into(),
            turns,
            replaced_digest: replaced.digest(),
            summary_digest: match compaction.summary.as_str() {
                "" => String::new(),
                summary => hex::encode(Sha256::digest(summary)),
            },
            summary: compaction.summary,
            tokens_before: before,
            tokens_after: after,
            model: end
                .as_ref()
                .map_or_else(String::new, |end| end.model.clone()),
            usage: end.map(|end| wire::usage_to_proto(&end.booking)),
        };
        self.note_now(Kind::ConversationCompacted(compacted))
            .await?;
        Ok(())
    }
}

/// Asks the model for a summary; none if it gives none.
async fn summarise(
    model: &Model,
    request: ModelRequest,
    control: RunControl,
) -> Result<Option<(String, AnswerEnd)>, Stop> {
    let answered = tokio::select! {
        answered = collect(model, request) => answered,
        () = control.cancelled() => {
            return Err(Stop::Cancelled(control.why().unwrap_or(CancelReason::Deadline)));
        }
    };
    Ok(match answered {
        Ok((text, end)) => compaction::kept(&text).map(|summary| (summary, end)),
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
