//! Ids of objects that a caller cannot see, which are answered as ids that nothing has.

use contracts::lf::a2a::v1::{CancelTaskRequest, GetTaskRequest, SubscribeToTaskRequest};
use contracts::tavern::{
    agent::v1::{
        BranchConversationRequest, Budgets, CompactConversationRequest, DeleteConversationRequest,
        EditBudgetsRequest, EndSceneRequest, ExportTurnRequest, ForkTurnRequest,
        GetConversationRequest, GetPrivateStateRequest, GetSceneStatusRequest, GetToolScopeRequest,
        GetWorldStateRequest, ListGoalsRequest, ListMessagesRequest,
        ListPrivateStateVersionsRequest, PublishEventRequest, QueryKnowledgeRequest,
        SleepInstanceRequest, StateOperation, SteerTurnRequest, UpdateGoalRequest,
        UpdatePrivateStateRequest, UpdateWorldStateRequest, WakeInstanceRequest,
        get_tool_scope_request::Agent, get_world_state_request::Scene as Read,
        publish_event_request::Scene as Publish, state_operation::Kind as Change,
        update_world_state_request::Scene as Written,
    },
    common::v1::ErrorReason,
    run::v1::GetRunRequest,
};
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};
use tonic::{Code, Request, Response, Status};

use super::{Caller, greeting, profile, talk};

/// The objects of one principal.
#[derive(Clone)]
struct Ids {
    conversation: String,
    turn: String,
    scene: String,
    agent: String,
}

/// A refusal without the ids of its request.
type Refusal = (Code, String, Vec<(String, String)>, Vec<(String, String)>);

impl Ids {
    /// Makes ids of the same form that nothing has.
    fn missing(&self) -> Self {
        let other = |id: &str| {
            let end = match id.ends_with("0000") {
                true => "1111",
                false => "0000",
            };
            format!("{}{end}", &id[..id.len() - 4])
        };
        let scene = other(&self.scene);
        Self {
            conversation: "absent".to_owned(),
            turn: other(&self.turn),
            agent: format!("{scene}.ada"),
            scene,
        }
    }

    fn without(&self, text: &str) -> String {
        let text = text.replace(&self.agent, "AGENT");
        let text = text.replace(&self.scene, "SCENE");
        let text = text.replace(&self.turn, "TURN");
        text.replace(&self.conversation, "CONVERSATION")
    }

    fn refusal(&self, status: &Status) -> Refusal {
        let metadata = grpc_kit::metadata(status).into_iter();
        let mut metadata: Vec<_> = metadata
            .map(|(key, text)| (key, self.without(&text)))
            .collect();
        metadata.push((
            "reason".to_owned(),
            format!("{:?}", grpc_kit::reason(status)),
        ));
        metadata.sort();
        let violations = grpc_kit::violations(status).into_iter();
        let violations = violations.map(|(field, text)| (field, self.without(&text)));
        (
            status.code(),
            self.without(status.message()),
            metadata,
            violations.collect(),
        )
    }
}

fn set() -> StateOperation {
    StateOperation {
        kind: Change::Set.into(),
        path: "mood".to_owned(),
        value_json: "1".to_owned(),
    }
}

/// Collects the refusals of requests by the names of their methods.
struct Asked<'a> {
    ids: &'a Ids,
    refusals: Vec<(&'static str, Refusal)>,
}

impl Asked<'_> {
    fn note<T>(&mut self, method: &'static str, answer: Result<Response<T>, Status>) {
        let Err(refused) = answer else {
            panic!("{method} answered");
        };
        self.refusals.push((method, self.ids.refusal(&refused)));
    }
}

impl Caller {
    /// Names the objects in each method that takes one; returns the refusals.
    async fn refusals(&self, ids: &Ids) -> Vec<(&'static str, Refusal)> {
        let mut asked = Asked {
            ids,
            refusals: Vec::new(),
        };
        self.ask_for_conversation(ids, &mut asked).await;
        self.ask_for_state(ids, &mut asked).await;
        self.ask_for_turn(ids, &mut asked).await;
        self.ask_for_scene(ids, &mut asked).await;
        asked.refusals
    }

    async fn ask_for_conversation(&self, ids: &Ids, asked: &mut Asked<'_>) {
        let id = || ids.conversation.clone();
        let mut to = self.conversations.clone();
        let got = to.get_conversation(GetConversationRequest {
            conversation_id: id(),
        });
        asked.note("GetConversation", got.await);
        let listed = to.list_messages(ListMessagesRequest {
            conversation_id: id(),
            ..Default::default()
        });
        asked.note("ListMessages", listed.await);
        let branched = to.branch_conversation(BranchConversationRequest {
            conversation_id: id(),
            ..Default::default()
        });
        asked.note("BranchConversation", branched.await);
        let compacted = to.compact_conversation(CompactConversationRequest {
            conversation_id: id(),
            ..Default::default()
        });
        asked.note("CompactConversation", compacted.await);
        let deleted = to.delete_conversation(DeleteConversationRequest {
            conversation_id: id(),
        });
        asked.note("DeleteConversation", deleted.await);
        let mut to = self.knowledge.clone();
        let found = to.query_knowledge(QueryKnowledgeRequest {
            conversation_id: id(),
            query: "moss".to_owned(),
            ..Default::default()
        });
        asked.note("QueryKnowledge", found.await);
    }

    async fn ask_for_state(&self, ids: &Ids, asked: &mut Asked<'_>) {
        let mut to = self.states.clone();
        for profile_id in ["", "ada"] {
            let id = || (ids.conversation.clone(), profile_id.to_owned());
            let (conversation_id, profile_id) = id();
            let got = to.get_private_state(GetPrivateStateRequest {
                conversation_id,
                profile_id,
                ..Default::default()
            });
            asked.note("GetPrivateState", got.await);
            let (conversation_id, profile_id) = id();
            let listed = to.list_private_state_versions(ListPrivateStateVersionsRequest {
                conversation_id,
                profile_id,
                ..Default::default()
            });
            asked.note("ListPrivateStateVersions", listed.await);
            let (conversation_id, profile_id) = id();
            let updated = to.update_private_state(UpdatePrivateStateRequest {
                conversation_id,
                profile_id,
                operations: vec![set()],
                ..Default::default()
            });
            asked.note("UpdatePrivateState", updated.await);
            let (conversation_id, profile_id) = id();
            let listed = to.list_goals(ListGoalsRequest {
                conversation_id,
                profile_id,
            });
            asked.note("ListGoals", listed.await);
            let (conversation_id, profile_id) = id();
            let updated = to.update_goal(UpdateGoalRequest {
                conversation_id,
                profile_id,
                goal_id: "g".to_owned(),
                description: "win".to_owned(),
                ..Default::default()
            });
            asked.note("UpdateGoal", updated.await);
        }
    }

    async fn ask_for_turn(&self, ids: &Ids, asked: &mut Asked<'_>) {
        let (mut to, id) = (self.agent.clone(), || ids.turn.clone());
        let steered = to.steer_turn(SteerTurnRequest {
            run_id: id(),
            message: "stop".to_owned(),
            ..Default::default()
        });
        asked.note("SteerTurn", steered.await);
        let edited = to.edit_budgets(EditBudgetsRequest {
            run_id: id(),
            budgets: Some(Budgets::default()),
            ..Default::default()
        });
        asked.note("EditBudgets", edited.await);
        asked.note(
            "ExportTurn",
            to.export_turn(ExportTurnRequest { run_id: id() }).await,
        );
        let forked = to.fork_turn(ForkTurnRequest {
            run_id: id(),
            sequence: 1,
            ..Default::default()
        });
        asked.note("ForkTurn", forked.await);
        let agent = Some(Agent::RunId(id()));
        asked.note(
            "GetToolScope",
            to.get_tool_scope(GetToolScopeRequest { agent }).await,
        );
        let got = self
            .runs
            .clone()
            .get_run(GetRunRequest { run_id: id() })
            .await;
        asked.note("GetRun", got);
        let (mut to, tenant) = (self.tasks.clone(), || "ada".to_owned());
        let got = to.get_task(of_a2a(GetTaskRequest {
            tenant: tenant(),
            id: id(),
            ..Default::default()
        }));
        asked.note("GetTask", got.await);
        let cancelled = to.cancel_task(of_a2a(CancelTaskRequest {
            tenant: tenant(),
            id: id(),
            ..Default::default()
        }));
        asked.note("CancelTask", cancelled.await);
        let followed = to.subscribe_to_task(of_a2a(SubscribeToTaskRequest {
            tenant: tenant(),
            id: id(),
        }));
        asked.note("SubscribeToTask", followed.await);
    }

    async fn ask_for_scene(&self, ids: &Ids, asked: &mut Asked<'_>) {
        let (mut to, run, agent) = (
            self.scenes.clone(),
            || ids.scene.clone(),
            || ids.agent.clone(),
        );
        let got = to.get_scene_status(GetSceneStatusRequest { run_id: run() });
        asked.note("GetSceneStatus", got.await);
        let ended = to.end_scene(EndSceneRequest {
            run_id: run(),
            ..Default::default()
        });
        asked.note("EndScene", ended.await);
        let slept = to.sleep_instance(SleepInstanceRequest {
            conversation_id: agent(),
            ..Default::default()
        });
        asked.note("SleepInstance", slept.await);
        let woken = to.wake_instance(WakeInstanceRequest {
            conversation_id: agent(),
        });
        asked.note("WakeInstance", woken.await);
        for scene in [Publish::RunId(run()), Publish::ConversationId(agent())] {
            let published = to.publish_event(PublishEventRequest {
                scene: Some(scene),
                r#type: "noise".to_owned(),
                ..Default::default()
            });
            asked.note("PublishEvent", published.await);
        }
        let mut to = self.states.clone();
        for scene in [Read::RunId(run()), Read::ConversationId(agent())] {
            let got = to.get_world_state(GetWorldStateRequest {
                scene: Some(scene),
                ..Default::default()
            });
            asked.note("GetWorldState", got.await);
        }
        for scene in [Written::RunId(run()), Written::ConversationId(agent())] {
            let updated = to.update_world_state(UpdateWorldStateRequest {
                scene: Some(scene),
                operations: vec![set()],
                ..Default::default()
            });
            asked.note("UpdateWorldState", updated.await);
        }
    }
}

/// Makes a request of a client of A2A 1.0.
fn of_a2a<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    let metadata = request.metadata_mut();
    metadata.insert("a2a-version", "1.0".parse().unwrap());
    request
}

/// Makes the objects of a principal.
async fn made(running: &crate::world::Running, of: &Caller) -> Ids {
    of.put_scene("wood").await;
    of.append("secret", "hello").await.unwrap();
    let turn = of.start(talk("secret")).await.unwrap();
    running.follow(&turn, 0).await;
    let scene = of.start_scene().await;
    Ids {
        conversation: "secret".to_owned(),
        turn,
        agent: format!("{scene}.ada"),
        scene,
    }
}

#[tokio::test]
async fn an_id_out_of_reach_is_answered_as_one_that_nothing_has() {
    let world = greeting();
    let running = world.build().await;
    let owner = running.operator("mara");
    owner.put_profile(&profile("Ada")).await;
    let ids = made(&running, &owner).await;
    running
        .operator("acme/ivo")
        .put_profile(&profile("Ada"))
        .await;
    let check = async |running: &crate::world::Running| {
        for caller in [running.operator("acme/ivo"), running.invoker("eve")] {
            let (foreign, missing) = (
                caller.refusals(&ids).await,
                caller.refusals(&ids.missing()).await,
            );
            assert_eq!(foreign.len(), 35);
            for (foreign, missing) in foreign.iter().zip(&missing) {
                assert_eq!(foreign, missing, "{}", caller.principal);
            }
        }
    };
    check(&running).await;
    // Nothing was changed.
    assert_eq!(
        owner.messages("secret").await.unwrap(),
        ["hello", "hello", "Hello."]
    );
    let status = running.status(&ids.scene).await;
    assert_eq!(status.len(), 1);
    running.runtime.shutdown().await;
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    check(&running).await;
}

#[tokio::test]
async fn the_conversation_of_another_principal_is_not_joined_and_the_id_of_another_tenants_is_free()
{
    let running = greeting().build().await;
    let owner = running.invoker("mara");
    owner.append("talk", "mine").await.unwrap();
    let run_id = owner.start(talk("talk")).await.unwrap();
    running.follow(&run_id, 0).await;
    let eve = running.invoker("eve");
    let missing = eve.messages("talk").await.unwrap_err();
    for refused in [
        eve.append("talk", "me too").await.map(drop).unwrap_err(),
        eve.start(talk("talk")).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(
            grpc_kit::reason(&refused),
            Some(ErrorReason::ConversationNotFound)
        );
        assert_eq!(refused.message(), missing.message());
        assert_eq!(grpc_kit::metadata(&refused), grpc_kit::metadata(&missing));
    }
    assert_eq!(
        owner.messages("talk").await.unwrap(),
        ["mine", "hello", "Hello."]
    );

    let theirs = running.invoker("acme/mara");
    theirs.put_profile(&profile("Ada")).await;
    assert_eq!(theirs.append("talk", "ours").await.unwrap(), 1);
    let run_id = theirs.start(talk("talk")).await.unwrap();
    running.follow(&run_id, 0).await;
    assert_eq!(
        theirs.messages("talk").await.unwrap(),
        ["ours", "hello", "Hello."]
    );
    // An operator of the tenant continues the conversation, which stays its owner's.
    let operator = running.operator("ivo");
    let request = contracts::tavern::agent::v1::StartTurnRequest {
        request_id: "r2".to_owned(),
        ..talk("talk")
    };
    let run_id = operator.start(request).await.unwrap();
    running.follow(&run_id, 0).await;
    assert_eq!(owner.messages("talk").await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_client_begins_no_conversation_under_the_name_of_a_scene_or_a_fork() {
    let running = greeting().build().await;
    let owner = running.invoker("mara");
    owner.put_scene("wood").await;
    let scene = owner.start_scene().await;
    let agent = format!("{scene}.ada");
    let theirs = running.invoker("acme/eve");
    theirs.put_profile(&profile("Ada")).await;
    for (caller, own) in [
        (running.invoker("eve"), ""),
        (theirs, ""),
        (owner, agent.as_str()),
    ] {
        let kept = ["fork_0", "fork_0.x", &scene, &format!("{scene}.x"), &agent];
        for id in kept.into_iter().filter(|id| *id != own) {
            for refused in [
                caller.append(id, "hello").await.map(drop).unwrap_err(),
                caller.start(talk(id)).await.map(drop).unwrap_err(),
            ] {
                let violations = grpc_kit::violations(&refused);
                assert_eq!(violations[0].0, "conversation_id", "{id}: {refused}");
            }
        }
    }
    // The agent of its own scene, and a name that no scene has.
    let owner = running.invoker("mara");
    for id in [agent, scene.replace("scene_", "turn_")] {
        assert_eq!(owner.append(&id, "hello").await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_conversation_named_like_the_scene_of_another_neither_shows_nor_deletes_its_world() {
    let world = greeting();
    let running = world.build().await;
    let (owner, eve) = (running.invoker("mara"), running.invoker("eve"));
    owner.put_scene("wood").await;
    let scene = owner.start_scene().await;
    let copy =
        "INSERT INTO private_states VALUES ('default', 'fork_0', '', 1, 1, '{}', '[]', NULL, '')";
    let begun = "INSERT INTO conversations VALUES ('default', ?, 'eve', 1)";
    let path = world.settings.data_dir.join("agent-runtime.db");
    let options = SqliteConnectOptions::new().filename(path);
    let mut door = options.connect().await.unwrap();
    sqlx::query(copy).execute(&mut door).await.unwrap();
    let ids = [scene.clone(), format!("{scene}.x"), "fork_0.x".to_owned()];
    // They are from before such ids were refused.
    for id in &ids {
        let begun = sqlx::query(begun).bind(id).execute(&mut door);
        begun.await.unwrap();
    }
    let world_of = async |caller: &Caller, scene: Read| {
        let request = GetWorldStateRequest {
            scene: Some(scene),
            ..GetWorldStateRequest::default()
        };
        let read = caller.states.clone().get_world_state(request).await;
        read.map(|read| read.into_inner().value_json)
    };
    let missing = world_of(&eve, Read::ConversationId("absent.x".to_owned())).await;
    let missing = missing.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::SceneNotRunning)
    );
    for id in &ids {
        let refused = world_of(&eve, Read::ConversationId(id.clone())).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.message(), missing.message(), "{id}");
        assert_eq!(grpc_kit::metadata(&refused), grpc_kit::metadata(&missing));
    }
    for conversation_id in ids {
        let request = DeleteConversationRequest { conversation_id };
        let deleted = eve.conversations.clone().delete_conversation(request).await;
        deleted.unwrap();
    }
    let agent = Read::ConversationId(format!("{scene}.ada"));
    for read in [Read::RunId(scene), agent] {
        assert_eq!(world_of(&owner, read).await.unwrap(), r#"{"of":"wood"}"#);
    }
}

#[tokio::test]
async fn a_turn_in_a_conversation_out_of_reach_is_neither_exported_nor_forked() {
    let running = greeting().build().await;
    running
        .invoker("mara")
        .append("talk", "mine")
        .await
        .unwrap();
    let operator = running.operator("ivo");
    let run_id = operator.start(talk("talk")).await.unwrap();
    running.follow(&run_id, 0).await;
    let refusals = async |caller: &Caller, run_id: &str| {
        let mut to = caller.agent.clone();
        let exported = to.export_turn(ExportTurnRequest {
            run_id: run_id.to_owned(),
        });
        let exported = exported.await.map(drop);
        let forked = to.fork_turn(ForkTurnRequest {
            run_id: run_id.to_owned(),
            sequence: 2,
            ..Default::default()
        });
        [exported, forked.await.map(drop)]
    };
    let [exported, _] = refusals(&operator, &run_id).await;
    exported.unwrap();
    // It is no operator any more, and its turn has the messages of another.
    let invoker = running.invoker("ivo");
    let absent = format!("turn_{}", "0".repeat(32));
    let (foreign, missing) = (
        refusals(&invoker, &run_id).await,
        refusals(&invoker, &absent).await,
    );
    for (foreign, missing) in foreign.into_iter().zip(missing) {
        let (foreign, missing) = (foreign.unwrap_err(), missing.unwrap_err());
        assert_eq!(grpc_kit::reason(&foreign), Some(ErrorReason::RunNotFound));
        assert_eq!(
            foreign.message().replace(&run_id, &absent),
            missing.message()
        );
    }
}
