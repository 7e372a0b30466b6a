//! Turns that continue others from an answer, a result or a message on (rule G1003).

use std::sync::Arc;

use contracts::tavern::{
    agent::v1::{
        Budgets, EditBudgetsRequest, ForkTurnRequest, ForkTurnResponse, GetPrivateStateRequest,
        GetToolScopeRequest, StartTurnRequest, StateOperation, SteerTurnRequest,
        UpdatePrivateStateRequest, fork_turn_request::Edit, get_tool_scope_request,
        state_operation::Kind as Change, update_world_state_request::Scene as Written,
    },
    common::v1::{ErrorReason, RunState, run_event::Kind},
};
use doubles::{Behaviour, TestRegistry};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    scenes,
    turns::call,
    world::{Ended, Running, World, says},
};

fn registry() -> TestRegistry {
    TestRegistry::default()
        .tool(
            "Note",
            &["text"],
            Behaviour::Gives(Arc::new(|arguments| {
                json!(format!("noted {}", arguments["text"]))
            })),
        )
        .tool("Wait", &["text"], Behaviour::Hangs)
        .tool("Doubt", &["text"], Behaviour::Unknown)
}

fn world(turns: &Value) -> World {
    World::new(registry(), &["Note", "Wait", "Doubt"], turns)
}

/// A turn with one call that has ended.
async fn ended() -> (World, Running, Ended) {
    let world = world(&json!([
        {"answer": {"text": format!("One moment. {}", call("Note", "text", "tea"))}},
        {"answer": {"text": "Noted."}},
    ]));
    let running = world.build().await;
    let request = StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says("Note tea.")
    };
    let ended = running.play(request).await;
    assert_eq!(ended.text(), "Noted.", "{}", ended.error_message());
    (world, running, ended)
}

/// Replaces the script of the model, with a restart.
async fn with_script(world: &World, running: Running, turns: &Value) -> Running {
    running.runtime.shutdown().await;
    world.script(turns);
    world.build().await
}

fn fork(ended: &Ended, sequence: u64, edit: Option<Edit>) -> ForkTurnRequest {
    ForkTurnRequest {
        run_id: ended.run.run_id.clone(),
        sequence,
        edit,
        ..ForkTurnRequest::default()
    }
}

impl Ended {
    fn sequence(&self, wanted: fn(&Kind) -> bool) -> u64 {
        let mut events = self.events.iter();
        let found = events.find(|event| {
            event.run_id == self.run.run_id && event.kind.as_ref().is_some_and(wanted)
        });
        found.unwrap().sequence
    }

    fn answer(&self) -> u64 {
        self.sequence(|kind| matches!(kind, Kind::ModelAnswered(_)))
    }

    fn result(&self) -> u64 {
        self.sequence(|kind| matches!(kind, Kind::CallSettled(_)))
    }
}

impl Running {
    async fn fork_turn(&self, request: ForkTurnRequest) -> Result<ForkTurnResponse, Status> {
        Ok(self.agent.clone().fork_turn(request).await?.into_inner())
    }

    /// Forks a turn and follows the fork to its end. It can be replayed.
    async fn forked(&self, request: ForkTurnRequest) -> Ended {
        let run = self.fork_turn(request).await.unwrap().run.unwrap();
        self.play_on(&run.run_id).await
    }

    async fn said(&self, conversation_id: &str) -> Vec<String> {
        let messages = self.messages(conversation_id).await.into_iter();
        messages.map(|message| message.text).collect()
    }

    async fn mood(&self, conversation_id: &str) -> String {
        let request = GetPrivateStateRequest {
            conversation_id: conversation_id.to_owned(),
            path: "mood".to_owned(),
            ..GetPrivateStateRequest::default()
        };
        let state = self.world_states().get_private_state(request).await;
        state.unwrap().into_inner().value_json
    }

    async fn set_mood(&self, conversation_id: &str, mood: &str) {
        let request = UpdatePrivateStateRequest {
            conversation_id: conversation_id.to_owned(),
            operations: vec![StateOperation {
                kind: Change::Set.into(),
                path: "mood".to_owned(),
                value_json: json!(mood).to_string(),
            }],
            ..UpdatePrivateStateRequest::default()
        };
        let states = self.world_states().update_private_state(request).await;
        states.unwrap();
    }
}

#[tokio::test]
async fn g1003_an_edited_result_is_what_the_model_reads_and_nothing_is_called_again() {
    let (world, running, original) = ended().await;
    let script = json!([
        {"answer": {"text": "Never asked."}},
        {
            "expect": {"last_is": "Observation: Tool Note executed successfully. Result: the book is full",
                       "contains": ["One moment."], "lacks": ["noted"]},
            "answer": {"text": "The book is full."}
        },
    ]);
    let running = with_script(&world, running, &script).await;
    let edit = Edit::OutputJson(json!("the book is full").to_string());
    let forked = running
        .forked(fork(&original, original.result(), Some(edit)))
        .await;
    assert_eq!(
        forked.text(),
        "The book is full.",
        "{}",
        forked.error_message()
    );
    assert_eq!(world.registry.asked().len(), 1, "by the original");
    assert_eq!(
        forked.story()[..4],
        ["started", "forked", "result taken", "iteration"]
    );
    assert_ne!(forked.run.conversation_id, original.run.conversation_id);
    let said = running.said(&forked.run.conversation_id).await;
    assert_eq!((said.len(), said[0].as_str()), (4, "Note tea."));
    assert_eq!(running.said("talk").await[3], "Noted.");

    let script = json!([
        {"answer": {"text": "Never asked."}},
        {"expect": {"last_contains": ["out of ink"]}, "answer": {"text": "No ink."}},
    ]);
    let running = with_script(&world, running, &script).await;
    let edit = Edit::FailureMessage("out of ink".to_owned());
    let forked = running
        .forked(fork(&original, original.result(), Some(edit)))
        .await;
    assert_eq!(forked.text(), "No ink.", "{}", forked.error_message());
    assert_eq!(world.registry.asked().len(), 1);
}

#[tokio::test]
async fn g1003_an_edited_answer_dispatches_only_calls_that_the_original_did_not_make() {
    let (world, running, original) = ended().await;
    let script = json!([
        {"answer": {"text": "Never asked."}},
        {"expect": {"contains": ["noted \"tea\"", "noted \"milk\""], "lacks": ["One moment."]},
         "answer": {"text": "Both noted."}},
    ]);
    let running = with_script(&world, running, &script).await;
    let both = format!(
        "{} {}",
        call("Note", "text", "milk"),
        call("Note", "text", "tea")
    );
    let edit = Edit::AnswerText(both);
    let forked = running
        .forked(fork(&original, original.answer(), Some(edit)))
        .await;
    assert_eq!(forked.text(), "Both noted.", "{}", forked.error_message());
    let asked = world.registry.asked();
    assert_eq!(asked.len(), 2, "tea by the original, milk by the fork");
    assert_eq!(asked[1].arguments_json, json!({"text": "milk"}).to_string());
    assert_ne!(asked[0].effect_id, asked[1].effect_id);

    // Two calls are one more than the original had.
    let twice = call("Note", "text", "tea").repeat(2);
    let edit = Some(Edit::AnswerText(twice));
    let running = with_script(
        &world,
        running,
        &json!([
            {"answer": {"text": "Never asked."}}, {"answer": {"text": "Twice."}},
        ]),
    )
    .await;
    let forked = running
        .forked(fork(&original, original.answer(), edit))
        .await;
    assert_eq!(forked.text(), "Twice.", "{}", forked.error_message());
    assert_eq!(world.registry.dispatches().len(), 3);

    // An answer without calls ends the turn without a request to the model.
    let edit = Some(Edit::AnswerText("I would rather not.".to_owned()));
    let forked = running
        .forked(fork(&original, original.answer(), edit))
        .await;
    assert_eq!(forked.text(), "I would rather not.");
    assert_eq!(
        forked.count(|kind| matches!(kind, Kind::CallDispatched(_))),
        0
    );
}

#[tokio::test]
async fn g1003_a_fork_without_an_edit_asks_the_model_anew_with_the_same_results() {
    let (world, running, original) = ended().await;
    let script = json!([
        {"answer": {"text": "Never asked."}},
        {"expect": {"contains": ["One moment.", "noted \"tea\""]}, "answer": {"text": "Again."}},
    ]);
    let running = with_script(&world, running, &script).await;
    for sequence in [original.answer(), original.result()] {
        let forked = running.forked(fork(&original, sequence, None)).await;
        assert_eq!(forked.text(), "Again.", "{}", forked.error_message());
    }
    assert_eq!(world.registry.asked().len(), 1);
    // A fork of a fork: the parts that it has taken over are its own.
    let once = running
        .forked(fork(&original, original.result(), None))
        .await;
    let last =
        |kind: &Kind| matches!(kind, Kind::ModelAnswered(answered) if answered.text == "Again.");
    let edit = Some(Edit::AnswerText("Enough.".to_owned()));
    let twice = running.forked(fork(&once, once.sequence(last), edit)).await;
    assert_eq!(twice.text(), "Enough.", "{}", twice.error_message());
    assert_eq!(world.registry.asked().len(), 1);
}

#[tokio::test]
async fn g1003_native_calls_of_an_answer_are_taken_over_with_their_results() {
    let profile = json!({"id": "ada", "name": "Ada", "tool_ids_inventory": ["Note"],
                         "custom_metadata": {"tavern": {"model": "play", "tools": "native"}}});
    let calls = json!([{"id": "1", "type": "function",
        "function": {"name": "Note", "arguments": "{\"text\":\"tea\"}"}}]);
    let script = json!({"turns": [
        {"answer": {"text": "", "finish_reason": "tool_calls", "tool_calls": calls}},
        {"expect": {"last_contains": ["noted \"tea\""]}, "answer": {"text": "Noted."}},
    ]});
    let world = World::of(registry(), &[("ada.json", &profile)], &script);
    let running = world.build().await;
    let original = running.play(says("Note tea.")).await;
    assert_eq!(original.text(), "Noted.", "{}", original.error_message());
    let forked = running
        .forked(fork(&original, original.answer(), None))
        .await;
    assert_eq!(forked.text(), "Noted.", "{}", forked.error_message());
    assert_eq!(world.registry.asked().len(), 1);
}

#[tokio::test]
async fn g1003_a_message_is_asked_about_anew_after_the_turns_before_it() {
    let (world, running, _) = ended().await;
    let talk = |text: &str| StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says(text)
    };
    let script = json!([
        {"answer": {"text": "One."}},
        {"answer": {"text": "Two."}},
        {"answer": {"text": "Three."}},
        {"answer": {"text": "Four."}},
    ]);
    let running = with_script(&world, running, &script).await;
    let original = running.play(talk("And now?")).await;
    running.play(talk("And later?")).await;
    let script = json!([
        {"answer": {"text": "One."}},
        {"answer": {"text": "Two."}},
        {"expect": {"last_is": "And then?", "contains": ["Note tea.", "noted \"tea\""],
                    "lacks": ["And now?", "And later?"]},
         "answer": {"text": "Then tea."}},
    ]);
    let running = with_script(&world, running, &script).await;
    let edit = Some(Edit::Message("And then?".to_owned()));
    let forked = running.forked(fork(&original, 1, edit)).await;
    assert_eq!(forked.text(), "Then tea.", "{}", forked.error_message());
    let said = running.said(&forked.run.conversation_id).await;
    assert_eq!(said[4..], ["And then?", "Then tea."]);
    let script = json!([{"answer": {"text": "One."}}, {"answer": {"text": "Two."}},
        {"expect": {"last_is": "And now?"}, "answer": {"text": "Now."}}]);
    let running = with_script(&world, running, &script).await;
    let forked = running.forked(fork(&original, 1, None)).await;
    assert_eq!(forked.text(), "Now.", "{}", forked.error_message());
}

#[tokio::test]
async fn g1003_a_message_of_a_person_in_between_can_be_another() {
    let world = world(&json!([
        {"answer": {"text": call("Wait", "text", "tea")}},
        {"expect": {"last_is": "Faster."}, "answer": {"text": "I hurry."}},
    ]));
    let running = world.build().await;
    let run_id = running.begin(says("Wait.")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::CallDispatched(_)))
        .await;
    let request = SteerTurnRequest {
        run_id: run_id.clone(),
        message: "Faster.".to_owned(),
        ..SteerTurnRequest::default()
    };
    running.agent.clone().steer_turn(request).await.unwrap();
    world.registry.release("Wait", json!("done"));
    let original = running.play_on(&run_id).await;
    let script = json!([
        {"answer": {"text": "Never asked."}},
        {"expect": {"last_is": "Slower.", "contains": ["Result: done"], "lacks": ["Faster."]},
         "answer": {"text": "I take my time."}},
    ]);
    let running = with_script(&world, running, &script).await;
    let steered = original.sequence(|kind| matches!(kind, Kind::Steered(_)));
    let edit = Some(Edit::Message("Slower.".to_owned()));
    let forked = running.forked(fork(&original, steered, edit)).await;
    assert_eq!(
        forked.text(),
        "I take my time.",
        "{}",
        forked.error_message()
    );
    assert_eq!(world.registry.asked().len(), 1);
}

#[tokio::test]
async fn g1003_a_fork_works_on_a_copy_of_the_private_state_as_it_was() {
    let profile = json!({"id": "ada", "name": "Ada", "tool_ids_inventory": [],
        "initial_private_state_values": {"mood": "calm"},
        "custom_metadata": {"tavern": {"model": "play"}}});
    let script = json!({"turns": [
        {"expect": {"last_contains": ["\"mood\":\"calm\""]}, "answer": {"text": "Calm."}},
    ]});
    let world = World::of(TestRegistry::default(), &[("ada.json", &profile)], &script);
    let running = world.build().await;
    let request = StartTurnRequest {
        conversation_id: "talk".to_owned(),
        ..says("How are you?")
    };
    let original = running.play(request).await;
    running.set_mood("talk", "angry").await;
    // The script expects the state at the forked event.
    let forked = running.forked(fork(&original, 1, None)).await;
    assert_eq!(forked.text(), "Calm.", "{}", forked.error_message());
    let copy = forked.run.conversation_id.as_str();
    assert_eq!(running.mood(copy).await, "\"calm\"");
    running.set_mood(copy, "merry").await;
    assert_eq!(running.mood("talk").await, "\"angry\"");
}

#[tokio::test]
async fn g1003_a_fork_of_a_turn_in_a_scene_changes_a_copy_of_the_world() {
    let gm = json!([
        {"expect": {"last_contains": ["\"weather\":\"clear\""]}, "answer": {"text": "It is clear."}},
    ]);
    let world = scenes::world(&scenes::scene(), &gm, &scenes::says("never"));
    let running = world.build().await;
    let scene = running.start_scene().await;
    let request = StartTurnRequest {
        profile_id: "gm".to_owned(),
        conversation_id: format!("{scene}.gm"),
        ..says("How is the weather?")
    };
    let original = running.play(request).await;
    assert_eq!(
        original.text(),
        "It is clear.",
        "{}",
        original.error_message()
    );
    let by_caller = Written::RunId(scene.clone());
    running
        .set_world(by_caller, "weather", &json!("mist"))
        .await
        .unwrap();
    let forked = running.forked(fork(&original, 1, None)).await;
    assert_eq!(forked.text(), "It is clear.", "{}", forked.error_message());

    let copy = forked.run.conversation_id.clone();
    let by_fork = || Written::ConversationId(copy.clone());
    let changed = running
        .set_world(by_fork(), "flags.warned", &json!(true))
        .await;
    assert_eq!(changed.unwrap().previous_json, "false");
    let denied = running
        .set_world(by_fork(), "weather", &json!("mist"))
        .await;
    let reason = grpc_kit::reason(&denied.unwrap_err());
    assert_eq!(reason, Some(ErrorReason::WorldWriteDenied));
    assert_eq!(
        running.world_at(&scene, "flags.warned").await.unwrap(),
        "false"
    );
    assert_eq!(
        running.world_of(&copy, "flags.warned").await.unwrap(),
        "true"
    );
    assert_eq!(
        running.world_of(&copy, "weather").await.unwrap(),
        "\"clear\""
    );

    running.delete_conversation(&copy).await.unwrap();
    let gone = running.world_of(&copy, "weather").await.unwrap_err();
    assert_eq!(grpc_kit::reason(&gone), Some(ErrorReason::SceneNotRunning));
}

#[tokio::test]
async fn g1003_a_repeated_request_gives_the_same_fork_also_after_a_restart_in_its_midst() {
    let (world, running, original) = ended().await;
    let request = ForkTurnRequest {
        request_id: "f-1".to_owned(),
        ..fork(
            &original,
            original.answer(),
            Some(Edit::AnswerText(format!(
                "{} {}",
                call("Note", "text", "tea"),
                call("Wait", "text", "milk")
            ))),
        )
    };
    let first = running.fork_turn(request.clone()).await.unwrap();
    let run = first.run.unwrap();
    let is_out = |kind: &Kind| matches!(kind, Kind::CallDispatched(call) if call.tool_id == "Wait");
    running.until(&run.run_id, is_out).await;
    let running = with_script(&world, running, &json!([
        {"answer": {"text": "Never asked."}},
        {"expect": {"contains": ["noted \"tea\"", "Result: waited"]}, "answer": {"text": "Both."}},
    ])).await;
    running.runtime.recover().await.unwrap();
    let again = running.fork_turn(request.clone()).await.unwrap();
    assert_eq!((first.replayed, again.replayed), (false, true));
    assert_eq!(again.run.unwrap().run_id, run.run_id);
    world.registry.release("Wait", json!("waited"));
    let forked = running.play_on(&run.run_id).await;
    assert_eq!(forked.text(), "Both.", "{}", forked.error_message());
    assert_eq!(world.registry.dispatches().len(), 2);
    let other = ForkTurnRequest {
        sequence: 1,
        edit: None,
        ..request
    };
    let refused = running.fork_turn(other).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::RequestIdReused)
    );
}

#[tokio::test]
async fn g1003_what_cannot_be_forked_is_refused_with_the_places_where_it_can_be() {
    let (_world, running, original) = ended().await;
    let violations = async |request: ForkTurnRequest| {
        let refused = running.fork_turn(request).await.unwrap_err();
        grpc_kit::violations(&refused).remove(0)
    };
    let (field, problem) = violations(fork(&original, 2, None)).await;
    assert_eq!(field, "sequence");
    let places = format!(
        "1 (a message), {} (an answer), {} (a result)",
        original.answer(),
        original.result()
    );
    assert!(problem.contains(&places), "{problem}");
    let message = || Some(Edit::Message("Hello.".to_owned()));
    for (sequence, what) in [
        (original.answer(), "an answer"),
        (original.result(), "a result"),
    ] {
        let (field, problem) = violations(fork(&original, sequence, message())).await;
        assert_eq!((field.as_str(), problem.contains(what)), ("edit", true));
    }
    let broken = Some(Edit::OutputJson("{".to_owned()));
    let (field, _) = violations(fork(&original, original.result(), broken)).await;
    assert_eq!(field, "output_json");
    let unknown = ForkTurnRequest {
        run_id: "turn_00000000000000000000000000000000".to_owned(),
        ..fork(&original, 1, None)
    };
    let unknown = running.fork_turn(unknown).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn a_run_that_is_no_turn_is_called_what_it_is() {
    let (_world, running, original) = ended().await;
    for (prefix, kind) in [
        ("flow", "the run of a workflow"),
        ("scene", "the run of a scene"),
        ("call", "the run of calls"),
    ] {
        let run_id = format!("{prefix}_00000000000000000000000000000000");
        let exported = running.export(&run_id).await.unwrap_err();
        let forked = ForkTurnRequest {
            run_id: run_id.clone(),
            ..fork(&original, 1, None)
        };
        let forked = running.fork_turn(forked).await.unwrap_err();
        for refused in [exported, forked] {
            let (field, problem) = grpc_kit::violations(&refused).remove(0);
            assert_eq!(field, "run_id");
            assert!(problem.contains(kind), "{problem}");
        }
        let mut agent = running.agent.clone();
        let steered = SteerTurnRequest {
            run_id: run_id.clone(),
            message: "Faster.".to_owned(),
            ..SteerTurnRequest::default()
        };
        let steered = agent.steer_turn(steered).await.unwrap_err();
        let edited = EditBudgetsRequest {
            run_id: run_id.clone(),
            budgets: Some(Budgets::default()),
            ..EditBudgetsRequest::default()
        };
        let edited = agent.edit_budgets(edited).await.unwrap_err();
        let scope = GetToolScopeRequest {
            agent: Some(get_tool_scope_request::Agent::RunId(run_id)),
        };
        let scope = agent.get_tool_scope(scope).await.unwrap_err();
        for refused in [steered, edited, scope] {
            let reason = grpc_kit::failure::reason(&refused);
            assert_eq!(reason, Some(ErrorReason::RunNotFound), "{refused:?}");
            assert!(refused.message().contains(kind), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn g1003_a_turn_that_runs_or_is_in_doubt_is_forked_only_when_that_is_decided() {
    let world = world(&json!([
        {"answer": {"text": call("Doubt", "text", "tea")}},
        {"expect": {"contains": ["Result: it was"]}, "answer": {"text": "Good."}},
    ]));
    let running = world.build().await;
    let run_id = running.begin(says("Do it.")).await;
    running
        .until(&run_id, |kind| matches!(kind, Kind::CallInDoubt(_)))
        .await;
    running.cancel(&run_id).await;
    let original = running.follow(&run_id, 0).await;
    assert_eq!(original.run.state(), RunState::InDoubt);
    let refused = running
        .fork_turn(fork(&original, original.answer(), None))
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::CallsInDoubt));
    let edit = Some(Edit::OutputJson(json!("it was").to_string()));
    let forked = running
        .forked(fork(&original, original.result(), edit))
        .await;
    assert_eq!(forked.text(), "Good.", "{}", forked.error_message());
    assert_eq!(world.registry.asked().len(), 1);

    let running = with_script(
        &world,
        running,
        &json!([
            {"answer": {"text": call("Wait", "text", "tea")}},
        ]),
    )
    .await;
    let run_id = running.begin(says("Wait.")).await;
    let request = ForkTurnRequest {
        run_id: run_id.clone(),
        sequence: 1,
        ..ForkTurnRequest::default()
    };
    let refused = running.fork_turn(request).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&refused),
        Some(ErrorReason::RunNotFinished)
    );
    running.cancel(&run_id).await;
}
