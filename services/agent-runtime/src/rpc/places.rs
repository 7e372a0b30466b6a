//! Which scene a request speaks of, and who speaks.

use grpc_kit::Failure;
use run_events::Runs;

use crate::{
    domain::{
        event::{Hop, Source, SourceKind},
        plan::Plan,
        scene::Instance,
    },
    scene_runner::{Board, Stage, not_running},
};

/// Finds scenes that run. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Places {
    board: Board,
    runs: Runs,
}

/// An agent of a scene that speaks.
pub(super) struct Speaker {
    /// The scene.
    pub(super) stage: Stage,
    /// The agent.
    pub(super) instance: Instance,
    /// The same as a publisher.
    pub(super) source: Source,
    /// How what it publishes came about.
    pub(super) chain: Vec<Hop>,
}

impl Places {
    /// Takes the scenes that run and all runs.
    pub fn new(board: Board, runs: Runs) -> Self {
        Self { board, runs }
    }

    /// Returns the scenes that run.
    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Returns a scene and a caller by name as a publisher.
    pub(super) fn caller(
        &self,
        run_id: &str,
        name: &str,
    ) -> Result<(Stage, Source, Vec<Hop>), Failure> {
        let stage = self.board.stage(run_id);
        let missing = || not_running("the run is no scene that runs; start one with StartScene");
        let source = Source {
            kind: SourceKind::Caller,
            id: if name.is_empty() { "caller" } else { name }.to_owned(),
            run_id: String::new(),
        };
        Ok((stage.ok_or_else(missing)?, source, Vec::new()))
    }

    /// Returns the agent of a conversation, with how its newest turn came about.
    pub(super) async fn instance(&self, conversation_id: &str) -> Result<Speaker, Failure> {
        let place = self.board.place(conversation_id).ok_or_else(|| {
            not_running("the conversation is not that of an agent in a scene that runs")
        })?;
        let runs = self.runs.by_conversation(conversation_id).await?;
        let newest = runs.into_iter().last();
        let (run_id, plan) = newest.map_or_else(Default::default, |(run, meta)| {
            (run.run_id, serde_json::from_value::<Plan>(meta.data).ok())
        });
        let turn = plan.and_then(|plan| plan.scene);
        Ok(Speaker {
            source: Source {
                kind: SourceKind::Instance,
                id: place.instance.id.clone(),
                run_id,
            },
            stage: place.stage,
            instance: place.instance,
            chain: turn.map(|turn| turn.chain).unwrap_or_default(),
        })
    }
}

/// Reports that a request names no scene.
pub(super) fn unnamed() -> Failure {
    let problem = "is missing; give run_id or conversation_id";
    Failure::invalid_fields().violation("scene", problem)
}
