//! Listing the waits of a run, a page at a time.

use contracts::tavern::run::v1::{ListWaitsRequest, ListWaitsResponse};
use core_types::{PageToken, page::page_size};
use grpc_kit::{CallContext, Failure, list_of};
use prost::Message;

use super::Waits;
use super::board::{Key, RecordedWaits};

/// The size at which a page ends early.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

impl Waits {
    /// Returns a page of the waits that nothing has woken.
    ///
    /// # Errors
    /// INVALID_FIELDS for the token of another list.
    pub(crate) async fn list(
        &self,
        context: &CallContext,
        request: &ListWaitsRequest,
    ) -> Result<ListWaitsResponse, Failure> {
        let mut board = self.inner.board.lock().await;
        board.forget_dropped();
        board.page(context, request)
    }
}

impl RecordedWaits {
    /// Returns a page of the waits that nothing has woken.
    ///
    /// # Errors
    /// INVALID_FIELDS for the token of another list.
    pub(crate) fn page(
        &self,
        context: &CallContext,
        request: &ListWaitsRequest,
    ) -> Result<ListWaitsResponse, Failure> {
        let list = format!("ListWaits/{}", request.run_id);
        let list = list_of(context, &list);
        let token = grpc_kit::page_token(&list, &request.page_token)?;
        let after = token.as_ref().map(PageToken::last_key);
        let size = page_size(request.page_size);
        let mut waits: Vec<contracts::tavern::common::v1::Wait> = Vec::new();
        let (mut bytes, mut last) = (0, String::new());
        for (key, wait) in self.list() {
            let key = text_of(key);
            if after.is_some_and(|after| key.as_str() <= after) {
                continue;
            }
            bytes += wait.encoded_len();
            if waits.len() == size || (bytes > MAX_PAGE_BYTES && !waits.is_empty()) {
                return Ok(ListWaitsResponse {
                    waits,
                    next_page_token: PageToken::after(last).encode(&list),
                });
            }
            waits.push(wait.clone());
            last = key;
        }
        Ok(ListWaitsResponse {
            waits,
            next_page_token: String::new(),
        })
    }
}

/// Returns a text that sorts as the key does.
fn text_of((begun, wait_id): &Key) -> String {
    format!("{:020} {wait_id}", begun.unix_nanos())
}
