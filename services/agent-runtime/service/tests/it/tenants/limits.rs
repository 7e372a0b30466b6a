//! Limits of tenants for models, as the registry sends them.

use contracts::tavern::{
    agent::v1::{
        CompactConversationRequest, GenerateRequest, GenerateResponse,
        conversation_service_client::ConversationServiceClient,
        model_service_client::ModelServiceClient,
    },
    common::v1::{ChatMessage, ChatRole, ErrorCategory, ErrorReason, RunState, StopReason},
    tenant::v1::{
        SyncTenantsRequest, SyncedTenant, Tenant, TenantLimit, TenantQuantity, TenantState,
        TenantUsage, TenantUses, tenant_peer_service_client::TenantPeerServiceClient,
    },
};
use core_types::{CallPath, Principal};
use doubles::{Behaviour, TestRegistry};
use grpc_kit::{CallContext, Outbound};
use model_client::EndpointSettings;
use serde_json::json;
use tonic::{Code, Status, Streaming};

use super::{Caller, profile, talk};
use crate::{
    endpoint::{self, Endpoint, Step, end, stream_head, text},
    turns::call,
    turns_usage::{priced, world_with},
    world::{Ended, Running, World},
};

/// A tenant as the registry sends it, without limits.
pub(super) fn synced(name: &str) -> SyncedTenant {
    let tenant = Tenant {
        name: name.to_owned(),
        weight: 1,
        state: TenantState::Open.into(),
        ..Tenant::default()
    };
    SyncedTenant {
        tenant: Some(tenant),
        ..SyncedTenant::default()
    }
}

fn limited(quantity: TenantQuantity, hard: u64) -> SyncedTenant {
    let mut limited = synced("acme");
    limited.tenant.as_mut().unwrap().limits = vec![TenantLimit {
        quantity: quantity.into(),
        hard,
        soft: 0,
    }];
    limited
}

impl Running {
    /// Sends a tenant as the registry does; returns its uses.
    pub(super) async fn sync(&self, tenant: SyncedTenant) -> TenantUses {
        let name = tenant.tenant.as_ref().unwrap().name.clone();
        let transport = grpc_kit::local(&self.runtime.services());
        let mut peer = TenantPeerServiceClient::new(transport.outermost());
        let request = SyncTenantsRequest {
            tenants: vec![tenant],
        };
        let answered = peer.sync_tenants(request).await.unwrap().into_inner();
        let of = answered.tenants.into_iter().find(|it| it.tenant == name);
        of.unwrap_or_default()
    }

    fn to(&self, principal: &str) -> Outbound {
        let principal = Principal::new(principal).unwrap();
        let context = CallContext::new(principal, CallPath::default());
        grpc_kit::local(&self.runtime.services()).with(&context)
    }

    /// Requests an answer of the model itself.
    async fn ask(&self, principal: &str) -> Streaming<GenerateResponse> {
        let request = GenerateRequest {
            model: "play".to_owned(),
            messages: vec![ChatMessage {
                role: ChatRole::User.into(),
                text: "hello".to_owned(),
                ..ChatMessage::default()
            }],
            ..GenerateRequest::default()
        };
        let mut model = ModelServiceClient::new(self.to(principal));
        model.generate(request).await.unwrap().into_inner()
    }

    async fn asked(&self, principal: &str) -> Result<(), Status> {
        let mut pieces = self.ask(principal).await;
        while pieces.message().await?.is_some() {}
        Ok(())
    }

    async fn talked(&self, caller: &Caller, number: usize) -> Ended {
        let mut turn = talk("talk");
        turn.request_id = format!("r{number}");
        let run_id = caller.start(turn).await.unwrap();
        self.follow(&run_id, 0).await
    }
}

/// Returns the amount of a quantity that was used.
fn amount(uses: &TenantUses, quantity: TenantQuantity) -> u64 {
    let mut uses = uses.uses.iter();
    let found = uses.find(|used| used.quantity() == quantity);
    found.map_or(0, |found| found.used)
}

/// Checks that a run ended at the limit of the tokens.
fn ended_at_limit(ended: &Ended) {
    let outcome = ended.run.outcome.clone().unwrap();
    assert_eq!(outcome.state(), RunState::Failed, "{outcome:?}");
    assert_eq!(outcome.stop_reason(), StopReason::Error);
    let error = outcome.error.unwrap();
    assert_eq!(error.code, "tenant_limit");
    assert_eq!(error.category(), ErrorCategory::Limit);
    assert!(error.message.contains("`model_tokens`"), "{error:?}");
    let details: serde_json::Value = serde_json::from_str(&error.details_json).unwrap();
    assert_eq!(details, json!({"limit": "model_tokens", "maximum": 20}));
}

/// A world whose model answers, with 15 tokens read and 5 written each time.
fn counting() -> World {
    let answer = json!({"answer": {"text": "Hello.", "input_tokens": 15, "output_tokens": 5}});
    World::new(TestRegistry::default(), &[], &vec![answer; 9].into())
}

#[tokio::test]
async fn s608_a_turn_a_summary_and_a_request_to_a_model_end_at_the_limit_of_tokens() {
    let running = counting().build().await;
    let limit = |hard| limited(TenantQuantity::ModelTokens, hard);
    running.sync(limit(20)).await;
    let caller = running.operator("acme/bob");
    let mut theirs = profile("theirs");
    theirs["custom_metadata"]["tavern"]["compaction"] = json!({"keep_turns": 1});
    caller.put_profile(&theirs).await;
    assert_eq!(running.talked(&caller, 1).await.text(), "Hello.");
    ended_at_limit(&running.talked(&caller, 2).await);
    let refused = running.asked("acme/bob").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::TenantLimit));
    assert_eq!(grpc_kit::metadata(&refused)["limit"], "model_tokens");
    assert!(grpc_kit::retry_after(&refused).is_some());
    // The limit is of one tenant alone.
    running.asked("bob").await.unwrap();

    // A use is reported once.
    let mut sent = limit(1_000);
    let used = amount(
        &running.sync(sent.clone()).await,
        TenantQuantity::ModelTokens,
    );
    assert_eq!(used, 20);
    let uses = TenantUsage {
        quantity: TenantQuantity::ModelTokens.into(),
        used,
    };
    sent.uses = vec![uses];
    let uses = running.sync(sent.clone()).await;
    assert_eq!(amount(&uses, TenantQuantity::ModelTokens), 0);
    for number in 3..5 {
        assert_eq!(running.talked(&caller, number).await.text(), "Hello.");
    }
    running.asked("acme/bob").await.unwrap();

    // A summary needs the model too.
    let mut sent = limit(20);
    sent.uses = vec![TenantUsage {
        quantity: TenantQuantity::ModelTokens.into(),
        used: 20,
    }];
    running.sync(sent).await;
    let request = CompactConversationRequest {
        conversation_id: "talk".to_owned(),
        profile_id: "ada".to_owned(),
        ..CompactConversationRequest::default()
    };
    let mut conversations = ConversationServiceClient::new(running.to("acme/bob"));
    let started = conversations.compact_conversation(request).await.unwrap();
    let run_id = started.into_inner().run.unwrap().run_id;
    ended_at_limit(&running.follow(&run_id, 0).await);
}

#[tokio::test]
async fn the_turns_of_a_closed_tenant_use_models_until_they_end() {
    let running = counting().build().await;
    let caller = running.operator("acme/bob");
    caller.put_profile(&profile("theirs")).await;
    let mut closing = limited(TenantQuantity::ModelTokens, 20);
    closing.tenant.as_mut().unwrap().state = TenantState::Closing.into();
    running.sync(closing).await;
    let refused = caller.start(talk("talk")).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::TenantClosed));
    // As a workflow that runs does.
    running.asked("acme/bob").await.unwrap();
    let refused = running.asked("acme/bob").await.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::TenantLimit));
}

#[tokio::test]
async fn s608_money_is_counted_by_the_prices_of_the_model() {
    let endpoint = Endpoint::start(vec![vec![stream_head(), text("Hello."), end("stop")]]).await;
    let settings = EndpointSettings {
        price_per_million_micros: priced(),
        ..endpoint::settings(&endpoint)
    };
    let running = world_with(&endpoint, settings).build().await;
    // 7 × 3 + 3 × 15
    let limit = limited(TenantQuantity::ModelMicros, 66);
    running.sync(limit.clone()).await;
    running.asked("acme/bob").await.unwrap();
    let refused = running.asked("acme/bob").await.unwrap_err();
    assert_eq!(grpc_kit::metadata(&refused)["limit"], "model_micros");
    assert_eq!(endpoint.received().len(), 1);
    let uses = running.sync(limit).await;
    assert_eq!(amount(&uses, TenantQuantity::ModelMicros), 66);
    assert_eq!(amount(&uses, TenantQuantity::ModelTokens), 10);
}

#[tokio::test]
async fn s608_an_answer_that_is_cut_off_or_dropped_counts_and_a_refused_request_does_not() {
    let silent = vec![stream_head(), text(&"word ".repeat(60)), Step::Silence];
    let cut = vec![stream_head(), text(&"word ".repeat(60))];
    let refused = endpoint::status("400 Bad Request", "", "{}");
    let endpoint = Endpoint::start(vec![silent, cut, refused]).await;
    let running = world_with(&endpoint, endpoint::settings(&endpoint));
    let running = running.build().await;
    let tokens = async || {
        let uses = running.sync(synced("acme")).await;
        amount(&uses, TenantQuantity::ModelTokens)
    };
    let mut pieces = running.ask("acme/bob").await;
    assert!(pieces.message().await.unwrap().is_some());
    drop(pieces);
    endpoint.client_gone().await;
    // 5 bytes of the request, and 300 of the answer.
    let mut dropped = 0;
    while dropped == 0 {
        dropped = tokens().await;
    }
    assert_eq!(dropped, 102);
    running.asked("acme/bob").await.unwrap_err();
    assert_eq!(tokens().await, 102);
    running.asked("acme/bob").await.unwrap_err();
    assert_eq!(tokens().await, 0);
}

#[tokio::test]
async fn a_turn_waits_for_room_that_another_tenant_gives_back_and_is_rejected_without_it() {
    let turns =
        json!([{"answer": {"text": call("Look", "at", "moss")}}, {"answer": {"text": "Done."}}]);
    let registry = TestRegistry::default().tool("Look", &["at"], Behaviour::Hangs);
    let mut world = World::new(registry, &["Look"], &turns);
    world.settings.max_turns = 1;
    let running = world.build().await;
    let (holder, next) = (running.operator("acme/bob"), running.operator("bob"));
    for caller in [&holder, &next] {
        let mut profile = profile("writer");
        profile["tool_ids_inventory"] = json!(["Look"]);
        caller.put_profile(&profile).await;
    }
    let held = holder.start(talk("talk")).await.unwrap();
    let rejected = next.start(talk("talk")).await.unwrap_err();
    assert_eq!(rejected.code(), Code::ResourceExhausted);
    let (waiting, ()) = tokio::join!(next.start(talk("talk")), async {
        running.cancel(&held).await;
    });
    waiting.unwrap();
}
