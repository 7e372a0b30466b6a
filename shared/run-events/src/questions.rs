//! The questions to people, over all runs that a call can see.
//!
//! Runs in memory know their waits. Of the resting runs, the phase shows which wait for a person,
//! and only their logs are read.

use std::collections::HashSet;

use contracts::tavern::common::v1::Wait;
use contracts::tavern::run::v1::{ListQuestionsRequest, ListQuestionsResponse, Question};
use core_types::{PageToken, RunCursor, page::page_size};
use grpc_kit::{CallContext, Failure, list_of};
use prost::Message;
use run_log::{Order, RunFilter, RunState, RunSummary, StateFilter};

use crate::failure::storage_failure;
use crate::meta::RunMeta;
use crate::phase;
use crate::runs::Runs;
use crate::store::seen_by;
use crate::waits::{RecordedWaits, asked};

const LIST: &str = "ListQuestions";

/// The size at which a page ends early.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

impl Runs {
    /// Returns a page of the questions to people, the questions of the newest runs first.
    ///
    /// # Errors
    /// INVALID_FIELDS for the token of another list, or a storage that does not work.
    pub(crate) async fn list_questions(
        &self,
        context: &CallContext,
        request: &ListQuestionsRequest,
    ) -> Result<ListQuestionsResponse, Failure> {
        let list = list_of(context, LIST);
        let size = page_size(request.page_size);
        let mut after = place_of(&list, &request.page_token)?;
        let mut present = self.present_questions(context).await?;
        let mut response = ListQuestionsResponse::default();
        let mut bytes = 0;
        loop {
            let page = self.resting(context, after.as_ref(), size).await?;
            let (last, next) = (page.runs.last().map(RunSummary::cursor), page.next);
            let present_ids: HashSet<_> = present.iter().map(|(run, _)| run.id).collect();
            let mut runs = Vec::new();
            for summary in page.runs {
                if !present_ids.contains(&summary.id) {
                    let events = self.store().events(summary.id).await?;
                    let waits = RecordedWaits::of(&summary.id.to_string(), &events);
                    runs.push((summary, asked(waits.list().map(|(_, wait)| wait))));
                }
            }
            // The runs in memory that belong between the last page and the next one.
            let here = |run: &RunSummary| {
                let key = run.cursor().sort_key();
                let behind = after.is_none_or(|after| key < after.sort_key());
                let before = last.filter(|_| next.is_some());
                behind && before.is_none_or(|last| key > last.sort_key())
            };
            let (now, later) = present.into_iter().partition(|(run, _)| here(run));
            (runs, present) = (merged(runs, now), later);
            for (summary, waits) in runs {
                let place = summary.cursor();
                bytes += waits.iter().map(Wait::encoded_len).sum::<usize>();
                let is_full = response.questions.len() >= size || bytes > MAX_PAGE_BYTES;
                if is_full && !response.questions.is_empty() && !waits.is_empty() {
                    let token = after.unwrap_or(place).to_string();
                    response.next_page_token = PageToken::after(token).encode(&list);
                    return Ok(response);
                }
                after = Some(place);
                add(&mut response, &summary, waits)?;
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(response),
            }
        }
    }

    /// Returns the runs in memory with questions to people, and the waits for their answers.
    async fn present_questions(
        &self,
        context: &CallContext,
    ) -> Result<Vec<(RunSummary, Vec<Wait>)>, Failure> {
        let mut present = Vec::new();
        for active in self.executor().active().all() {
            if !context.sees(active.recorder.owner()) {
                continue;
            }
            let waits = active.waits.asked().await;
            if waits.is_empty() {
                continue;
            }
            let summary = self.store().logs.summary(active.recorder.run_id()).await;
            let summary = summary.map_err(|error| storage_failure(&error))?;
            let open = summary.filter(|summary| summary.state == RunState::Open);
            present.extend(open.map(|summary| (summary, waits)));
        }
        Ok(present)
    }

    async fn resting(
        &self,
        context: &CallContext,
        after: Option<&RunCursor>,
        size: usize,
    ) -> Result<run_log::RunPage, Failure> {
        let filter = RunFilter {
            owners: seen_by(context),
            state: StateFilter::OpenIn(&[phase::ASKING]),
            ..RunFilter::default()
        };
        let logs = &self.store().logs;
        let page = logs.list(&filter, Order::NewestFirst, after, size).await;
        page.map_err(|error| storage_failure(&error))
    }
}

fn merged(
    mut runs: Vec<(RunSummary, Vec<Wait>)>,
    others: Vec<(RunSummary, Vec<Wait>)>,
) -> Vec<(RunSummary, Vec<Wait>)> {
    runs.extend(others);
    runs.sort_by_key(|(run, _)| std::cmp::Reverse(run.cursor().sort_key()));
    runs
}

fn add(
    response: &mut ListQuestionsResponse,
    summary: &RunSummary,
    waits: Vec<Wait>,
) -> Result<(), Failure> {
    let meta = RunMeta::of(summary)?;
    let questions = waits.into_iter().map(|wait| Question {
        run_id: summary.id.to_string(),
        parent_path: meta.path.clone(),
        subject: summary.subject.clone(),
        conversation_id: summary.conversation.clone(),
        wait: Some(wait),
    });
    response.questions.extend(questions);
    Ok(())
}

fn place_of(list: &str, token: &str) -> Result<Option<RunCursor>, Failure> {
    let refused = |problem: String| Failure::invalid_fields().violation("page_token", problem);
    let token = PageToken::decode(list, token).map_err(|error| refused(error.to_string()))?;
    let place = token.map(|token| token.last_key().parse::<RunCursor>());
    place
        .transpose()
        .map_err(|error| refused(error.to_string()))
}
