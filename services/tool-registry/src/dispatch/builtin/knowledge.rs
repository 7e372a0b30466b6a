//! `QueryKnowledgeBaseTool` and `WriteToKnowledgeBaseTool`: the knowledge bases of the agent whose turn the
//! call belongs to, which is never an argument (rule G307).

use call_outcome::CallOutcome;
use contracts::tavern::agent::v1::{
    FoundEntry, QueryKnowledgeRequest, WriteKnowledgeEntryRequest,
    knowledge_service_client::KnowledgeServiceClient,
};
use grpc_kit::Transport;
use serde_json::{Value, json};

use super::state::{context, conversation, failure_of, request_id};
use crate::dispatch::ResolvedCall;

/// Finds entries by words.
pub(super) async fn query(
    knowledge: &KnowledgeServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let limit = arguments["limit"]
        .as_u64()
        .and_then(|limit| u32::try_from(limit).ok());
    let request = QueryKnowledgeRequest {
        conversation_id,
        query: text(arguments, "query"),
        kb: text(arguments, "kb"),
        limit: limit.unwrap_or_default(),
    };
    let mut client = knowledge.clone();
    let found = context(resolved).scope(client.query_knowledge(request));
    match found.await {
        Ok(found) => {
            let entries = found.into_inner().entries;
            CallOutcome::Succeeded(entries.into_iter().map(shown).collect())
        }
        Err(status) => CallOutcome::Failed(failure_of(&status)),
    }
}

fn shown(found: FoundEntry) -> Value {
    let entry = found.entry.unwrap_or_default();
    json!({
        "caiu_id": entry.caiu_id, "kb": found.kb, "entry_type": entry.entry_type, "text": entry.text,
    })
}

/// Writes an entry. A repeated call with the same effect id writes nothing and gives the same answer.
pub(super) async fn write(
    knowledge: &KnowledgeServiceClient<Transport>,
    resolved: &ResolvedCall,
) -> CallOutcome {
    let conversation_id = match conversation(resolved) {
        Ok(conversation_id) => conversation_id,
        Err(failure) => return CallOutcome::Rejected(failure),
    };
    let arguments = &resolved.arguments;
    let tags = arguments["tags"].as_array().into_iter().flatten();
    let request = WriteKnowledgeEntryRequest {
        conversation_id,
        request_id: request_id(resolved),
        kb: text(arguments, "kb"),
        caiu_id: text(arguments, "caiu_id"),
        text: text(arguments, "text"),
        entry_type: text(arguments, "entry_type"),
        display_name: text(arguments, "displayName"),
        tags: tags.filter_map(Value::as_str).map(str::to_owned).collect(),
    };
    let mut client = knowledge.clone();
    let written = context(resolved).scope(client.write_knowledge_entry(request));
    match written.await {
        Ok(written) => {
            let written = written.into_inner();
            CallOutcome::Succeeded(json!({"caiu_id": written.caiu_id, "version": written.version}))
        }
        Err(status) => CallOutcome::Failed(failure_of(&status)),
    }
}

fn text(arguments: &Value, key: &str) -> String {
    arguments[key].as_str().unwrap_or_default().to_owned()
}
