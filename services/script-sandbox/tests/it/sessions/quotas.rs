//! How many sessions there may be, and finding them again.

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

        // A session that has ended counts no more, whether it is remembered or not.
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

        // Only so many that have ended are remembered.
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
        // One that runs a cell keeps its place, and so do those that are not evictable.
        let _running = host.begin(&used, "import time\ntime.sleep(600)").await;
        let refused = host.sessions.clone().create_session(of("d")).await;
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    });
}
