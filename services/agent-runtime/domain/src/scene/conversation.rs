//! The names of the conversations of agents in scenes, and their parts.

use core_types::{RunId, RunOwner};

/// The prefix of the name of a copy of a world state.
const COPY: &str = "fork_";
/// The separator of the run of a scene and an agent in the name of its conversation.
const SEPARATOR: char = '.';

/// Returns the conversation of an agent in a scene.
pub fn conversation_of(run_id: &str, instance_id: &str) -> String {
    format!("{run_id}{SEPARATOR}{instance_id}")
}

/// Returns the conversation of a fork of a turn in a scene: it is in no scene, and has a copy of
/// the world state under a name of its own.
pub fn conversation_of_fork(key: &str, instance_id: &str) -> String {
    format!("{COPY}{key}{SEPARATOR}{instance_id}")
}

/// Returns the name of the world state's copy that a conversation has as a fork; none if it has
/// none.
pub fn copied_world(conversation_id: &str) -> Option<&str> {
    scene_of(conversation_id).filter(|world| world.starts_with(COPY))
}

/// Whether a name is kept for the conversations of scenes and of forks of their turns, and for their world states.
pub fn is_kept_for_scenes(conversation_id: &str) -> bool {
    let world = scene_of(conversation_id).unwrap_or(conversation_id);
    let is_scene = |run: RunId| run.owner() == RunOwner::Scene;
    world.starts_with(COPY) || world.parse().is_ok_and(is_scene)
}

/// Returns the run of the scene to which a conversation belongs by its name, also after the scene has ended.
pub fn scene_of(conversation_id: &str) -> Option<&str> {
    parts(conversation_id).map(|(run_id, _)| run_id)
}

/// Returns the run of the scene and the agent whose conversation has this name; none if it is of no scene.
pub fn parts(conversation_id: &str) -> Option<(&str, &str)> {
    conversation_id.split_once(SEPARATOR)
}
