//! Transcripts: the texts of models and users, and the expected results.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::super::documents;

/// A transcript, as a file under `deploy/examples` holds it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transcript {
    /// Its subject, for the heading.
    pub(crate) title: String,
    /// The section of the design from which it comes; may be left out.
    #[serde(default)]
    pub(crate) source: String,
    /// Its steps, which share one conversation.
    #[serde(default)]
    pub(crate) steps: Vec<Step>,
    /// A scene that is played; in place of steps.
    #[serde(default)]
    pub(crate) scene: Option<Scene>,
}

/// A scene that is played.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scene {
    /// The scene.
    pub(crate) scene_id: String,
    /// Its events, one after the other.
    pub(crate) acts: Vec<Act>,
    /// The decision of a person about each call that waits for one.
    #[serde(default)]
    pub(crate) approval: Option<Approval>,
    /// The expected result.
    pub(crate) expect: SceneExpectation,
}

/// An event, and the turns to wait for before the next one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Act {
    /// The type of the event.
    pub(crate) event: String,
    /// The publisher.
    pub(crate) from: String,
    /// Its data.
    pub(crate) payload: Value,
    /// The number of turns that each agent must have had since the start.
    pub(crate) turns: BTreeMap<String, usize>,
}

/// The expected result of a scene.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SceneExpectation {
    /// The state in which its run ends.
    pub(crate) state: String,
    /// The calls of each agent, in order.
    #[serde(default)]
    pub(crate) calls: BTreeMap<String, Vec<ExpectedCall>>,
    /// A text that each agent must have written, among others.
    #[serde(default)]
    pub(crate) said: BTreeMap<String, String>,
    /// Values of the world state at the end, by path.
    #[serde(default)]
    pub(crate) world: BTreeMap<String, Value>,
}

/// One text and its expected result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// The text of a model; either this or `user_message`.
    #[serde(default)]
    pub(crate) model_text: Option<Lines>,
    /// The message of a user to the agent.
    #[serde(default)]
    pub(crate) user_message: Option<Lines>,
    /// The agent; empty for none.
    #[serde(default)]
    pub(crate) agent: String,
    /// Files that a person puts into the conversation first, by path.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Lines>,
    /// The only tools that the text may call; empty for all. Ignored with an agent.
    #[serde(default)]
    pub(crate) tools: Vec<String>,
    /// The decision of a person about each call that waits for one.
    #[serde(default)]
    pub(crate) approval: Option<Approval>,
    /// The answer of a person to each question.
    #[serde(default)]
    pub(crate) answer: Option<Value>,
    /// The expected result.
    pub(crate) expect: Expectation,
}

/// The decision of a person.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approval {
    /// Whether the call may leave.
    pub(crate) approve: bool,
    /// The reason.
    #[serde(default)]
    pub(crate) reason: String,
    /// Replacement arguments.
    #[serde(default)]
    pub(crate) arguments: Option<Value>,
}

/// A text: one string, or its lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Lines {
    /// One string.
    One(String),
    /// Lines, which are joined by line breaks.
    Many(Vec<String>),
}

impl Lines {
    pub(crate) fn text(&self) -> String {
        match self {
            Lines::One(text) => text.clone(),
            Lines::Many(lines) => lines.join("\n"),
        }
    }
}

/// The expected result of a step. Missing fields are not checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    /// The state in which the run ends: `succeeded`, `failed`, `cancelled` or `unknown`.
    pub(crate) state: String,
    /// All text to the reader, in order, as one text.
    #[serde(default)]
    pub(crate) text: Option<Lines>,
    /// Every call that ended, in order, except calls of child runs.
    #[serde(default)]
    pub(crate) calls: Option<Vec<ExpectedCall>>,
    /// Every observation, in order.
    #[serde(default)]
    pub(crate) observations: Option<Vec<Lines>>,
    /// The result of the run.
    #[serde(default)]
    pub(crate) result: Option<Value>,
    /// Nodes of workflows that must have succeeded, in any order.
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    /// The text of files of the conversation at the end, by path.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, Lines>,
}

/// A call that must have been made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedCall {
    /// The tool.
    pub(crate) tool: String,
    /// Its arguments as they left.
    #[serde(default)]
    pub(crate) arguments: Option<Value>,
    /// The status at its end: `succeeded`, `failed`, `rejected`, `skipped`, `cancelled` or
    /// `unknown`.
    pub(crate) status: String,
    /// Its output.
    #[serde(default)]
    pub(crate) output: Option<Value>,
    /// The code of its error.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// Reads every transcript of a directory, by name of file.
pub(crate) fn read_all(directory: &Path) -> anyhow::Result<Vec<(PathBuf, Transcript)>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("the directory {} cannot be read", directory.display()))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    ensure!(
        !files.is_empty(),
        "the directory {} holds no transcript",
        directory.display()
    );
    files
        .into_iter()
        .map(|path| Ok((path.clone(), read(&path)?)))
        .collect()
}

fn read(path: &Path) -> anyhow::Result<Transcript> {
    let place = || format!("the transcript {} cannot be read", path.display());
    let text = documents::read(path)?;
    let transcript: Transcript = serde_json::from_str(&text).with_context(place)?;
    ensure!(
        transcript.steps.is_empty() == transcript.scene.is_some(),
        "{}: it needs either steps or a scene",
        path.display()
    );
    for (number, step) in transcript.steps.iter().enumerate() {
        ensure!(
            step.model_text.is_some() != step.user_message.is_some(),
            "{}: step {number} needs either model_text or user_message",
            path.display()
        );
        ensure!(
            step.model_text.is_some() || !step.agent.is_empty(),
            "{}: step {number} needs the agent that answers the user_message",
            path.display()
        );
    }
    Ok(transcript)
}
