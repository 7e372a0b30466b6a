//! The wire: requests in, answers and statuses out.

mod a2a;
mod agent;
mod conversations;
mod documents;
mod fork;
mod knowledge;
mod model;
mod operations;
mod profiles;
mod projects;
mod publishers;
mod references;
mod scenes;
mod start;
mod states;
mod steering;
mod tool_scope;
mod worlds;

pub use a2a::{A2aRpc, LONG_METHOD};
pub use agent::AgentRpc;
pub use conversations::ConversationRpc;
pub use knowledge::KnowledgeRpc;
pub use model::ModelRpc;
pub use profiles::ProfileRpc;
pub use projects::ProjectRpc;
pub use publishers::Publishers;
pub use references::Surroundings;
pub use scenes::SceneRpc;
pub use states::StateRpc;

use core_types::RequestId;
use grpc_kit::Failure;

/// Rejects an invalid name of a request; it may be empty.
fn check_request_id(request_id: &str) -> Result<(), Failure> {
    match RequestId::new(request_id) {
        Err(error) if !request_id.is_empty() => {
            Err(Failure::invalid_fields().violation("request_id", error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Reads the start of a page: the key of the last entry of the page before.
fn page_after(list: &str, page_token: &str) -> Result<Option<String>, Failure> {
    let token = grpc_kit::page_token(list, page_token)?;
    Ok(token.map(|token| token.last_key().to_owned()))
}

/// Cuts a list that may have one entry more than its page, and returns the token of the next page.
fn page<T>(
    list: &str,
    mut entries: Vec<T>,
    size: usize,
    key: impl Fn(&T) -> String,
) -> (Vec<T>, String) {
    if entries.len() <= size {
        return (entries, String::new());
    }
    entries.truncate(size);
    let token = entries
        .last()
        .map(|last| core_types::PageToken::after(key(last)).encode(list));
    (entries, token.unwrap_or_default())
}
