//! Pages of lists that are sorted by a key.

use core_types::{PageToken, page::page_size};
use tonic::Status;

/// Returns the page of the list named `list` that `token` asks for, and the token of the next page.
pub(super) fn page_after<'a, T>(
    list: &str,
    token: &str,
    size: i32,
    all: &'a [T],
    key: impl Fn(&T) -> &str,
) -> Result<(&'a [T], String), Status> {
    let token = grpc_kit::page_token(list, token)?;
    let begin = token.map_or(0, |token| {
        all.partition_point(|entry| key(entry) <= token.last_key())
    });
    let rest = &all[begin..];
    let page = &rest[..rest.len().min(page_size(size))];
    let next = match page.last() {
        Some(last) if page.len() < rest.len() => PageToken::after(key(last)).encode(list),
        _ => String::new(),
    };
    Ok((page, next))
}
