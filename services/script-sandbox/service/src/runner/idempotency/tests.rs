use std::time::Duration;

use sandbox_engine::domain::{
    isolation::MemoryEnforcement,
    limits::Limits,
    outcome::{Captured, ScriptResult},
    usage::Usage,
    verdict::Verdict,
};

use super::*;

fn answers(answers: usize, bytes: usize) -> Arc<IdempotencyStore> {
    IdempotencyStore::bounded(answers, bytes)
}

/// An answer with so many bytes of output.
fn outcome(bytes: usize) -> Outcome {
    Outcome {
        verdict: Verdict::Cancelled {
            after: Duration::ZERO,
        },
        stdout: Captured {
            bytes: vec![b'x'; bytes],
            ..Captured::default()
        },
        stderr: Captured::default(),
        result: ScriptResult::None,
        usage: Usage::default(),
        isolation: None,
        missing: Vec::new(),
        enforcement: MemoryEnforcement::Sampled,
        limits: Limits::DEFAULT,
        collected: None,
    }
}

#[track_caller]
fn first(answers: &Arc<IdempotencyStore>, caller: &str, request_id: &str) -> IdempotencyGuard {
    match answers.look_up(caller, request_id, [0; 32]) {
        Lookup::New(claimed) => claimed,
        other => panic!("{caller} {request_id}: {other:?}"),
    }
}

fn is_known(answers: &Arc<IdempotencyStore>, caller: &str, request_id: &str) -> bool {
    // A caller that gets a new id releases it at once.
    !matches!(answers.look_up(caller, request_id, [0; 32]), Lookup::New(_))
}

#[test]
fn an_id_belongs_to_its_first_content() {
    let answers = answers(2, 1000);
    let claimed = first(&answers, "", "a");
    assert!(matches!(
        answers.look_up("", "a", [0; 32]),
        Lookup::InFlight(_)
    ));
    assert!(matches!(
        answers.look_up("", "a", [2; 32]),
        Lookup::Conflict
    ));
    drop(claimed);
    assert!(matches!(answers.look_up("", "a", [2; 32]), Lookup::New(_)));
}

#[test]
fn what_has_begun_and_was_lost_does_not_run_again() {
    let answers = answers(2, 1000);
    let mut claimed = first(&answers, "", "a");
    claimed.begin();
    drop(claimed);
    assert!(matches!(answers.look_up("", "a", [0; 32]), Lookup::Lost));
    assert!(matches!(
        answers.look_up("", "a", [2; 32]),
        Lookup::Conflict
    ));
    // It replaces one answer.
    for id in ["b", "c"] {
        first(&answers, "", id).publish(outcome(1));
    }
    assert!(!is_known(&answers, "", "a"));
}

#[test]
fn an_id_of_one_caller_is_nothing_to_another() {
    let answers = answers(4, 1000);
    first(&answers, "a", "once").publish(outcome(1));
    assert!(is_known(&answers, "a", "once"));
    // The caller's requests with the same and with other content do not meet the other caller's
    // answer.
    for digest in [[0; 32], [1; 32]] {
        let found = answers.look_up("b", "once", digest);
        assert!(matches!(found, Lookup::New(_)), "{found:?}");
    }
}

#[test]
fn the_oldest_is_forgotten_first() {
    let answers = answers(2, 1000);
    for id in ["a", "b", "c"] {
        first(&answers, "", id).publish(outcome(1));
    }
    let known = ["a", "b", "c"].map(|id| is_known(&answers, "", id));
    assert_eq!(known, [false, true, true]);
}

#[test]
fn what_runs_is_never_forgotten() {
    let answers = answers(2, 1000);
    let running = first(&answers, "", "running");
    for number in 0..100 {
        first(&answers, "", &number.to_string()).publish(outcome(900));
    }
    assert!(is_known(&answers, "", "running"));
    running.publish(outcome(1));
    assert!(is_known(&answers, "", "running"));
}

#[test]
fn answers_that_no_caller_waits_for_are_weighed_as_well() {
    let answers = answers(100, 1000);
    for number in 0..100 {
        // Only the guard exists: no receiver waits.
        first(&answers, "", &number.to_string()).publish(outcome(400));
    }
    let known = answers.lock();
    assert_eq!(
        (known.answered.len(), known.bytes, known.entries.len()),
        (2, 800, 2)
    );
}

#[test]
fn an_answer_larger_than_all_room_is_given_and_not_kept() {
    let answers = answers(3, 1000);
    let claimed = first(&answers, "", "huge");
    let pending = claimed.pending();
    claimed.publish(outcome(1001));
    assert!(pending.borrow().is_some());
    assert!(!is_known(&answers, "", "huge"));
}

#[test]
fn no_id_is_never_repeated() {
    let answers = answers(2, 1000);
    first(&answers, "", "").publish(outcome(1));
    assert!(!is_known(&answers, "", ""));
    assert!(answers.lock().entries.is_empty());
}

#[test]
fn those_who_wait_for_a_refused_request_can_try_again() {
    let answers = answers(2, 1000);
    let claimed = first(&answers, "", "a");
    let Lookup::InFlight(pending) = answers.look_up("", "a", [0; 32]) else {
        panic!("the id is taken");
    };
    drop(claimed);
    assert!(pending.has_changed().is_err());
    assert!(!is_known(&answers, "", "a"));
}
