//! The ends of a call, by the answers of its registry.

use std::{sync::Arc, time::Duration};

use contracts::tavern::common::v1::{CallStatus, ErrorReason};
use grpc_kit::{CallContext, Failure};
use run_client::{CallEnd, CallTerms, carry_out, policy::TRIES};
use tonic::{Code, Status};

use crate::{
    scripted::{Answer, Scripted},
    within_run,
};

/// The moment at which the owner's run is cancelled.
#[derive(Clone, Copy, PartialEq)]
enum Cancel {
    Never,
    Before,
    Meanwhile,
}

const TERMS: CallTerms = CallTerms {
    attempt: 1,
    retries: 0,
    left_before: false,
    timeout: None,
};

fn left(terms: CallTerms) -> CallTerms {
    CallTerms {
        left_before: true,
        ..terms
    }
}

/// Carries a call out inside a run. Returns its end as a word, the requested attempts, and whether
/// its end was requested.
async fn end(terms: CallTerms, answers: Vec<Answer>, cancel: Cancel) -> (String, Vec<u32>, bool) {
    let call = Arc::new(Scripted::new(terms, answers));
    let asked = Arc::clone(&call);
    let end = within_run(move |runs, recorder, control| async move {
        let run_id = recorder.run_id().to_string();
        let cancelling = async {
            if cancel == Cancel::Meanwhile {
                asked.begun().await;
            }
            if cancel != Cancel::Never {
                let runs = runs.clone();
                // The run ends after its call, so its end is not waited for here.
                tokio::spawn(async move {
                    runs.cancel(&CallContext::outermost(), &run_id, "enough")
                        .await
                });
                control.cancelled().await;
            }
        };
        let carrying = carry_out(&*asked, &recorder, &control);
        let ended = match cancel {
            Cancel::Before => {
                cancelling.await;
                carrying.await
            }
            _ => tokio::join!(cancelling, carrying).1,
        };
        match ended.unwrap() {
            CallEnd::Settled(result) => {
                let status = result.status().as_str_name();
                status.trim_start_matches("CALL_STATUS_").to_owned()
            }
            CallEnd::NotEnded => "not ended".to_owned(),
        }
    })
    .await;
    (end, call.asked(), call.was_cancelled())
}

#[tokio::test]
async fn a_call_ends_by_one_table_for_every_owner() {
    use Answer::{Deaf, Ended, Works};
    let status = |code: Code| Answer::Status(Status::new(code, "as asked"));
    let well = || Ended(CallStatus::Succeeded, 0);
    let busy_for = |millis| Failure::overloaded(Duration::from_millis(millis)).into_status();
    let draining = Failure::new(Code::Unavailable, ErrorReason::Draining, "about to end");
    let tries = || vec![1; TRIES as usize];
    let in_time = CallTerms {
        timeout: Some(Duration::from_millis(1)),
        ..TERMS
    };
    let (never, before, meanwhile) = (Cancel::Never, Cancel::Before, Cancel::Meanwhile);
    let gone = |times: usize| vec![status(Code::Unavailable); times];
    #[rustfmt::skip] // one line per end
    let table = [
        ("a result", TERMS, vec![well()], never, "SUCCEEDED", vec![1]),
        ("lost before dispatch", TERMS, [gone(1), vec![well()]].concat(), never, "SUCCEEDED", vec![1, 1]),
        ("refused before dispatch", TERMS, vec![status(Code::InvalidArgument)], never, "REJECTED", vec![1]),
        ("lost, then unknown", TERMS, [gone(1), vec![status(Code::NotFound)]].concat(), never, "IN_DOUBT", vec![1, 1]),
        ("left before, then refused", left(TERMS), vec![status(Code::InvalidArgument)], never, "IN_DOUBT", vec![1]),
        ("INTERNAL, then its result", TERMS, vec![status(Code::Internal), well()], never, "SUCCEEDED", vec![1, 1]),
        ("INTERNAL for five tries", TERMS, vec![status(Code::Internal)], never, "IN_DOUBT", tries()),
        ("DATA_LOSS for five tries", left(TERMS), vec![status(Code::DataLoss)], never, "IN_DOUBT", tries()),
        ("INTERNAL for five tries, gone between", TERMS, [vec![status(Code::Internal); 4], gone(2), vec![status(Code::Internal)]].concat(), never, "IN_DOUBT", vec![1; 7]),
        ("OVERLOADED with a time", TERMS, vec![Answer::Status(busy_for(20)), well()], never, "SUCCEEDED", vec![1, 1]),
        ("draining", TERMS, vec![Answer::Status(draining.into_status()), well()], never, "SUCCEEDED", vec![1, 1]),
        ("gone for more than five tries", TERMS, [gone(6), vec![well()]].concat(), never, "SUCCEEDED", vec![1; 7]),
        ("cancelled while it works", TERMS, vec![Works], meanwhile, "CANCELLED", vec![1]),
        ("cancelled, and it does not end", TERMS, vec![Deaf], meanwhile, "not ended", vec![1]),
        ("cancelled while the registry is busy", TERMS, vec![Answer::Status(busy_for(5_000))], meanwhile, "not ended", vec![1]),
        ("cancelled before it leaves", TERMS, vec![well()], before, "CANCELLED", vec![]),
        ("cancelled after a restart", left(TERMS), vec![well()], before, "not ended", vec![]),
        ("ended by its own time", in_time, vec![Ended(CallStatus::Failed, 0)], never, "FAILED", vec![1]),
        ("ended by a cancel after its time", in_time, vec![Works], never, "CANCELLED", vec![1]),
        ("not ended after its time", in_time, vec![Deaf], never, "IN_DOUBT", vec![1]),
    ];
    let cases = table.map(
        |(case, terms, answers, cancel, expected, asked)| async move {
            let has_left = cancel == before && terms.left_before;
            let works = matches!(answers.last(), Some(Works | Deaf));
            let ends = has_left || works || cancel == meanwhile;
            let found = end(terms, answers, cancel).await;
            assert_eq!(found, (expected.to_owned(), asked, ends), "{case}");
        },
    );
    futures::future::join_all(cases).await;
}

#[tokio::test]
async fn a_call_that_failed_without_effect_is_tried_again_as_often_as_its_owner_grants() {
    let failed = |next| Answer::Ended(CallStatus::Failed, next);
    let well = || Answer::Ended(CallStatus::Succeeded, 0);
    for (retries, answers, expected, asked) in [
        (0, vec![failed(2)], "FAILED", vec![1]),
        (1, vec![failed(2), well()], "SUCCEEDED", vec![1, 2]),
        (1, vec![failed(2), failed(3)], "FAILED", vec![1, 2]),
        (3, vec![failed(0)], "FAILED", vec![1]),
    ] {
        let terms = CallTerms { retries, ..TERMS };
        let found = end(terms, answers, Cancel::Never).await;
        assert_eq!(found, (expected.to_owned(), asked, false));
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_its_next_attempt_ends_as_it_failed() {
    let terms = CallTerms {
        retries: 1,
        ..TERMS
    };
    let answers = vec![
        Answer::Ended(CallStatus::Failed, 2),
        Answer::Ended(CallStatus::Succeeded, 0),
    ];
    let (ended, asked, _) = end(terms, answers, Cancel::Meanwhile).await;
    assert_eq!((ended.as_str(), asked), ("FAILED", vec![1]));
}
