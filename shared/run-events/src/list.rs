//! Listing runs, a page at a time.

use contracts::tavern::common::v1 as common;
use contracts::tavern::run::v1::ListRunsRequest;
use core_types::{RunCursor, Timestamp, page::page_size};
use grpc_kit::{CallContext, Failure, run_list};
use run_log::{Order, RunFilter, StateFilter};

use crate::failure::storage_failure;
use crate::phase;
use crate::store::{RunStore, seen_by};

impl RunStore {
    /// Returns the page of a list of runs that the call can see, the newest run first, and the token of the next page.
    ///
    /// # Errors
    /// INVALID_FIELDS, or a storage that does not work.
    pub(crate) async fn list_page(
        &self,
        context: &CallContext,
        request: &ListRunsRequest,
    ) -> Result<(Vec<common::Run>, String), Failure> {
        let RunList {
            filter,
            after,
            size,
        } = RunList::read(context, request)?;
        let page = self
            .logs
            .list(&filter, Order::NewestFirst, after.as_ref(), size)
            .await;
        let page = page.map_err(|error| storage_failure(&error))?;
        let next = page
            .next
            .as_ref()
            .map(|next| run_list::token_after(context, request, next));
        let mut runs = Vec::with_capacity(page.runs.len());
        for summary in page.runs {
            runs.extend(self.listed(summary).await?);
        }
        Ok((runs, next.unwrap_or_default()))
    }
}

/// A list request, checked.
struct RunList {
    filter: RunFilter,
    after: Option<RunCursor>,
    size: usize,
}

impl RunList {
    fn read(context: &CallContext, request: &ListRunsRequest) -> Result<Self, Failure> {
        let mut failure = Failure::invalid_fields();
        let mut checked = |field: &str, problem: Option<String>| {
            if let Some(problem) = problem {
                failure.add_violation(field, problem);
            }
        };
        let state = state_filter(request.state);
        let created_since = time(request.created_since);
        let created_before = time(request.created_before);
        let after = run_list::place_of_token(context, request);
        checked("state", state.as_ref().err().cloned());
        checked("created_since", created_since.as_ref().err().cloned());
        checked("created_before", created_before.as_ref().err().cloned());
        checked("page_token", after.as_ref().err().cloned());
        let (Ok(state), Ok(created_since), Ok(created_before), Ok(after)) =
            (state, created_since, created_before, after)
        else {
            return Err(failure);
        };
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let filter = RunFilter {
            owners: seen_by(context),
            subject: text(&request.subject),
            conversation: text(&request.conversation_id),
            state,
            created_since,
            created_before,
            ..RunFilter::default()
        };
        Ok(Self {
            filter,
            after,
            size: page_size(request.page_size),
        })
    }
}

fn time(time: Option<prost_types::Timestamp>) -> Result<Option<Timestamp>, String> {
    match time.map(run_list::timestamp_from_proto) {
        Some(None) => Err("is not a valid time between the years 1678 and 2262".to_owned()),
        Some(time) => Ok(time),
        None => Ok(None),
    }
}

fn state_filter(state: i32) -> Result<StateFilter, String> {
    match common::RunState::try_from(state) {
        Ok(common::RunState::Unspecified) => Ok(StateFilter::Any),
        Ok(common::RunState::Running) => Ok(StateFilter::OpenIn(&[phase::RUNNING])),
        Ok(common::RunState::Waiting) => Ok(StateFilter::OpenIn(phase::ALL_WAITING)),
        Ok(common::RunState::Queued) => Ok(StateFilter::OpenIn(&[phase::QUEUED])),
        Ok(common::RunState::Paused) => Ok(StateFilter::OpenIn(&[phase::PAUSED])),
        Ok(_) => Ok(StateFilter::FinishedAs(state)),
        Err(_) => Err(format!("{state} is not a run state")),
    }
}
