//! Page tokens of requests.

use std::borrow::Cow;

use core_types::{PageToken, Tenant};

use crate::{CallContext, Failure};

/// Reads the field `page_token` of a request for a list; none for the first page.
///
/// # Errors
/// A token of another list.
pub fn page_token(list: &str, written: &str) -> Result<Option<PageToken>, Failure> {
    PageToken::decode(list, written)
        .map_err(|error| Failure::invalid_fields().violation("page_token", error.to_string()))
}

/// Returns the name of a list of a call's tenant for its page tokens, as [`list_of_tenant`] does.
pub fn list_of<'a>(context: &CallContext, list: &'a str) -> Cow<'a, str> {
    list_of_tenant(context.tenant(), list)
}

/// Returns the name of a list for its page tokens: another one for each tenant, so that the token of another
/// tenant is refused as a forged one is.
pub fn list_of_tenant(tenant: Tenant, list: &str) -> Cow<'_, str> {
    match tenant.is_default() {
        true => Cow::Borrowed(list),
        false => Cow::Owned(format!("{list}@{tenant}")),
    }
}
