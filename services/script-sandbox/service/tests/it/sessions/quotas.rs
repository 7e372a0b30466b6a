//! The quotas of sessions, and finding sessions again.

use std::collections::BTreeSet;

use contracts::tavern::sandbox::v1::CreateSessionResponse;
use futures::StreamExt as _;

use super::*;

fn of(caller: &str) -> CreateSessionRequest {
    CreateSessionRequest {
        caller_id: caller.to_owned(),
        ..wish("python3")
    }
}

async fn list(
    host: &Host,
    caller: Option<&str>,
    page_size: i32,
    page_token: &str,
) -> Result<ListSessionsResponse, Status> {
    let wish = ListSessionsRequest {
        page_size,
        page_token: page_token.to_owned(),
        caller_id: caller.map(str::to_owned),
    };
    let answer = host.sessions.clone().list_sessions(wish).await;
    answer.map(tonic::Response::into_inner)
}

#[test]
fn there_are_as_many_sessions_as_may_be_and_an_end_makes_room() {
    as_every_user(async || {
        let host = Host::with(sessions(SessionSettings {
            maximum: 3,
            remembered: 2,
            ..SessionSettings::default()
        }))
        .await;
        let create = |caller: &'static str| {
            let host = host.clone();
            async move { host.sessions.clone().create_session(of(caller)).await }
        };
        let first = host.session_with(of("a")).await;
        let second = host.session_with(of("a")).await;
        let third = host.session_with(of("b")).await;
        let refused = create("c").await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(grpc_kit::metadata(&refused)["limit"], "sessions");

        // An ended session no longer counts, whether it is remembered or not.
        host.cell(&first, "import os; os._exit(0)").await;
        let fourth = host.session_with(of("c")).await;
        host.delete(&second).await;
        let all = list(&host, None, 0, "").await.unwrap();
        let ids: Vec<&str> = all
            .sessions
            .iter()
            .map(|session| session.session_id.as_str())
            .collect();
        let expected = [&first, &third, &fourth].map(|session| session.session_id.as_str());
        assert_eq!(ids, expected);
        assert_eq!(
            list(&host, Some("b"), 0, "").await.unwrap().sessions.len(),
            1
        );

        let (mut token, mut paged) = (String::new(), Vec::new());
        loop {
            let page = list(&host, None, 1, &token).await.unwrap();
            assert_eq!(page.sessions.len(), 1);
            paged.extend(page.sessions);
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
            assert_eq!(
                list(&host, Some("a"), 1, &token).await.unwrap_err().code(),
                Code::InvalidArgument
            );
        }
        assert_eq!(paged, all.sessions);

        // Only so many ended sessions are remembered.
        for session in [&third, &fourth] {
            host.cell(session, "import os; os._exit(0)").await;
        }
        host.session_with(of("d")).await;
        assert_eq!(host.look(&first).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(
            host.look(&fourth).await.unwrap().state(),
            SessionState::Ended
        );
    });
}

#[test]
fn e102_a_request_id_makes_one_session() {
    as_every_user(async || {
        let host = Host::full().await;
        let asked = CreateSessionRequest {
            request_id: "once".to_owned(),
            ..of("a")
        };
        let calls = (0..10).map(|_| {
            let (host, asked) = (host.clone(), asked.clone());
            tokio::spawn(async move {
                host.sessions
                    .clone()
                    .create_session(asked)
                    .await
                    .unwrap()
                    .into_inner()
            })
        });
        let mut answers = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            answers.push(call.await.unwrap());
        }
        let id = |answer: &contracts::tavern::sandbox::v1::CreateSessionResponse| {
            answer.session.as_ref().unwrap().session_id.clone()
        };
        assert!(answers.iter().all(|answer| id(answer) == id(&answers[0])));
        assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1);
        let other = CreateSessionRequest {
            idle_time: seconds(5.0),
            ..asked
        };
        let refused = host
            .sessions
            .clone()
            .create_session(other)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
    });
}

fn keyed(caller: &str) -> CreateSessionRequest {
    CreateSessionRequest {
        session_key: "interpreter".to_owned(),
        evictable: true,
        ..of(caller)
    }
}

async fn create(host: &Host, wish: CreateSessionRequest) -> CreateSessionResponse {
    let answer = host.sessions.clone().create_session(wish).await;
    answer.unwrap().into_inner()
}

#[test]
fn a_key_finds_the_living_session_of_its_caller_and_runtime_behind_any_number_that_have_ended() {
    as_every_user(async || {
        let host = Host::full().await;
        let other = host.session_with(of("b")).await;
        let exits = futures::stream::iter(0..101).map(|_| async {
            let session = host.session_with(of("a")).await;
            follow(host.begin(&session, "import os; os._exit(0)").await).await
        });
        exits.buffer_unordered(4).collect::<Vec<_>>().await;
        let first = create(&host, keyed("a")).await;
        assert!(!first.found && first.predecessor_end.is_none());
        let session = first.session.unwrap();
        host.cell(&session, "x = 7").await;
        let calls = (0..4).map(|_| create(&host, keyed("a")));
        for answer in futures::future::join_all(calls).await {
            assert!(answer.found);
            assert_eq!(answer.session.unwrap().session_id, session.session_id);
        }
        let node = CreateSessionRequest {
            runtime: "node".to_owned(),
            ..keyed("a")
        };
        assert!(!create(&host, node).await.found);
        assert!(!create(&host, keyed("b")).await.found);
        assert_eq!(host.look(&other).await.unwrap().state(), SessionState::Idle);

        host.cell(&session, "import os; os._exit(3)").await;
        let next = create(&host, keyed("a")).await;
        let end = next.predecessor_end.unwrap();
        assert_eq!(end.reason(), SessionEndReason::Interpreter);
        assert!(!next.found && next.session.unwrap().session_id != session.session_id);
    });
}

#[test]
fn many_calls_with_one_key_make_one_session() {
    as_every_user(async || {
        let host = Host::full().await;
        let calls = (0..10).map(|_| create(&host, keyed("a")));
        let answers = futures::future::join_all(calls).await;
        let ids = answers
            .iter()
            .map(|it| &it.session.as_ref().unwrap().session_id);
        assert_eq!(ids.collect::<BTreeSet<_>>().len(), 1);
        assert_eq!(answers.iter().filter(|answer| !answer.found).count(), 1);
    });
}

#[test]
fn a_session_is_not_found_by_another_caller() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session_with(of("a")).await;
        for caller in ["b", ""] {
            let foreign = Session {
                caller_id: caller.to_owned(),
                ..session.clone()
            };
            let (looked, ran) = (
                host.look(&foreign).await.unwrap_err(),
                host.try_begin(cell(&foreign, "1")).await.unwrap_err(),
            );
            let mut sessions = host.sessions.clone();
            let (session_id, caller_id) = (foreign.session_id.clone(), caller.to_owned());
            let interrupted = sessions
                .interrupt_cell(InterruptCellRequest {
                    session_id: session_id.clone(),
                    caller_id: caller_id.clone(),
                    grace: None,
                })
                .await;
            let deleted = sessions
                .delete_session(DeleteSessionRequest {
                    session_id,
                    caller_id,
                })
                .await;
            for refused in [looked, ran, interrupted.unwrap_err(), deleted.unwrap_err()] {
                assert_eq!(refused.code(), Code::NotFound, "{caller:?}");
            }
        }
        assert_eq!(
            host.look(&session).await.unwrap().state(),
            SessionState::Idle
        );
    });
}

#[test]
fn a_caller_with_as_many_sessions_as_one_may_have_loses_its_own_and_never_one_of_others() {
    as_every_user(async || {
        let host = Host::with(sessions(SessionSettings {
            per_caller: 2,
            ..SessionSettings::default()
        }))
        .await;
        let evictable = |caller| CreateSessionRequest {
            evictable: true,
            ..of(caller)
        };
        let foreign = host.session_with(evictable("b")).await;
        let oldest = host.session_with(evictable("a")).await;
        let _second = host.session_with(of("a")).await;
        let _third = host.session_with(of("a")).await;
        let end = host.look(&oldest).await.unwrap().end.unwrap();
        assert_eq!(end.reason(), SessionEndReason::Evicted);
        let refused = host.sessions.clone().create_session(of("a")).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let metadata = grpc_kit::metadata(&refused);
        assert_eq!(metadata["limit"], "sessions_of_caller");
        assert_eq!(
            host.look(&foreign).await.unwrap().state(),
            SessionState::Idle
        );
    });
}

#[test]
fn a_caller_that_goes_before_its_session_is_ready_leaves_none() {
    as_every_user(async || {
        let host = Host::full().await;
        let call = tokio::spawn({
            let host = host.clone();
            async move { host.session("python3").await }
        });
        eventually("the session is begun", || {
            !own_launchers().is_empty() || call.is_finished()
        })
        .await;
        if call.is_finished() {
            host.delete(&call.await.unwrap()).await;
        } else {
            call.abort();
        }
        nothing_is_left(&host).await;
    });
}

#[test]
fn a_service_that_starts_again_knows_no_session() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        nothing_is_left(&host).await;
        let again = Host::full().await;
        let refused = again.look(&session).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        assert_eq!(
            grpc_kit::reason(&refused),
            Some(contracts::tavern::common::v1::ErrorReason::SessionNotFound)
        );
    });
}

#[test]
fn the_evictable_session_that_waited_longest_makes_room_and_no_other() {
    as_every_user(async || {
        let host = Host::with(sessions(SessionSettings {
            maximum: 3,
            remembered: 3,
            ..SessionSettings::default()
        }))
        .await;
        let evictable = |caller| CreateSessionRequest {
            evictable: true,
            ..of(caller)
        };
        let kept = host.session_with(of("a")).await;
        let used = host.session_with(evictable("a")).await;
        let idle = host.session_with(evictable("b")).await;
        host.cell(&used, "x = 1").await;
        let next = host.session_with(of("c")).await;
        let ended = host.look(&idle).await.unwrap();
        let end = ended.end.unwrap();
        assert_eq!(end.reason(), SessionEndReason::Evicted);
        assert!(end.message.contains("needed its place"), "{}", end.message);
        for session in [&kept, &used, &next] {
            assert_eq!(
                host.look(session).await.unwrap().state(),
                SessionState::Idle
            );
        }
        // A session that runs a cell stays, and so do sessions that are not evictable.
        let _running = host.begin(&used, "import time\ntime.sleep(600)").await;
        let refused = host.sessions.clone().create_session(of("d")).await;
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    });
}
