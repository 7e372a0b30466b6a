use core_types::Timestamp;
use serde_json::json;

use super::*;

const WHISPERWOOD: &str = include_str!("../../tests/fixtures/whisperwood.scene.json");

fn places(text: &str) -> Vec<String> {
    let problems = read(text).unwrap_err().problems;
    problems
        .into_iter()
        .map(|problem| problem.pointer)
        .collect()
}

#[test]
fn g101_a_comfytavern_scene_is_read_unmodified() {
    let scene = read(WHISPERWOOD).unwrap();
    assert_eq!(
        (scene.id.as_str(), scene.text.as_str()),
        ("whisperwood_edge", WHISPERWOOD)
    );
    let agents: Vec<(&str, &str)> = scene
        .instances
        .iter()
        .map(|instance| (instance.id.as_str(), instance.profile_id.as_str()))
        .collect();
    assert_eq!(
        agents,
        [("gm", "gm_storyteller"), ("elara", "elara_herbalist")]
    );
    assert_eq!(scene.instances[1].tavern.budgets.calls, Some(8));
    assert_eq!(scene.instances[1].tavern.queue_limit, Some(64));
    assert_eq!(
        scene.qualified("world.time.dusk"),
        "whisperwood.world.time.dusk"
    );
    assert_eq!(scene.ttl_seconds, 1_800);
    assert_eq!(scene.first_world["flags"]["player_warned"], false);
    let tasks: Vec<&str> = scene.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(tasks, ["dusk", "owls"]);
}

#[test]
fn g109_workflows_run_at_the_start_the_end_and_when_an_event_comes() {
    let scene = read(WHISPERWOOD).unwrap();
    let by_moment = |moment: &WorkflowTrigger| {
        let mut all = scene.workflows.iter();
        all.find(|workflow| workflow.moment == *moment)
            .map(|workflow| workflow.workflow_id.as_str())
    };
    assert_eq!(by_moment(&WorkflowTrigger::Start), Some("set_the_stage"));
    assert_eq!(by_moment(&WorkflowTrigger::End), Some("close_the_book"));
    for (event_type, expected) in [
        ("player.enters_wood", true),
        ("playerEntersWood.event", true),
        ("player.enters", false),
        ("scene.start", false),
    ] {
        let runs = scene
            .workflows
            .iter()
            .any(|workflow| workflow.is_for(event_type));
        assert_eq!(runs, expected, "{event_type}");
    }
}

#[test]
fn g108_what_has_no_effect_is_remarked() {
    let scene = read(WHISPERWOOD).unwrap();
    let found: Vec<&str> = scene
        .diagnostics
        .iter()
        .map(|one| one.path.as_str())
        .collect();
    assert_eq!(found, ["/custom_metadata/tavern/budgets",]);
}

#[test]
fn g408_a_timer_fires_once_after_the_start_or_again_and_again() {
    let scene = read(WHISPERWOOD).unwrap();
    let start = Timestamp::from_unix_nanos(1_000_000_000_000_000_000);
    let seconds = |time: Option<Timestamp>| time.map(|time| time.seconds_and_nanos().0);
    let [dusk, owls] = &scene.tasks[..] else {
        panic!("{:?}", scene.tasks);
    };
    assert_eq!(seconds(dusk.due(start, None)), Some(1_000_000_600));
    assert_eq!(seconds(dusk.due(start, Some(start))), None);
    // At the multiples of its interval.
    assert_eq!(seconds(owls.due(start, None)), Some(1_000_000_200));
    let fired = Timestamp::from_unix_nanos(1_000_000_950_000_000_000);
    assert_eq!(seconds(owls.due(start, Some(fired))), Some(1_000_001_100));
}

#[test]
fn g408_a_cron_timer_counts_by_the_wall_clock_of_its_zone() {
    let scene = |timer: Value| {
        json!({
            "id": "a", "agent_instances": [{"instance_id": "gm", "profile_id": "p"}],
            "scheduled_tasks": [timer],
        })
        .to_string()
    };
    let start = Timestamp::from_unix_nanos(0);
    for (zone, expected) in [
        (Value::Null, 21_600),
        (json!("Asia/Shanghai"), 79_200),
        (json!("Europe/Berlin"), 18_000),
    ] {
        let timer =
            json!({"id": "t", "event_type": "dawn", "cron": "0 6 * * *", "time_zone": zone});
        let read = read(&scene(timer)).unwrap();
        let due = read.tasks[0].due(start, None).unwrap();
        assert_eq!(due.seconds_and_nanos().0, expected, "{zone}");
    }
    for wrong in [
        json!({"id": "t", "event_type": "dawn", "cron": "0 6 * * *", "time_zone": "Nowhere/Land"}),
        json!({"id": "t", "event_type": "dawn", "after_seconds": 1, "time_zone": "Europe/Berlin"}),
    ] {
        assert!(places(&scene(wrong))[0].starts_with("/scheduled_tasks/0"));
    }
}

#[test]
fn everything_wrong_with_a_scene_is_named_with_its_place() {
    let wrong = json!({
        "id": "a b",
        "agent_instances": [
            {"instance_id": "gm", "profile_id": "p"},
            {"instance_id": "gm", "profile_id": "p"},
            {"instance_id": "x.y"},
        ],
        "initial_world_state": {"hour": "late"},
        "event_bus_config": {"default_event_ttl_seconds": 0},
        "scheduled_tasks": [{"id": "t", "event_type": "a..b", "after_seconds": 1, "cron": "* * * * *"}],
        "custom_metadata": {"tavern": {"world_schema": {"properties": {"hour": {"type": "integer"}}}}},
    });
    assert_eq!(
        places(&wrong.to_string()),
        [
            "/id",
            "/agent_instances/1/instance_id",
            "/agent_instances/2/instance_id",
            "/agent_instances/2/profile_id",
            "/event_bus_config/default_event_ttl_seconds",
            "/initial_world_state/hour",
            "/scheduled_tasks/0/event_type",
            "/scheduled_tasks/0",
        ]
    );
    assert_eq!(places("[]"), [""]);
    assert_eq!(places(r#"{"id": "a"}"#), ["/agent_instances"]);
}
