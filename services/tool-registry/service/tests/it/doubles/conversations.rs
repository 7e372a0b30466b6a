//! An agent-runtime in which no conversation has begun.

use contracts::tavern::{
    agent::v1::{
        AppendMessagesRequest, AppendMessagesResponse, BranchConversationRequest,
        BranchConversationResponse, CompactConversationRequest, CompactConversationResponse,
        DeleteConversationRequest, DeleteConversationResponse, GetConversationRequest,
        GetConversationResponse, ListConversationsRequest, ListConversationsResponse,
        ListMessagesRequest, ListMessagesResponse,
        conversation_service_server::ConversationService,
    },
    common::v1::ErrorReason,
};
use grpc_kit::Failure;
use tonic::{Code, Request, Response, Status};

/// The double.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoConversations;

fn none<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("the double has no conversations"))
}

#[tonic::async_trait]
impl ConversationService for NoConversations {
    async fn get_conversation(
        &self,
        _: Request<GetConversationRequest>,
    ) -> Result<Response<GetConversationResponse>, Status> {
        let reason = ErrorReason::ConversationNotFound;
        Err(Failure::new(Code::NotFound, reason, "the double has none").into_status())
    }

    async fn list_conversations(
        &self,
        _: Request<ListConversationsRequest>,
    ) -> Result<Response<ListConversationsResponse>, Status> {
        none()
    }

    async fn delete_conversation(
        &self,
        _: Request<DeleteConversationRequest>,
    ) -> Result<Response<DeleteConversationResponse>, Status> {
        none()
    }

    async fn list_messages(
        &self,
        _: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        none()
    }

    async fn append_messages(
        &self,
        _: Request<AppendMessagesRequest>,
    ) -> Result<Response<AppendMessagesResponse>, Status> {
        none()
    }

    async fn branch_conversation(
        &self,
        _: Request<BranchConversationRequest>,
    ) -> Result<Response<BranchConversationResponse>, Status> {
        none()
    }

    async fn compact_conversation(
        &self,
        _: Request<CompactConversationRequest>,
    ) -> Result<Response<CompactConversationResponse>, Status> {
        none()
    }
}
