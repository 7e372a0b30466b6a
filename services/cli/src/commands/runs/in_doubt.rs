//! The effects of a run that are in doubt.

use contracts::in_doubt::CallsInDoubt;
use contracts::tavern::common::v1::{Run, WaitReason, watch_record::Record};
use contracts::tavern::run::v1::WatchRunRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use grpc_kit::Outbound;

use super::super::refusal;
use crate::timeline::decide_by;

/// Returns the undecided calls for which a run waits, from its events up to its last.
pub(super) async fn calls(
    runs: &mut RunServiceClient<Outbound>,
    run: &Run,
) -> anyhow::Result<CallsInDoubt> {
    let mut calls = CallsInDoubt::default();
    if run.wait_reason() != WaitReason::InDoubt {
        return Ok(calls);
    }
    let request = WatchRunRequest {
        run_id: run.run_id.clone(),
        after_sequence: 0,
    };
    let stream = runs.watch_run(request).await;
    let mut stream = stream.map_err(|status| refusal(&status))?.into_inner();
    while let Some(response) = stream.message().await.map_err(|status| refusal(&status))? {
        match contracts::watch::decode(response.record)? {
            Some(Record::Event(event)) => {
                calls.note(&event);
                if event.sequence >= run.last_sequence {
                    break;
                }
            }
            Some(Record::Terminal(_)) => break,
            _ => {}
        }
    }
    Ok(calls)
}

/// Returns a field for each effect in doubt, with the command that decides about it: the effects
/// for which the run waits, or with which it ended.
pub(super) fn fields(run: &Run, waits_on: &CallsInDoubt) -> Vec<(&'static str, String)> {
    let waited = waits_on.iter().map(|call| {
        let error = call.error.clone().unwrap_or_default();
        let (effect_id, tool) = (&call.effect_id, &call.tool_id);
        let command = decide_by(effect_id, false);
        format!(
            "{effect_id}\n{tool}: {} ({})\n{command}",
            error.message, error.code
        )
    });
    let outcome = run.outcome.iter();
    let left = outcome.flat_map(|outcome| &outcome.unsettled_effect_ids);
    let left = left.map(|effect_id| format!("{effect_id}\n{}", decide_by(effect_id, true)));
    waited.chain(left).map(|text| ("in doubt", text)).collect()
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{
        CallError, CallInDoubt, RunEvent, RunOutcome, run_event::Kind,
    };

    use super::*;

    #[test]
    fn each_effect_in_doubt_is_a_field_with_the_command_that_decides() {
        let mut waits_on = CallsInDoubt::default();
        waits_on.note(&RunEvent {
            kind: Some(Kind::CallInDoubt(CallInDoubt {
                effect_id: "e1".to_owned(),
                tool_id: "charge".to_owned(),
                attempt: 1,
                error: Some(CallError {
                    code: "backend_lost".to_owned(),
                    message: "the connection broke".to_owned(),
                    ..CallError::default()
                }),
            })),
            ..RunEvent::default()
        });
        let ended = Run {
            outcome: Some(RunOutcome {
                unsettled_effect_ids: vec!["e1".to_owned(), "e2".to_owned()],
                ..RunOutcome::default()
            }),
            ..Run::default()
        };
        let waited = "e1\ncharge: the connection broke (backend_lost)\n\
                      tavern calls resolve e1 --took-effect (or --did-not, --repeat)";
        let left = ["e1", "e2"]
            .map(|id| format!("{id}\ntavern calls resolve {id} --took-effect (or --did-not)"));
        for (run, waits_on, expected) in [
            (Run::default(), CallsInDoubt::default(), vec![]),
            (Run::default(), waits_on, vec![waited.to_owned()]),
            (ended, CallsInDoubt::default(), left.to_vec()),
        ] {
            let shown = fields(&run, &waits_on).into_iter();
            let shown: Vec<String> = shown.map(|(_, text)| text).collect();
            assert_eq!(shown, expected);
        }
    }
}
