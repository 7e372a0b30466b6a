//! The tasks of an agent, a page at a time.

use contracts::{
    lf::a2a::v1::{ListTasksRequest, ListTasksResponse, Task, TaskState},
    tavern::run::v1::ListRunsRequest,
};
use core_types::PageToken;
use grpc_kit::{Failure, run_list};
use prost::Message;
use prost_types::Timestamp;
use tonic::Status;

use super::{A2aRpc, TaskReader, task::View, tenant_of};

/// The default size of a page, and the largest.
const PAGE: (i32, i32) = (50, 100);
/// The number of bytes of tasks after which a page ends early.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// The number of turns that do not meet the conditions after which a page ends early.
const MAX_LOOKS: usize = 1_000;

impl A2aRpc {
    /// Returns a page of tasks, the newest first. The total grows from page to page, by the tasks
    /// seen.
    pub(super) async fn list(
        &self,
        request: ListTasksRequest,
        caller: TaskReader,
    ) -> Result<ListTasksResponse, Status> {
        let asked = ListQuery::read(&request)?;
        let mut runs = ListRunsRequest {
            subject: tenant_of(&request.tenant)?.to_owned(),
            conversation_id: request.context_id.clone(),
            page_size: asked.size,
            ..ListRunsRequest::default()
        };
        let (before, place) = place_of(&asked.name, &request.page_token)?;
        runs.page_token = place;
        let size = usize::try_from(asked.size).unwrap_or_default();
        let (mut tasks, mut bytes, mut looks) = (Vec::new(), 0, 0);
        loop {
            let (page, next) = self.runs.list(&caller.context, &runs).await?;
            let last = page.len();
            runs.page_token = next;
            for (index, run) in page.into_iter().enumerate() {
                let place = run_list::place(&run);
                looks += 1;
                let task = self.task(run, asked.view, caller.clone()).await?;
                if asked.is_met(&task) {
                    bytes += task.encoded_len();
                    tasks.push(task);
                }
                let is_full = tasks.len() == size || bytes > MAX_PAGE_BYTES || looks == MAX_LOOKS;
                let is_end = index + 1 == last && runs.page_token.is_empty();
                if let Some(place) = place.filter(|_| is_full && !is_end) {
                    let seen = before + tasks.len();
                    let token = format!(
                        "{seen} {}",
                        run_list::token_after(&caller.context, &runs, &place)
                    );
                    let token = PageToken::after(token).encode(&asked.name);
                    // At least one more may follow.
                    return Ok(asked.page(tasks, seen + 1, token));
                }
            }
            if runs.page_token.is_empty() {
                let seen = before + tasks.len();
                return Ok(asked.page(tasks, seen, String::new()));
            }
        }
    }
}

/// A list request, checked.
struct ListQuery {
    /// The conditions, to which a page token belongs.
    name: String,
    size: i32,
    view: View,
    status: TaskState,
    since: Option<Timestamp>,
}

impl ListQuery {
    fn read(request: &ListTasksRequest) -> Result<Self, Failure> {
        let mut failure = Failure::invalid_fields();
        let size = request.page_size.unwrap_or(PAGE.0);
        if !(1..=PAGE.1).contains(&size) {
            failure.add_violation("page_size", format!("is not between 1 and {}", PAGE.1));
        }
        let status = TaskState::try_from(request.status).unwrap_or_else(|_| {
            failure.add_violation("status", format!("{} is not a state", request.status));
            TaskState::Unspecified
        });
        let since = request.status_timestamp_after;
        if since.is_some_and(|time| run_list::timestamp_from_proto(time).is_none()) {
            let problem = "is not a valid time between the years 1678 and 2262";
            failure.add_violation("status_timestamp_after", problem);
        }
        if request.context_id.len() > 256 {
            failure.add_violation("context_id", "exceeds 256 bytes");
        }
        if !failure.is_empty() {
            return Err(failure);
        }
        let view = View::listed(
            request.history_length,
            request.include_artifacts.unwrap_or_default(),
        )?;
        Ok(Self {
            name: format!(
                "tasks {:?}",
                (&request.tenant, &request.context_id, status, since)
            ),
            size,
            view,
            status,
            since,
        })
    }

    fn is_met(&self, task: &Task) -> bool {
        let Some(status) = &task.status else {
            return false;
        };
        let at = |time: Timestamp| (time.seconds, time.nanos);
        let is_late = |since| status.timestamp.is_some_and(|time| at(time) >= at(since));
        (self.status == TaskState::Unspecified || self.status == status.state())
            && self.since.is_none_or(is_late)
    }

    fn page(&self, tasks: Vec<Task>, total: usize, token: String) -> ListTasksResponse {
        ListTasksResponse {
            tasks,
            next_page_token: token,
            page_size: self.size,
            total_size: i32::try_from(total).unwrap_or(i32::MAX),
        }
    }
}

/// Reads a page token: the number of tasks of the pages before, and the place in the list of runs.
fn place_of(list: &str, token: &str) -> Result<(usize, String), Failure> {
    let refused = || {
        let problem = "does not belong to this list; start again without one";
        Failure::invalid_fields().violation("page_token", problem)
    };
    let Some(token) = PageToken::decode(list, token).map_err(|_| refused())? else {
        return Ok((0, String::new()));
    };
    let (seen, place) = token.last_key().split_once(' ').ok_or_else(refused)?;
    Ok((seen.parse().map_err(|_| refused())?, place.to_owned()))
}
