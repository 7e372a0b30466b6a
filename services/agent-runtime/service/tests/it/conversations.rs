//! Conversations that are listed, extended and deleted, over the wire.

use contracts::tavern::{
    agent::v1::{
        AppendMessagesRequest, BranchConversationRequest, Conversation, DeleteConversationRequest,
        GetConversationRequest, ListConversationsRequest, StartTurnRequest,
    },
    common::v1::{ChatMessage, ChatRole, EndedCall, ErrorReason, NativeCall, run_event::Kind},
};
use doubles::TestRegistry;
use serde_json::json;
use tonic::{Code, Status};

use crate::world::{Running, World, says};

pub(crate) fn user(text: &str) -> ChatMessage {
    ChatMessage {
        role: ChatRole::User.into(),
        text: text.to_owned(),
        ..ChatMessage::default()
    }
}

fn continued(conversation_id: &str, text: &str) -> StartTurnRequest {
    StartTurnRequest {
        conversation_id: conversation_id.to_owned(),
        ..says(text)
    }
}

impl Running {
    async fn conversation(&self, id: &str) -> Result<Conversation, Status> {
        let conversation_id = id.to_owned();
        let mut conversations = self.conversations.clone();
        let got = conversations.get_conversation(GetConversationRequest { conversation_id });
        Ok(got.await?.into_inner().conversation.unwrap())
    }

    pub(crate) async fn append(
        &self,
        id: &str,
        expected_revision: u64,
        messages: Vec<ChatMessage>,
    ) -> Result<Conversation, Status> {
        let request = AppendMessagesRequest {
            conversation_id: id.to_owned(),
            expected_revision,
            messages,
            request_id: String::new(),
        };
        let appended = self.conversations.clone().append_messages(request).await?;
        Ok(appended.into_inner().conversation.unwrap())
    }

    pub(crate) async fn delete_conversation(&self, id: &str) -> Result<(), Status> {
        let conversation_id = id.to_owned();
        let mut conversations = self.conversations.clone();
        let request = DeleteConversationRequest { conversation_id };
        conversations.delete_conversation(request).await.map(drop)
    }
}

#[tokio::test]
async fn what_a_model_thought_before_its_calls_is_kept_with_them() {
    let call = NativeCall {
        id: "c".to_owned(),
        name: "look".to_owned(),
        arguments_json: "{}".to_owned(),
    };
    let reasoning_json = r#"{"reasoning_content":"hm"}"#;
    let answer = ChatMessage {
        role: ChatRole::Assistant.into(),
        calls: vec![call],
        reasoning_json: reasoning_json.to_owned(),
        ..ChatMessage::default()
    };
    let world = World::new(TestRegistry::default(), &[], &json!([]));
    let running = world.build().await;
    let messages = vec![user("Look."), answer.clone()];
    running.append("conv_a", 0, messages).await.unwrap();
    running.runtime.shutdown().await;
    drop(running);
    let running = world.build().await;
    assert_eq!(
        running.messages("conv_a").await[1].reasoning_json,
        reasoning_json
    );
    let of_a_user = ChatMessage {
        role: ChatRole::User.into(),
        calls: Vec::new(),
        ..answer
    };
    let refused = running
        .append("conv_a", 1, vec![of_a_user])
        .await
        .unwrap_err();
    let violated = &grpc_kit::violations(&refused)[0].0;
    assert_eq!(violated, "messages[0].reasoning_json");
}

#[tokio::test]
async fn appended_messages_stand_where_they_were_appended_and_reach_the_model() {
    let turns = json!([
        {"answer": {"text": "First."}},
        {
            "expect": {
                "roles": ["system", "user", "user", "assistant", "user", "user"],
                "contains": ["before", "between"],
                "last_is": "two"
            },
            "answer": {"text": "Second."}
        }
    ]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    let begun = running
        .append("conv_a", 0, vec![user("before")])
        .await
        .unwrap();
    assert_eq!(begun.revision, 1);
    let first = running.play(continued("conv_a", "one")).await;
    assert_eq!(first.text(), "First.", "{}", first.error_message());
    let between = running
        .append("conv_a", 2, vec![user("between")])
        .await
        .unwrap();
    assert_eq!(between.revision, 3);
    running.runtime.shutdown().await;
    drop(running);

    let running = world.build().await;
    let second = running.play(continued("conv_a", "two")).await;
    assert_eq!(second.text(), "Second.", "{}", second.error_message());
    let listed = running.messages("conv_a").await;
    let texts: Vec<&str> = listed.iter().map(|message| &*message.text).collect();
    assert_eq!(
        texts,
        ["before", "one", "First.", "between", "two", "Second."]
    );
    assert_eq!(listed[0].run_id, "");
    assert_eq!(running.conversation("conv_a").await.unwrap().revision, 4);
}

#[tokio::test]
async fn messages_are_appended_at_the_expected_revision_only() {
    let world = World::new(TestRegistry::default(), &[], &json!([]));
    let running = world.build().await;
    running
        .append("conv_a", 0, vec![user("one")])
        .await
        .unwrap();
    let stale = running
        .append("conv_a", 0, vec![user("one")])
        .await
        .unwrap_err();
    assert_eq!(stale.code(), Code::Aborted);
    assert_eq!(
        grpc_kit::reason(&stale),
        Some(ErrorReason::RevisionMismatch)
    );
    assert_eq!(grpc_kit::metadata(&stale)["revision"], "1");
    assert_eq!(running.messages("conv_a").await.len(), 1);
    for (conversation_id, message, wrong) in [
        ("a/b", user("one"), "conversation_id"),
        ("conv_a", ChatMessage::default(), "messages[0].role"),
    ] {
        let status = running.append(conversation_id, 1, vec![message]).await;
        let violations = grpc_kit::violations(&status.unwrap_err());
        assert_eq!(violations[0].0, wrong);
    }
}

#[tokio::test]
async fn during_a_turn_a_conversation_is_neither_extended_nor_deleted() {
    let turns = json!([{"answer": {"text": "..."}, "fault": {"kind": "hang"}}]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    let run_id = running.begin(continued("conv_a", "hello")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::ModelRequested(_)))
        .await;
    let conversation = running.conversation("conv_a").await.unwrap();
    assert_eq!(conversation.active_run_id, run_id);
    let deleted = running.delete_conversation("conv_a").await;
    let appended = running.append("conv_a", 1, vec![user("x")]).await.map(drop);
    for refused in [deleted, appended] {
        let status = refused.unwrap_err();
        assert_eq!(
            grpc_kit::reason(&status),
            Some(ErrorReason::ConversationBusy)
        );
    }
    running.cancel(&run_id).await;
    running.delete_conversation("conv_a").await.unwrap();
}

#[tokio::test]
async fn a_deleted_conversation_is_gone_with_its_runs() {
    let turns = json!([{"expect": {"roles": ["system", "user"]}, "answer": {"text": "hi"}}]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    let first = running.play(continued("conv_a", "one")).await;
    running
        .append("conv_a", 1, vec![user("more")])
        .await
        .unwrap();
    running.delete_conversation("conv_a").await.unwrap();
    let gone = running.conversation("conv_a").await.unwrap_err();
    let again = running.delete_conversation("conv_a").await.unwrap_err();
    for status in [gone, again] {
        assert_eq!(
            grpc_kit::reason(&status),
            Some(ErrorReason::ConversationNotFound)
        );
    }
    let run = contracts::tavern::run::v1::GetRunRequest {
        run_id: first.run.run_id,
    };
    let run = running.runs.clone().get_run(run).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&run), Some(ErrorReason::RunNotFound));
    let fresh = running.play(continued("conv_a", "two")).await;
    assert_eq!(fresh.text(), "hi", "{}", fresh.error_message());
}

#[tokio::test]
async fn conversations_are_listed_the_newest_first() {
    let world = World::new(TestRegistry::default(), &[], &json!([]));
    let running = world.build().await;
    for id in ["conv_a", "conv_b", "conv_c"] {
        running.append(id, 0, vec![user("x")]).await.unwrap();
    }
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListConversationsRequest {
            page_size: 2,
            page_token,
        };
        let mut conversations = running.conversations.clone();
        let page = conversations.list_conversations(request).await;
        let page = page.unwrap().into_inner();
        ids.extend(
            page.conversations
                .into_iter()
                .map(|found| found.conversation_id),
        );
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, ["conv_c", "conv_b", "conv_a"]);
}

#[tokio::test]
async fn a_repeated_request_appends_nothing_and_gets_the_first_answer() {
    let world = World::new(TestRegistry::default(), &[], &json!([]));
    let running = world.build().await;
    let append = async |expected_revision: u64, text: &str| {
        let request = AppendMessagesRequest {
            conversation_id: "conv_a".to_owned(),
            expected_revision,
            messages: vec![user(text)],
            request_id: "once".to_owned(),
        };
        let appended = running.conversations.clone().append_messages(request).await;
        appended.map(tonic::Response::into_inner)
    };
    let first = append(0, "one").await.unwrap();
    running
        .append("conv_a", 1, vec![user("two")])
        .await
        .unwrap();
    let again = append(0, "one").await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(again.conversation, first.conversation);
    assert_eq!(running.messages("conv_a").await.len(), 2);
    let reused = append(2, "three").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&reused),
        Some(ErrorReason::RequestIdReused)
    );
    running.delete_conversation("conv_a").await.unwrap();
    assert!(!append(0, "four").await.unwrap().replayed);
}

#[tokio::test]
async fn a_message_with_nul_is_refused_with_its_remedy() {
    let world = World::new(TestRegistry::default(), &[], &json!([]));
    let running = world.build().await;
    let refused = running.append("conv_a", 0, vec![user("a\0b")]).await;
    let refused = refused.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::InvalidFields));
    assert!(refused.message().contains("leave it out"), "{refused}");
    running.append("conv_a", 0, vec![user("ab")]).await.unwrap();
}

#[tokio::test]
async fn g601_a_branch_shares_the_first_messages_and_continues_by_itself() {
    let turns = json!([
        {"answer": {"text": "First."}},
        {"answer": {"text": "Second."}}
    ]);
    let world = World::new(TestRegistry::default(), &[], &turns);
    let running = world.build().await;
    running.play(continued("conv_a", "one")).await;
    running.play(continued("conv_a", "two")).await;
    let request = BranchConversationRequest {
        conversation_id: "conv_a".to_owned(),
        message_count: 2,
        request_id: "b-1".to_owned(),
    };
    let mut conversations = running.conversations.clone();
    let branch = conversations
        .branch_conversation(request.clone())
        .await
        .unwrap()
        .into_inner();
    let again = conversations
        .branch_conversation(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((branch.replayed, again.replayed), (false, true));
    assert_eq!((branch.message_count, again.message_count), (2, 2));
    let id = branch.conversation.unwrap().conversation_id;
    assert_eq!(again.conversation.unwrap().conversation_id, id);
    world.script(&json!([
        {"answer": {"text": "First."}},
        {
            "expect": {"roles": ["system", "user", "assistant", "user"], "lacks": ["Second."]},
            "answer": {"text": "Another second."}
        }
    ]));
    running.runtime.shutdown().await;
    let running = world.build().await;
    let ended = running.play(continued(&id, "another two")).await;
    assert_eq!(ended.text(), "Another second.", "{}", ended.error_message());
    let said = async |id: &str| -> Vec<String> {
        let messages = running.messages(id).await;
        messages.into_iter().map(|message| message.text).collect()
    };
    assert_eq!(said("conv_a").await, ["one", "First.", "two", "Second."]);
    assert_eq!(
        said(&id).await,
        ["one", "First.", "another two", "Another second."]
    );
    running.delete_conversation("conv_a").await.unwrap();
    assert_eq!(
        said(&id).await.len(),
        4,
        "the branch does not need its origin"
    );
}

#[tokio::test]
async fn g601_a_branch_beyond_the_messages_or_of_no_conversation_is_refused() {
    let world = World::new(
        TestRegistry::default(),
        &[],
        &json!([{"answer": {"text": "First."}}]),
    );
    let running = world.build().await;
    running.play(continued("conv_a", "one")).await;
    let request = |conversation_id: &str, message_count| BranchConversationRequest {
        conversation_id: conversation_id.to_owned(),
        message_count,
        request_id: String::new(),
    };
    let mut conversations = running.conversations.clone();
    let beyond = conversations
        .branch_conversation(request("conv_a", 3))
        .await
        .unwrap_err();
    assert_eq!(grpc_kit::violations(&beyond)[0].0, "message_count");
    let unknown = conversations
        .branch_conversation(request("conv_b", 0))
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&unknown),
        Some(ErrorReason::ConversationNotFound)
    );
}

#[tokio::test]
async fn only_answers_have_calls_and_only_messages_of_tools_are_results() {
    let world = World::new(TestRegistry::default(), &[], &json!([]));
    let running = world.build().await;
    let said = |role: ChatRole, calls: usize, is_result: bool| ChatMessage {
        role: role.into(),
        calls: vec![NativeCall::default(); calls],
        result_of: is_result.then(EndedCall::default),
        ..ChatMessage::default()
    };
    for (message, field) in [
        (said(ChatRole::User, 1, false), "messages[0].calls"),
        (said(ChatRole::Assistant, 1, true), "messages[0].result_of"),
        (said(ChatRole::Tool, 0, false), "messages[0].result_of"),
    ] {
        let refused = running.append("conv_a", 0, vec![message]).await;
        let violations = grpc_kit::violations(&refused.unwrap_err());
        assert_eq!(violations[0].0, field);
    }
}
