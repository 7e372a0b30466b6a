//! Lists of runs that several services own.
//!
//! A page token is the place of the last run of its page, bound to the conditions of the list. It
//! means the same at every owner of runs, so that the gateway passes one token to all of them and
//! merges their pages.

use contracts::tavern::common::v1 as common;
use contracts::tavern::run::v1::ListRunsRequest;
use core_types::{PageToken, RunCursor, RunCursorError, RunId, Timestamp, page::page_size};

use crate::{CallContext, list_of};

/// Merges the pages that every owner returned for the same request into one page of the request's
/// size. A page is a list of runs and the token of the next page, which is empty at the end.
pub fn merge_pages(
    context: &CallContext,
    request: &ListRunsRequest,
    pages: impl IntoIterator<Item = (Vec<common::Run>, String)>,
) -> (Vec<common::Run>, String) {
    let size = page_size(request.page_size);
    let mut more = false;
    let mut placed = Vec::new();
    for (runs, next_page_token) in pages {
        more |= !next_page_token.is_empty();
        placed.extend(runs.into_iter().filter_map(|run| Some((place(&run)?, run))));
    }
    placed.sort_by_key(|(place, _)| std::cmp::Reverse(place.sort_key()));
    more |= placed.len() > size;
    placed.truncate(size);
    let next = placed.last().filter(|_| more);
    let next = next.map(|(place, _)| token_after(context, request, place));
    let runs = placed.into_iter().map(|(_, run)| run).collect();
    (runs, next.unwrap_or_default())
}

/// Returns the place after which the requested page begins; none for the first page.
///
/// # Errors
/// The problem of the token.
pub fn place_of_token(
    context: &CallContext,
    request: &ListRunsRequest,
) -> Result<Option<RunCursor>, String> {
    let token = PageToken::decode(&list_name(context, request), &request.page_token);
    let Some(token) = token.map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let place = token.last_key().parse();
    place
        .map(Some)
        .map_err(|error: RunCursorError| error.to_string())
}

/// Returns the token of the page after a page that ends with the run at `last`.
pub fn token_after(context: &CallContext, request: &ListRunsRequest, last: &RunCursor) -> String {
    PageToken::after(last.to_string()).encode(&list_name(context, request))
}

/// Converts a time from its wire form; none if it is malformed or out of range.
pub fn timestamp_from_proto(time: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::from_seconds_and_nanos(time.seconds, time.nanos)
}

/// Returns the name of the list: its tenant and conditions, without the fields that change from page to page.
fn list_name(context: &CallContext, request: &ListRunsRequest) -> String {
    let conditions = ListRunsRequest {
        page_size: 0,
        page_token: String::new(),
        ..request.clone()
    };
    list_of(context, &format!("runs {conditions:?}")).into_owned()
}

/// Returns the place of a run in a list; none if its owner sent a run without id or time.
pub fn place(run: &common::Run) -> Option<RunCursor> {
    let id: RunId = run.run_id.parse().ok()?;
    let created = timestamp_from_proto(run.create_time?)?;
    Some(RunCursor::new(created, id))
}

#[cfg(test)]
mod tests {
    use core_types::{RunOwner, Tenant};

    use super::*;

    fn run(owner: RunOwner, number: u128, seconds: i64) -> common::Run {
        common::Run {
            run_id: RunId::new(owner, uuid::Uuid::from_u128(number)).to_string(),
            create_time: Some(prost_types::Timestamp { seconds, nanos: 5 }),
            ..common::Run::default()
        }
    }

    fn own() -> CallContext {
        CallContext::outermost()
    }

    fn list(page_size: i32) -> ListRunsRequest {
        ListRunsRequest {
            subject: "ada".to_owned(),
            page_size,
            ..ListRunsRequest::default()
        }
    }

    #[test]
    fn pages_of_several_owners_become_one_page_the_newest_run_first() {
        let turns = vec![run(RunOwner::Agent, 1, 30), run(RunOwner::Agent, 2, 10)];
        let flows = vec![run(RunOwner::Workflow, 3, 20)];
        let pages = [
            (turns.clone(), String::new()),
            (flows.clone(), String::new()),
        ];
        let (merged, next) = merge_pages(&own(), &list(2), pages.clone());
        assert_eq!(merged, [turns[0].clone(), flows[0].clone()]);
        let request = ListRunsRequest {
            page_token: next,
            ..list(2)
        };
        assert_eq!(place_of_token(&own(), &request), Ok(place(&flows[0])));
        let (all, next) = merge_pages(&own(), &list(3), pages);
        assert_eq!((all.len(), next), (3, String::new()));
    }

    #[test]
    fn a_page_that_an_owner_did_not_exhaust_has_a_next_page() {
        let turns = vec![run(RunOwner::Agent, 1, 30)];
        let (_, next) = merge_pages(&own(), &list(1), [(turns, "more".to_owned())]);
        assert!(!next.is_empty());
    }

    #[test]
    fn a_token_belongs_to_the_conditions_of_its_list() {
        let place = RunCursor::new(
            Timestamp::from_unix_nanos(1),
            RunId::new(RunOwner::Agent, uuid::Uuid::from_u128(1)),
        );
        let of_another = ListRunsRequest {
            page_token: token_after(&own(), &list(1), &place),
            subject: "grace".to_owned(),
            ..list(1)
        };
        assert!(place_of_token(&own(), &of_another).is_err());
    }

    #[test]
    fn a_token_belongs_to_the_tenant_of_its_list() {
        let place = RunCursor::new(
            Timestamp::from_unix_nanos(1),
            RunId::new(RunOwner::Agent, uuid::Uuid::from_u128(1)),
        );
        let acme = CallContext::of_tenant(Tenant::new("acme").unwrap());
        let request = ListRunsRequest {
            page_token: token_after(&acme, &list(1), &place),
            ..list(1)
        };
        assert_eq!(place_of_token(&acme, &request), Ok(Some(place)));
        assert!(place_of_token(&own(), &request).is_err());
    }
}
