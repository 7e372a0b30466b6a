//! Lists of runs.

use super::*;

#[tokio::test]
async fn runs_are_listed_by_their_conditions_the_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let mut ids = Vec::new();
    for (subject, conversation_id) in [("ada", "a"), ("grace", "b"), ("ada", "b")] {
        let start = StartRun {
            subject: subject.into(),
            conversation_id: conversation_id.into(),
            ..a_run("", "")
        };
        let recorder = new_run(&runs, start).await;
        ids.insert(0, recorder.run_id().to_string());
    }
    runs.cancel(&outermost(), &ids[2], "").await.unwrap();
    let services = grpc_kit::Services::new().add(runs.service());
    let client = RunServiceClient::new(grpc_kit::local(&services).outermost());
    let list = async |request: ListRunsRequest| {
        let response = client.clone().list_runs(request).await;
        let response = response.map(tonic::Response::into_inner);
        let ids = |runs: Vec<common::Run>| runs.into_iter().map(|run| run.run_id).collect();
        response.map(|page| (ids(page.runs), page.next_page_token))
    };
    let conditions = |change: fn(&mut ListRunsRequest)| {
        let mut request = ListRunsRequest::default();
        change(&mut request);
        request
    };
    for (request, expected) in [
        (conditions(|_| {}), vec![0, 1, 2]),
        (
            conditions(|request| request.subject = "ada".into()),
            vec![0, 2],
        ),
        (
            conditions(|request| request.conversation_id = "b".into()),
            vec![0, 1],
        ),
        (
            conditions(|request| request.set_state(RunState::Running)),
            vec![0, 1],
        ),
        (
            conditions(|request| request.set_state(RunState::Cancelled)),
            vec![2],
        ),
        (
            conditions(|request| request.set_state(RunState::Failed)),
            vec![],
        ),
    ] {
        let expected: Vec<String> = expected
            .into_iter()
            .map(|at: usize| ids[at].clone())
            .collect();
        let (found, next): (Vec<String>, String) = list(request.clone()).await.unwrap();
        assert_eq!((found, next), (expected, String::new()), "{request:?}");
    }
    let first_two = conditions(|request| request.page_size = 2);
    let (found, next): (Vec<String>, String) = list(first_two.clone()).await.unwrap();
    assert_eq!(found, ids[..2]);
    let rest = ListRunsRequest {
        page_token: next,
        ..first_two
    };
    let (found, next): (Vec<String>, String) = list(rest).await.unwrap();
    assert_eq!((found, next.as_str()), (vec![ids[2].clone()], ""));
}
