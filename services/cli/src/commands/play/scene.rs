//! Plays a scene: publishes its events, waits for the resulting turns, and ends it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use contracts::tavern::{
    agent::v1::{
        EndSceneRequest, GetWorldStateRequest, PublishEventRequest, StartSceneRequest,
        get_world_state_request, publish_event_request,
    },
    common::v1::{Run, RunEvent, RunState, run_event::Kind, watch_record::Record},
    run::v1::WatchRunRequest,
};
use serde_json::Value;

use super::{
    Player,
    check::{agent_differences, compare},
    transcript::{Act, Scene},
};
use crate::timeline::name;

/// The longest time that a scene may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A scene in play.
struct Stage<'a> {
    scene: &'a Scene,
    run_id: String,
    /// The acts that have not begun.
    acts: std::slice::Iter<'a, Act>,
    /// The turns that have ended, by agent.
    turns: BTreeMap<String, Vec<String>>,
    /// The turns that the present act waits for.
    awaited: Option<&'a BTreeMap<String, usize>>,
    /// Whether the end of the scene was requested.
    is_ending: bool,
    events: Vec<RunEvent>,
}

/// Plays a scene. Returns its events, its run, and every difference from the expectations.
pub(super) async fn play(
    player: &mut Player,
    scene: &Scene,
) -> anyhow::Result<(Vec<RunEvent>, Run, Vec<String>)> {
    let request = StartSceneRequest {
        scene_id: scene.scene_id.clone(),
        ..StartSceneRequest::default()
    };
    let started = player.scenes.start_scene(request).await?.into_inner();
    let run_id = started.run.context("the answer has no run")?.run_id;
    let mut stage = Stage {
        scene,
        run_id: run_id.clone(),
        acts: scene.acts.iter(),
        turns: BTreeMap::new(),
        awaited: None,
        is_ending: false,
        events: Vec::new(),
    };
    let mut differences = Vec::new();
    let followed = tokio::time::timeout(PATIENCE, stage.follow(player)).await;
    let run = followed.unwrap_or_else(|_| {
        differences.push(format!("the scene did not end within {PATIENCE:?}"));
        Ok(Run::default())
    })?;
    let events = std::mem::take(&mut stage.events);
    let expect = &scene.expect;
    let state = RunState::try_from(run.state).unwrap_or_default();
    let state = name(state.as_str_name(), "RUN_STATE_");
    compare(&mut differences, "state", &expect.state, &state);
    for (agent, turns) in &stage.turns {
        let calls = expect.calls.get(agent).map(Vec::as_slice);
        let said = expect.said.get(agent).map(String::as_str);
        differences.extend(agent_differences(agent, calls, said, &events, turns));
    }
    for (path, expected) in &expect.world {
        let request = GetWorldStateRequest {
            scene: Some(get_world_state_request::Scene::RunId(run_id.clone())),
            path: path.clone(),
            version: 0,
        };
        let found = player.states.get_world_state(request).await?.into_inner();
        let found: Value = serde_json::from_str(&found.value_json)?;
        compare(&mut differences, path, expected, &found);
    }
    Ok((events, run, differences))
}

impl Stage<'_> {
    /// Follows the scene to its end.
    async fn follow(&mut self, player: &mut Player) -> anyhow::Result<Run> {
        self.proceed(player).await?;
        let request = WatchRunRequest {
            run_id: self.run_id.clone(),
            after_sequence: 0,
        };
        let mut records = player.runs.watch_run(request).await?.into_inner();
        while let Some(answer) = records.message().await? {
            match contracts::watch::decode(answer.record)? {
                Some(Record::Event(event)) => {
                    match &event.kind {
                        Some(Kind::ApprovalRequested(asked)) => {
                            let decision = self.scene.approval.as_ref();
                            player.decide(&asked.approval_id, decision).await?;
                        }
                        Some(Kind::EventsHandled(handled)) => {
                            let turns = self.turns.entry(handled.instance_id.clone());
                            turns.or_default().push(handled.run_id.clone());
                            self.proceed(player).await?;
                        }
                        _ => {}
                    }
                    self.events.push(event);
                }
                Some(Record::Terminal(terminal)) => {
                    return terminal.run.context("the terminal record names no run");
                }
                Some(Record::Drain(_)) => bail!("the server drains"),
                _ => {}
            }
        }
        bail!("the stream ended before the scene did")
    }

    /// Begins the next act, or ends the scene, unless turns are still awaited.
    async fn proceed(&mut self, player: &mut Player) -> anyhow::Result<()> {
        let had = |agent: &String| self.turns.get(agent).map_or(0, Vec::len);
        let mut awaited = self.awaited.into_iter().flatten();
        if self.is_ending || awaited.any(|(agent, count)| had(agent) < *count) {
            return Ok(());
        }
        let Some(act) = self.acts.next() else {
            let request = EndSceneRequest {
                run_id: self.run_id.clone(),
                reason: "the story is over".to_owned(),
            };
            self.is_ending = true;
            player.scenes.end_scene(request).await?;
            return Ok(());
        };
        self.awaited = Some(&act.turns);
        let request = PublishEventRequest {
            scene: Some(publish_event_request::Scene::RunId(self.run_id.clone())),
            r#type: act.event.clone(),
            payload_json: act.payload.to_string(),
            source_id: act.from.clone(),
            ..PublishEventRequest::default()
        };
        player.scenes.publish_event(request).await?;
        Ok(())
    }
}
