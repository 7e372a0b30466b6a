//! ConversationService: conversations and their messages.

use std::sync::Arc;

use agent_domain::{
    budgets::Limits,
    plan::{Opening, Sampling, TurnInput},
};
use agent_store::{
    conversations::{Branched, Conversation, Conversations, branch_key},
    store::NamedRequest,
};
use contracts::tavern::agent::v1::{
    self as proto, AppendMessagesRequest, AppendMessagesResponse, BranchConversationRequest,
    BranchConversationResponse, CompactConversationRequest, CompactConversationResponse,
    DeleteConversationRequest, DeleteConversationResponse, GetConversationRequest,
    GetConversationResponse, ListConversationsRequest, ListConversationsResponse,
    ListMessagesRequest, ListMessagesResponse, conversation_service_server::ConversationService,
};
use core_types::{ConversationId, IdSource, RequestId, Timestamp};
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, timestamp_to_proto};
use tonic::{Request, Response, Status};

use super::start;
use crate::runner::turns::{NewTurn, Turns};
use turn_log::wire;

/// The scope of the request ids of compactions.
const COMPACT: &str = "tavern.agent.v1.ConversationService/CompactConversation";

/// The server side of ConversationService.
#[derive(Clone, Debug)]
pub struct ConversationRpc {
    conversations: Conversations,
    turns: Turns,
    ids: Arc<dyn IdSource>,
}

impl ConversationRpc {
    /// Serves these conversations.
    pub fn new(conversations: Conversations, turns: Turns, ids: Arc<dyn IdSource>) -> Self {
        Self {
            conversations,
            turns,
            ids,
        }
    }

    async fn compact(
        &self,
        context: &CallContext,
        request: CompactConversationRequest,
    ) -> Result<CompactConversationResponse, Failure> {
        let body_hash = request_hash(context, &request);
        let conversation_id = checked_id(&request.conversation_id)?;
        self.conversations.get(context, &conversation_id).await?;
        let profile_id = match request.profile_id.as_str() {
            "" => {
                let (tenant, conversations) = (context.tenant(), &self.conversations);
                conversations.last_agent(tenant, &conversation_id).await?
            }
            named => Some(named.to_owned()),
        };
        let Some(profile_id) = profile_id else {
            let problem = "is missing, and the conversation has no turn; name the agent";
            return Err(Failure::invalid_fields().violation("profile_id", problem));
        };
        let turn = NewTurn {
            profile_id,
            input: TurnInput {
                history: Vec::new(),
                opening: Opening::ModelText {
                    text: String::new(),
                    go_on: false,
                },
            },
            conversation_id,
            ephemeral: false,
            budgets: Limits::default(),
            granted: Limits::default(),
            sampling: Sampling::default(),
            compact: true,
            refuse_if_busy: true,
            dialect: None,
            request_id: request.request_id,
            scope: COMPACT,
            body_hash,
            options: None,
            scene: None,
        };
        let started = self.turns.start(context, turn).await?;
        Ok(CompactConversationResponse {
            run: Some(started.run),
            replayed: started.replayed,
        })
    }

    async fn list(
        &self,
        context: &CallContext,
        request: &ListConversationsRequest,
    ) -> Result<ListConversationsResponse, Failure> {
        let list = grpc_kit::list_of(context, "conversations");
        let before = super::page_after(&list, &request.page_token)?;
        let before = before.as_deref().map(place).transpose()?;
        let before = before.map(|(time, id)| (time, context.tenant(), id));
        let size = core_types::page::page_size(request.page_size);
        let conversations = self.conversations.list(context, before, size + 1).await?;
        let (conversations, next_page_token) =
            super::page(&list, conversations, size, |last: &Conversation| {
                format!("{}/{}", last.row.created.unix_nanos(), last.row.id)
            });
        Ok(ListConversationsResponse {
            conversations: conversations.into_iter().map(write).collect(),
            next_page_token,
        })
    }

    async fn messages(
        &self,
        context: &CallContext,
        request: &ListMessagesRequest,
    ) -> Result<ListMessagesResponse, Failure> {
        let conversation_id = checked_id(&request.conversation_id)?;
        let list = format!("messages\0{conversation_id}");
        let list = grpc_kit::list_of(context, &list);
        let after = super::page_after(&list, &request.page_token)?;
        let skip = match after.map(|after| after.parse::<usize>()) {
            None => 0,
            Some(Ok(last)) => last + 1,
            Some(Err(_)) => return Err(damaged_token()),
        };
        self.conversations.get(context, &conversation_id).await?;
        let tenant = context.tenant();
        let history = self
            .conversations
            .history(tenant, &conversation_id, None, usize::MAX);
        let size = core_types::page::page_size(request.page_size);
        let said = history.await?.into_iter().flat_map(|part| {
            let run_id = part.run_id;
            part.messages
                .into_iter()
                .map(move |message| (run_id.clone(), message))
        });
        let entries: Vec<(usize, proto::Message)> = said
            .enumerate()
            .skip(skip)
            .take(size + 1)
            .map(|(place, (run_id, said))| {
                let ended = said.message.result_of.as_ref();
                let ended = ended.map(call_wire::ended_call_to_proto);
                let message = proto::Message {
                    role: wire::role_to_proto(said.message.role).into(),
                    text: said.message.text.clone(),
                    observation: said.observation,
                    run_id,
                    time: Some(timestamp_to_proto(said.time)),
                    calls: call_wire::native_calls_to_proto(&said.message.calls),
                    result_of: ended,
                    reasoning_json: call_wire::reasoning_to_proto(
                        said.message.reasoning_of_calls(),
                    ),
                };
                (place, message)
            })
            .collect();
        let (entries, next_page_token) =
            super::page(&list, entries, size, |(place, _)| place.to_string());
        let messages = entries.into_iter().map(|(_, message)| message).collect();
        Ok(ListMessagesResponse {
            messages,
            next_page_token,
        })
    }

    async fn branch(
        &self,
        context: &CallContext,
        request: &BranchConversationRequest,
    ) -> Result<Branched, Failure> {
        let from = checked_id(&request.conversation_id)?;
        if !request.request_id.is_empty() {
            RequestId::new(request.request_id.as_str()).map_err(|error| {
                Failure::invalid_fields().violation("request_id", error.to_string())
            })?;
        }
        let named = (!request.request_id.is_empty()).then(|| NamedRequest {
            id: request.request_id.clone(),
            body: request_hash(context, request),
        });
        let count = usize::try_from(request.message_count).unwrap_or(usize::MAX);
        let key = branch_key(self.ids.as_ref(), &from, &request.request_id);
        let new_id = format!("conv_{key}");
        self.conversations
            .branch(context, &from, count, &new_id, named)
            .await
    }

    async fn append(
        &self,
        context: &CallContext,
        request: AppendMessagesRequest,
    ) -> Result<(Conversation, bool), Failure> {
        let mut failure = Failure::invalid_fields();
        if !request.request_id.is_empty()
            && let Err(error) = RequestId::new(request.request_id.as_str())
        {
            failure.add_violation("request_id", error.to_string());
        }
        if let Err(error) = ConversationId::new(request.conversation_id.as_str()) {
            failure.add_violation("conversation_id", error.to_string());
        }
        let messages = start::messages("messages", &request.messages, &mut failure);
        if !failure.is_empty() {
            return Err(failure);
        }
        let appended = self.conversations.append(
            context,
            &request.conversation_id,
            request.expected_revision,
            messages,
            append_request(context, &request),
        );
        appended.await
    }
}

/// Returns the name and the digest of a request; none if it is never repeated.
fn append_request(context: &CallContext, request: &AppendMessagesRequest) -> Option<NamedRequest> {
    let messages = AppendMessagesRequest {
        messages: request.messages.clone(),
        ..AppendMessagesRequest::default()
    };
    (!request.request_id.is_empty()).then(|| NamedRequest {
        id: request.request_id.clone(),
        body: request_hash(context, &messages),
    })
}

fn write(conversation: Conversation) -> proto::Conversation {
    proto::Conversation {
        conversation_id: conversation.row.id,
        create_time: Some(timestamp_to_proto(conversation.row.created)),
        revision: conversation.revision,
        active_run_id: conversation.active_run_id.unwrap_or_default(),
        queued_run_ids: conversation.queued_run_ids,
        principal: conversation.row.owner.to_string(),
    }
}

fn checked_id(conversation_id: &str) -> Result<String, Failure> {
    let checked = ConversationId::new(conversation_id).map(|id| id.to_string());
    checked
        .map_err(|error| Failure::invalid_fields().violation("conversation_id", error.to_string()))
}

/// Reads the start of a page of conversations.
fn place(key: &str) -> Result<(Timestamp, &str), Failure> {
    let place = key.split_once('/').and_then(|(nanos, id)| {
        let time = Timestamp::from_unix_nanos(nanos.parse().ok()?);
        Some((time, id))
    });
    place.ok_or_else(damaged_token)
}

fn damaged_token() -> Failure {
    Failure::invalid_fields().violation("page_token", "is damaged")
}

#[tonic::async_trait]
impl ConversationService for ConversationRpc {
    async fn get_conversation(
        &self,
        request: Request<GetConversationRequest>,
    ) -> Result<Response<GetConversationResponse>, Status> {
        let context = CallContext::of(&request);
        let id = checked_id(&request.into_inner().conversation_id)?;
        let conversation = Some(write(self.conversations.get(&context, &id).await?));
        Ok(Response::new(GetConversationResponse { conversation }))
    }

    async fn list_conversations(
        &self,
        request: Request<ListConversationsRequest>,
    ) -> Result<Response<ListConversationsResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.list(&context, &request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn delete_conversation(
        &self,
        request: Request<DeleteConversationRequest>,
    ) -> Result<Response<DeleteConversationResponse>, Status> {
        let context = CallContext::of(&request);
        let id = checked_id(&request.into_inner().conversation_id)?;
        self.conversations.delete(&context, &id).await?;
        Ok(Response::new(DeleteConversationResponse {}))
    }

    async fn list_messages(
        &self,
        request: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        let context = CallContext::of(&request);
        let answer = self.messages(&context, &request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn compact_conversation(
        &self,
        request: Request<CompactConversationRequest>,
    ) -> Result<Response<CompactConversationResponse>, Status> {
        let context = CallContext::of(&request);
        let compacted = self.compact(&context, request.into_inner()).await?;
        Ok(Response::new(compacted))
    }

    async fn branch_conversation(
        &self,
        request: Request<BranchConversationRequest>,
    ) -> Result<Response<BranchConversationResponse>, Status> {
        let context = CallContext::of(&request);
        let branched = self.branch(&context, &request.into_inner()).await?;
        Ok(Response::new(BranchConversationResponse {
            message_count: u32::try_from(branched.messages).unwrap_or(u32::MAX),
            replayed: branched.replayed,
            conversation: Some(write(branched.conversation)),
        }))
    }

    async fn append_messages(
        &self,
        request: Request<AppendMessagesRequest>,
    ) -> Result<Response<AppendMessagesResponse>, Status> {
        let context = CallContext::of(&request);
        let (conversation, replayed) = self.append(&context, request.into_inner()).await?;
        Ok(Response::new(AppendMessagesResponse {
            conversation: Some(write(conversation)),
            replayed,
        }))
    }
}
