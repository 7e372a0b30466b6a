//! Turns, scenes and answers of a principal other than `local`: all of their work acts for it.

use contracts::tavern::{
    agent::v1::{
        AppendMessagesRequest, Budgets, EditBudgetsRequest, ForkTurnRequest, PublishEventRequest,
        PutProfileRequest, PutProjectRequest, SleepInstanceRequest, StartProjectRequest,
        StartSceneRequest, StartTurnRequest, SteerTurnRequest,
        agent_service_client::AgentServiceClient,
        conversation_service_client::ConversationServiceClient,
        profile_service_client::ProfileServiceClient, project_service_client::ProjectServiceClient,
        scene_service_client::SceneServiceClient,
    },
    common::v1::{ErrorReason, Run, event_source, run_event::Kind},
    registry::v1::{GetToolRequest, tool_registry_service_client::ToolRegistryServiceClient},
    run::v1::{
        AnswerWaitRequest, ListRunsRequest, ListWaitsRequest, run_service_client::RunServiceClient,
    },
};
use core_types::{CallPath, Principal, Reach};
use doubles::{Behaviour, TestRegistry};
use grpc_kit::{CallContext, Outbound};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    conversations::user,
    scenes::{self, event, is_handled},
    turns::call,
    world::{Running, World, says},
};

/// The clients of one principal.
struct Caller {
    agent: AgentServiceClient<Outbound>,
    conversations: ConversationServiceClient<Outbound>,
    profiles: ProfileServiceClient<Outbound>,
    projects: ProjectServiceClient<Outbound>,
    scenes: SceneServiceClient<Outbound>,
}

fn context(principal: &str) -> CallContext {
    CallContext::new(Principal::new(principal).unwrap(), CallPath::default())
}

impl Running {
    fn by(&self, principal: &str) -> Caller {
        let to = grpc_kit::local(&self.runtime.services()).with(&context(principal));
        Caller {
            agent: AgentServiceClient::new(to.clone()),
            conversations: ConversationServiceClient::new(to.clone()),
            profiles: ProfileServiceClient::new(to.clone()),
            projects: ProjectServiceClient::new(to.clone()),
            scenes: SceneServiceClient::new(to),
        }
    }

    /// Returns the principals of all runs, the newest first.
    async fn principals(&self) -> Vec<String> {
        let list = self
            .runs
            .clone()
            .list_runs(ListRunsRequest::default())
            .await;
        let runs = list.unwrap().into_inner().runs.into_iter();
        runs.map(|run| run.principal).collect()
    }
}

impl Caller {
    async fn start(&self, request: StartTurnRequest) -> Result<Run, Status> {
        let started = self.agent.clone().start_turn(request).await?;
        Ok(started.into_inner().run.unwrap())
    }

    async fn start_scene(&self, request_id: &str) -> Result<Run, Status> {
        let request = StartSceneRequest {
            scene_id: "wood".to_owned(),
            request_id: request_id.to_owned(),
            ..StartSceneRequest::default()
        };
        let started = self.scenes.clone().start_scene(request).await?;
        Ok(started.into_inner().run.unwrap())
    }

    async fn publish(&self, request: PublishEventRequest) -> Result<bool, Status> {
        let published = self.scenes.clone().publish_event(request).await?;
        Ok(published.into_inner().replayed)
    }
}

fn hangs() -> TestRegistry {
    TestRegistry::default().tool("Look", &["at"], Behaviour::Hangs)
}

fn dispatched(kind: &Kind) -> bool {
    matches!(kind, Kind::CallDispatched(_))
}

fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> Option<ErrorReason> {
    grpc_kit::reason(&answer.unwrap_err())
}

const REUSED: Option<ErrorReason> = Some(ErrorReason::RequestIdReused);

#[tokio::test]
async fn a_turn_acts_for_its_starter_also_after_a_restart_and_a_queued_one_for_its_own() {
    let turns = json!([
        {"answer": {"text": call("Look", "at", "shelf")}},
        {"answer": {"text": "Dust."}},
        {"answer": {"text": call("Look", "at", "door")}},
        {"answer": {"text": "Wood."}},
    ]);
    let world = World::new(hangs(), &["Look"], &turns);
    let running = world.build().await;
    let talk = |text: &str| StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says(text)
    };
    let first = running.by("ada").start(talk("look")).await.unwrap();
    assert_eq!(first.principal, "ada");
    running.until(&first.run_id, dispatched).await;
    let second = running.by("bob").start(talk("again")).await.unwrap();
    running.runtime.shutdown().await;
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    world.registry.release("Look", json!("dust"));
    assert_eq!(running.follow(&first.run_id, 0).await.text(), "Dust.");
    assert_eq!(running.follow(&second.run_id, 0).await.text(), "Wood.");
    let callers = world.registry.callers_of("Look");
    let callers: Vec<&str> = callers.iter().map(Principal::as_str).collect();
    let (of_bob, of_ada) = callers.split_last().unwrap();
    assert_eq!(*of_bob, "bob", "{callers:?}");
    assert!(
        !of_ada.is_empty() && of_ada.iter().all(|name| *name == "ada"),
        "{callers:?}"
    );

    let fork = ForkTurnRequest {
        run_id: first.run_id.clone(),
        sequence: 1,
        request_id: "fork".to_owned(),
        ..ForkTurnRequest::default()
    };
    let forked = running.by("bob").agent.fork_turn(fork.clone()).await;
    assert_eq!(forked.unwrap().into_inner().run.unwrap().principal, "bob");
    let other = running.by("ada").agent.fork_turn(fork).await;
    assert_eq!(reason(other), REUSED);
}

#[tokio::test]
async fn a_sub_agent_acts_for_the_starter_of_the_turn_above() {
    let profile = |id: &str, tool: &str| {
        json!({"id": id, "name": id, "tool_ids_inventory": [tool], "description": id,
            "custom_metadata": {"tavern": {"model": "play", "system_prompt": format!("I am {id}.")}}})
    };
    let ask = "<ACTION><agent:scout><message>Is it safe?</message></agent:scout></ACTION>";
    let part = |id: &str, turns: Value| json!({"system_contains": [format!("I am {id}.")], "turns": turns});
    let of_guide = json!([{"answer": {"text": ask}}, {"answer": {"text": "Safe."}}]);
    let look = call("Look", "at", "wood");
    let of_scout = json!([{"answer": {"text": look}}, {"answer": {"text": "It is."}}]);
    let turns = json!({"parts": [part("guide", of_guide), part("scout", of_scout)]});
    let profiles = [
        ("guide.json", &profile("guide", "agent:scout")),
        ("scout.json", &profile("scout", "Look")),
    ];
    let registry = TestRegistry::default().gives("Look", &["at"], json!("trees"));
    let world = World::of(registry, &profiles, &turns);
    let running = world.build().await;
    // The registry lists agents on its own.
    let way = grpc_kit::local(&running.runtime.services());
    let mut tools = ToolRegistryServiceClient::new(world.registry.connect(way).await.outermost());
    let tool = GetToolRequest {
        tool_id: "agent:scout".to_owned(),
    };
    while tools.get_tool(tool.clone()).await.is_err() {
        tokio::task::yield_now().await;
    }
    let request = StartTurnRequest {
        profile_id: "guide".to_owned(),
        ..says("go")
    };
    let run = running.by("ada").start(request).await.unwrap();
    let ended = running.follow(&run.run_id, 0).await;
    assert_eq!(ended.text(), "Safe.", "{:?}", ended.observations());
    assert_eq!(running.principals().await, ["ada", "ada"]);
    let callers = world.registry.callers_of("Look");
    assert_eq!(callers, [Principal::new("ada").unwrap()]);
}

#[tokio::test]
async fn the_turn_of_an_answer_acts_for_the_principal_that_asked_not_for_the_one_that_answers() {
    for [asker, answerer] in [["mara", "bob"], ["acme/mara", "acme/bob"]] {
        ask_and_answer(asker, answerer).await;
    }
}

/// Lets a turn of a principal that sees only its own ask, and another principal answer after a restart.
async fn ask_and_answer(asker: &str, answerer: &str) {
    let ask = "<ACTION><ui:RequestUserInteraction><prompt>Which herb?</prompt>\
               <options>sage</options></ui:RequestUserInteraction></ACTION>";
    let turns = json!({"turns": [
        {"answer": {"text": ask}},
        {"answer": {"text": "I will see."}},
        {"answer": {"text": call("Look", "at", "sage")}},
        {"answer": {"text": "I fetch it."}},
    ]});
    let profile = json!({"id": "ada", "name": "ada",
        "tool_ids_inventory": ["ui:RequestUserInteraction", "Look"],
        "custom_metadata": {"tavern": {"model": "play", "interaction": "continue"}}});
    let registry = TestRegistry::default().gives("Look", &["at"], json!("green"));
    let world = World::of(registry, &[("ada.json", &profile)], &turns);
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    if !Principal::new(asker).unwrap().tenant().is_default() {
        // Files belong to another tenant.
        running.operator(answerer).put_profile(&profile).await;
    }
    let first = running.invoker(asker).start(says("cough")).await.unwrap();
    assert_eq!(running.follow(&first, 0).await.text(), "I will see.");
    // The service that follows the question is another one when it is answered.
    running.runtime.shutdown().await;
    let running = world.build().await;
    running.runtime.recover().await.unwrap();

    let workflows = world
        .registry
        .connect(grpc_kit::local(&running.runtime.services()))
        .await;
    let mut questions = RunServiceClient::new(workflows.with(&context(answerer)));
    let listed = questions
        .list_runs(ListRunsRequest::default())
        .await
        .unwrap();
    let question = listed.into_inner().runs.remove(0);
    assert_eq!(question.principal, asker);
    let request = ListWaitsRequest {
        run_id: question.run_id.clone(),
        ..ListWaitsRequest::default()
    };
    let waits = questions.list_waits(request).await.unwrap().into_inner();
    let request = AnswerWaitRequest {
        run_id: question.run_id,
        wait_id: waits.waits[0].wait_id.clone(),
        answer_json: json!("sage").to_string(),
        ..AnswerWaitRequest::default()
    };
    questions.answer_wait(request).await.unwrap();
    loop {
        let list = running
            .runs
            .clone()
            .list_runs(ListRunsRequest::default())
            .await;
        let runs = list.unwrap().into_inner().runs;
        if let [second, _] = &runs[..] {
            assert_eq!(second.principal, asker);
            running.follow(&second.run_id, 0).await;
            break;
        }
        tokio::task::yield_now().await;
    }
    let callers = world.registry.reaching_callers_of("Look");
    assert_eq!(callers, [(Principal::new(asker).unwrap(), Reach::Own)]);
}

#[tokio::test]
async fn a_scene_and_a_project_act_for_their_starter_and_not_for_a_publisher() {
    let answers = json!([{"answer": {"text": "A."}}, {"answer": {"text": "B."}}]);
    let world = scenes::world(&scenes::scene(), &answers, &json!([]));
    let running = world.build().await;
    let scene = running.by("ada").start_scene("").await.unwrap();
    assert_eq!(scene.principal, "ada");
    let speak = |source: &str| PublishEventRequest {
        source_id: source.to_owned(),
        request_id: "e".to_owned(),
        ..event(
            &scene.run_id,
            "player.action.speak",
            &json!({"message": "hi"}),
        )
    };
    let refused = running.by("bob").publish(speak("ada")).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "source_id");
    running.by("bob").publish(speak("")).await.unwrap();
    running.until_handled(&scene.run_id, 1).await;
    running.runtime.shutdown().await;
    let running = world.build().await;
    running.runtime.recover().await.unwrap();
    // The log knows the publisher.
    assert!(running.by("bob").publish(speak("bob")).await.unwrap());
    assert_eq!(reason(running.by("eve").publish(speak("")).await), REUSED);
    let again = PublishEventRequest {
        request_id: String::new(),
        ..speak("")
    };
    running.by("eve").publish(again).await.unwrap();
    running.until_handled(&scene.run_id, 2).await;
    assert_eq!(
        running.principals().await,
        ["ada"; 3],
        "the scene and two turns"
    );
    let ended = running.end_scene(&scene.run_id).await;
    let published = ended.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::EventPublished(published)) => Some(published),
        _ => None,
    });
    let by_callers = published.filter_map(|published| {
        let source = published.event.as_ref()?.source.clone()?;
        let is_caller = source.kind() == event_source::Kind::Caller;
        is_caller.then(|| (source.id, published.principal.clone()))
    });
    let expected = ["bob", "eve"].map(|name| (name.to_owned(), name.to_owned()));
    assert_eq!(by_callers.collect::<Vec<_>>(), expected);
    assert_eq!(ended.count(is_handled), 2);

    let project = json!({"id": "p", "default_scene_id": "wood"});
    let request = PutProjectRequest {
        project_json: project.to_string(),
        ..PutProjectRequest::default()
    };
    running
        .by("ada")
        .projects
        .put_project(request)
        .await
        .unwrap();
    let request = StartProjectRequest {
        project_id: "p".to_owned(),
        request_id: "p".to_owned(),
        ..StartProjectRequest::default()
    };
    let started = running
        .by("bob")
        .projects
        .start_project(request.clone())
        .await;
    assert_eq!(started.unwrap().into_inner().run.unwrap().principal, "bob");
    assert_eq!(
        reason(running.by("ada").projects.start_project(request).await),
        REUSED
    );
}

#[tokio::test]
async fn a_request_id_of_another_principal_is_refused() {
    let world = scenes::world(&scenes::scene(), &json!([]), &json!([]));
    let running = world.build().await;
    let (ada, bob) = (running.by("ada"), running.by("bob"));
    let scene = ada.start_scene("s").await.unwrap();
    assert_eq!(ada.start_scene("s").await.unwrap().run_id, scene.run_id);
    assert_eq!(reason(bob.start_scene("s").await), REUSED);
    let request = SleepInstanceRequest {
        conversation_id: format!("{}.gm", scene.run_id),
        request_id: "z".to_owned(),
        seconds: 60,
        ..SleepInstanceRequest::default()
    };
    let sleep = |caller: &Caller| {
        let (mut scenes, request) = (caller.scenes.clone(), request.clone());
        async move {
            scenes
                .sleep_instance(request)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    assert!(!sleep(&ada).await.unwrap().replayed);
    assert!(sleep(&ada).await.unwrap().replayed);
    assert_eq!(reason(sleep(&bob).await), REUSED);

    let profile = PutProfileRequest {
        profile_json: json!({"id": "x", "name": "x"}).to_string(),
        request_id: "p".to_owned(),
        ..PutProfileRequest::default()
    };
    ada.profiles
        .clone()
        .put_profile(profile.clone())
        .await
        .unwrap();
    ada.profiles
        .clone()
        .put_profile(profile.clone())
        .await
        .unwrap();
    assert_eq!(
        reason(bob.profiles.clone().put_profile(profile).await),
        REUSED
    );
    let append = AppendMessagesRequest {
        conversation_id: "talk".to_owned(),
        request_id: "m".to_owned(),
        messages: vec![user("hello")],
        ..AppendMessagesRequest::default()
    };
    ada.conversations
        .clone()
        .append_messages(append.clone())
        .await
        .unwrap();
    ada.conversations
        .clone()
        .append_messages(append.clone())
        .await
        .unwrap();
    assert_eq!(
        reason(bob.conversations.clone().append_messages(append).await),
        REUSED
    );
}

#[tokio::test]
async fn a_message_and_budgets_for_a_turn_are_those_of_their_caller() {
    let turns: Value =
        json!([{"answer": {"text": call("Look", "at", "shelf")}}, {"answer": {"text": "."}}]);
    let world = World::new(hangs(), &["Look"], &turns);
    let running = world.build().await;
    let run = running.by("ada").start(says("look")).await.unwrap().run_id;
    running.until(&run, dispatched).await;
    let steer = |caller: Caller| {
        let request = SteerTurnRequest {
            run_id: run.clone(),
            request_id: "s".to_owned(),
            message: "hurry".to_owned(),
            interrupt: false,
        };
        async move {
            caller
                .agent
                .clone()
                .steer_turn(request)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let edit = |caller: Caller| {
        let request = EditBudgetsRequest {
            run_id: run.clone(),
            request_id: "b".to_owned(),
            budgets: Some(Budgets {
                iterations: 9,
                ..Budgets::default()
            }),
        };
        async move {
            caller
                .agent
                .clone()
                .edit_budgets(request)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let first = steer(running.by("ada")).await.unwrap();
    let again = steer(running.by("ada")).await.unwrap();
    assert_eq!(first.accepted_sequence, again.accepted_sequence);
    assert_eq!(reason(steer(running.by("bob")).await), REUSED);
    edit(running.by("bob")).await.unwrap();
    edit(running.by("bob")).await.unwrap();
    assert_eq!(reason(edit(running.by("ada")).await), REUSED);
    world.registry.release("Look", json!("dust"));
    let ended = running.follow(&run, 0).await;
    let by = ended.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::SteeringAccepted(accepted)) => Some(accepted.principal.as_str()),
        Some(Kind::BudgetsEdited(edited)) => Some(edited.principal.as_str()),
        _ => None,
    });
    assert_eq!(by.collect::<Vec<_>>(), ["ada", "bob"]);
}

#[tokio::test]
async fn a_model_is_offered_no_tool_that_its_principal_may_not_call() {
    let registry = TestRegistry::default()
        .gives("Look", &["at"], json!("dust"))
        .gives("Take", &["what"], json!("a key"));
    let turns = json!([
        {"answer": {"text": call("Take", "what", "key")}},
        {"answer": {"text": call("Look", "at", "shelf")}},
        {"answer": {"text": "Dust."}},
    ]);
    let world = World::new(registry, &["Look", "Take"], &turns);
    let running = world.build().await;
    world.registry.deny("ada", "Take").await;
    let run = running.by("ada").start(says("look")).await.unwrap();
    let ended = running.follow(&run.run_id, 0).await;
    assert_eq!(ended.text(), "Dust.");
    assert!(world.registry.callers_of("Take").is_empty());
    assert_eq!(world.registry.callers_of("Look").len(), 1);
}
