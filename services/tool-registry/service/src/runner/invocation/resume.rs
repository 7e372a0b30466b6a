//! Resuming invocations after a restart.

use std::collections::{BTreeMap, BTreeSet};

use contracts::tavern::common::v1::run_event::Kind;
use core_types::ConversationId;
use grpc_kit::Failure;
use run_events::{DamagedLog, OpenRun};

use super::{Invocation, Invocations};

impl Invocations {
    /// Continues with every run that was cut off. Returns how many there are.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn resume(&self) -> Result<usize, Failure> {
        let open = self.runs.open_runs().await?;
        let count = open.len();
        for run in open {
            let recorder = run.recorder.clone();
            match self.invocation_of(run) {
                Ok(invocation) => {
                    tracing::info!(run = %recorder.run_id(), "a run is resumed");
                    self.runs
                        .execute(recorder, |control| invocation.work(control));
                }
                Err(error) => self.runs.end_damaged(recorder, &error),
            }
        }
        Ok(count)
    }

    /// Rebuilds the invocation from the events of its run.
    fn invocation_of(&self, run: OpenRun) -> Result<Invocation, DamagedLog> {
        let kept = serde_json::from_value(run.meta.data).map_err(DamagedLog::Meta)?;
        let mut kept: BTreeMap<String, String> = kept;
        let mut kept = |key| kept.remove(key).unwrap_or_default();
        let run_id = run.recorder.run_id().to_string();
        let mut selected = Vec::new();
        let mut settled = BTreeMap::new();
        let mut dispatched = BTreeSet::new();
        for event in run.events {
            let own = event.run_id == run_id;
            match event.kind {
                _ if !own => {}
                Some(Kind::ToolSelected(selection)) => selected.extend(selection.call),
                Some(Kind::CallDispatched(call)) => {
                    dispatched.insert(call.index);
                }
                Some(Kind::CallSettled(call)) => {
                    settled.extend(call.result.map(|result| (result.index, result)));
                }
                _ => {}
            }
        }
        Ok(Invocation {
            malformed: kept("malformed"),
            left_out: kept("left_out"),
            profile_id: kept("profile"),
            calls: self.calls.clone(),
            recorder: run.recorder,
            selected: selected.into(),
            conversation: ConversationId::new(run.meta.conversation_id).ok(),
            settled,
            dispatched,
        })
    }
}
