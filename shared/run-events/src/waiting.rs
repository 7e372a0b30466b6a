//! Shows in the log of a run whether it is WAITING because of its calls.

use crate::control::RunControl;
use crate::recorder::Recorder;

/// Keeps the phase of a run that its log shows at the calls that wait for people, for ever.
pub(crate) async fn follow_call_waits(recorder: Recorder, control: RunControl) {
    let waits = recorder.call_waits();
    let mut changed = waits.changes();
    // A run that an earlier process left waiting continues; calls that still wait report it again.
    if !recorder.was_left_waiting() {
        // It fails when the sender is gone, and the recorder holds the sender.
        let _ = changed.changed().await;
    }
    control.watch_in_flight();
    loop {
        changed.borrow_and_update();
        let not_paused = control.admit_start().await;
        let phase = waits.phase(&control.in_flight());
        let noted = recorder.note_call_waits(not_paused.as_ref(), phase).await;
        drop(not_paused);
        if let Err(error) = noted {
            tracing::warn!(%error, "the log cannot show whether a run waits for people");
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = control.in_flight_changed() => {}
        }
    }
}
