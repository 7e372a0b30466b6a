//! `QueryKnowledgeBaseTool` and `WriteToKnowledgeBaseTool`: the knowledge bases of the agent whose turn the
//! call belongs to.

use call_outcome::Failure;
use contracts::tavern::agent::v1::{
    FoundEntry, QueryKnowledgeRequest, WriteKnowledgeEntryRequest,
    knowledge_service_client::KnowledgeServiceClient,
};
use grpc_kit::Outbound;
use serde_json::{Value, json};

use super::peer::PeerCall;

/// Finds entries by words.
pub(super) async fn query(
    knowledge: &KnowledgeServiceClient<Outbound>,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    let request = QueryKnowledgeRequest {
        conversation_id: call.conversation_id(),
        query: call.text("query"),
        kb: call.text("kb"),
        limit: call.number("limit"),
    };
    let found = call.ask(knowledge.clone().query_knowledge(request)).await?;
    Ok(found.entries.into_iter().map(shown).collect())
}

fn shown(found: FoundEntry) -> Value {
    let entry = found.entry.unwrap_or_default();
    json!({
        "caiu_id": entry.caiu_id, "kb": found.kb, "entry_type": entry.entry_type, "text": entry.text,
    })
}

/// Writes an entry. A repeated call with the same effect id writes nothing and gives the same answer.
pub(super) async fn write(
    knowledge: &KnowledgeServiceClient<Outbound>,
    call: &PeerCall<'_>,
) -> Result<Value, Failure> {
    let request = WriteKnowledgeEntryRequest {
        conversation_id: call.conversation_id(),
        request_id: call.request_id(),
        kb: call.text("kb"),
        caiu_id: call.text("caiu_id"),
        text: call.text("text"),
        entry_type: call.text("entry_type"),
        display_name: call.text("displayName"),
        tags: call.texts("tags"),
    };
    let written = call
        .ask(knowledge.clone().write_knowledge_entry(request))
        .await?;
    Ok(json!({"caiu_id": written.caiu_id, "version": written.version}))
}
