//! A turn, followed from the beginning of its log.

use contracts::{
    lf::a2a::v1::Task,
    tavern::common::v1::{Run, watch_record::Record},
};
use futures::StreamExt;
use run_events::{Records, Runs};
use tonic::Status;

use super::{
    A2aRpc, TaskReader,
    progress::Progress,
    task::{self, View},
};

/// A turn and its progress.
pub(super) struct Followed {
    pub(super) run: Run,
    pub(super) progress: Progress,
    pub(super) records: Records,
}

impl Followed {
    /// Reads the log of a turn up to its present.
    pub(super) async fn open(runs: &Runs, run: Run, caller: TaskReader) -> Result<Self, Status> {
        // Few of the events are sent, so that none waits for a slow reader of earlier events.
        let context = caller.context.without_deadline();
        let records = runs.watch(context, &run.run_id, 0, caller.drain).await?;
        let mut followed = Self {
            run,
            progress: Progress::default(),
            records,
        };
        while followed.progress.sequence < followed.run.last_sequence && followed.step().await? {}
        Ok(followed)
    }

    /// Waits for the next event; returns whether there was one.
    pub(super) async fn step(&mut self) -> Result<bool, Status> {
        let gone = || Status::unavailable("the server is about to go away; repeat the request");
        let record = self.records.next().await.ok_or_else(gone)??;
        match contracts::watch::decode(record)? {
            Some(Record::Event(event)) => self.progress.note(&self.run, &event),
            Some(Record::Terminal(_)) => return Ok(false),
            Some(Record::Drain(_)) => return Err(gone()),
            Some(Record::Heartbeat(_) | Record::Gap(_)) | None => {}
        }
        Ok(true)
    }

    /// Returns the task as it is now.
    pub(super) fn task(&self, view: View) -> Task {
        task::write(&self.run, &self.progress, view)
    }
}

impl A2aRpc {
    /// Returns the task of a turn. Its log is read only for the parts that the run itself lacks.
    pub(super) async fn task(
        &self,
        run: Run,
        view: View,
        caller: TaskReader,
    ) -> Result<Task, Status> {
        if view.is_known_without_log(&run) {
            return Ok(task::write(&run, &Progress::of(&run), view));
        }
        Ok(Followed::open(&self.runs, run, caller).await?.task(view))
    }
}
