//! Lists of calls.

use contracts::tavern::common::v1::CallStatus;
use run_log::{Order, RunCursor, RunFilter, RunState, RunSummary};
use tonic::Status;

use super::{Ledger, LedgerEntry, resolve, storage_failure};

/// One page of a list.
#[derive(Debug, Default)]
pub struct CallPage {
    /// The calls, the newest first.
    pub calls: Vec<LedgerEntry>,
    /// The start of the next page; `None` at the end of the list.
    pub next: Option<RunCursor>,
}

impl Ledger {
    /// Lists calls, the newest first. A call in doubt that was decided is listed by its decision only.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn list(
        &self,
        filter: &RunFilter,
        after: Option<RunCursor>,
        size: usize,
    ) -> Result<CallPage, Status> {
        self.catch_up().await;
        let mut listed = CallPage {
            calls: Vec::new(),
            next: after,
        };
        loop {
            let room = size - listed.calls.len();
            let page = self
                .logs
                .list(filter, Order::NewestFirst, listed.next.as_ref(), room)
                .await;
            let page = page.map_err(|error| storage_failure(&error))?;
            for summary in page.runs {
                if !self.is_replaced(&summary).await? {
                    listed.calls.push(self.read(summary).await?);
                }
            }
            listed.next = page.next;
            if listed.next.is_none() || listed.calls.len() >= size {
                return Ok(listed);
            }
        }
    }

    /// Whether an entry is in doubt and no decision stands in its place, or cannot be read.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn is_undecided(&self, summary: &RunSummary) -> Result<bool, Status> {
        let in_doubt = RunState::Finished(CallStatus::InDoubt.into());
        if summary.state != in_doubt {
            return Ok(false);
        }
        if super::entry::record_of(summary).is_err() {
            return Ok(true);
        }
        Ok(!self.is_replaced(summary).await?)
    }

    /// Whether an entry was in doubt and a decision stands in its place.
    async fn is_replaced(&self, summary: &RunSummary) -> Result<bool, Status> {
        let in_doubt = RunState::Finished(CallStatus::InDoubt.into());
        let Some(request) = summary
            .request
            .as_ref()
            .filter(|_| summary.state == in_doubt)
        else {
            return Ok(false);
        };
        let record = super::entry::record_of(summary)?;
        let (tenant, scope) = (summary.owner.tenant(), resolve::scope_of(record.attempt));
        let found = self.by_request(tenant, &scope, &request.request_id).await?;
        Ok(found.is_some())
    }
}
