//! Page tokens of requests.

use core_types::PageToken;

use crate::Failure;

/// Reads the field `page_token` of a request for a list; none for the first page.
///
/// # Errors
/// A token of another list.
pub fn page_token(list: &str, written: &str) -> Result<Option<PageToken>, Failure> {
    PageToken::decode(list, written)
        .map_err(|error| Failure::invalid_fields().violation("page_token", error.to_string()))
}
