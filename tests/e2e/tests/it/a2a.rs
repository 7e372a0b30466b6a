//! Agents for clients of A2A, which share only the protocol with Tavern (rules G902 to G905, G804).

mod client;

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use contracts::lf::a2a::v1::{
    GetExtendedAgentCardRequest, ListTasksRequest, Message, Role, SendMessageConfiguration,
    SendMessageRequest, TaskPushNotificationConfig, TaskState, part::Content,
};
use contracts::tavern::registry::v1::{
    ListApprovalsRequest, approval_service_client::ApprovalServiceClient,
};
use grpc_kit::ClientSettings;
use prost_types::value::Kind;
use serde_json::json;
use testkit::{Stack, eventually, python, python_program};
use tokio::task::JoinSet;
use tonic::Code;

use crate::edges;
pub(crate) use client::prepare;
use client::{Client, Seen, a2a, post, refused, state, text, text_of, v1};

#[tokio::test(flavor = "multi_thread")]
async fn g902_a_message_is_one_task_in_five_processes_over_grpc_and_json() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder()
        .deploy(deploy.path())
        .separate()
        .start()
        .await?;
    let clock = Client::of(&stack, "clock");
    let task = clock.send(clock.message("hello", "")).await?;
    ensure!(state(&task) == TaskState::Completed, "{task:?}");
    let answer = "It is late, and the inn is closed.";
    ensure!(text_of(&task.artifacts[0].parts) == answer, "{task:?}");
    ensure!(text_of(&task.history[0].parts) == "hello" && task.history[0].message_id == "hello");
    // The same message again, and the task by its id.
    ensure!(clock.send(clock.message("hello", "")).await? == task);
    ensure!(clock.get(&task.id).await? == task);
    let others = Client::of(&stack, "sloth").get(&task.id).await;
    ensure!(refused(others)? == a2a(Code::NotFound, "TASK_NOT_FOUND"));
    // The same in JSON, in the conversation of the first.
    let message = json!({
        "messageId": "m2", "contextId": task.context_id, "role": "ROLE_USER",
        "parts": [{"text": "Still?"}, {"data": {"room": 9_007_199_254_740_991_i64, "in": [true]}}],
    });
    let body = json!({"tenant": "clock", "message": message});
    let (line, answer) = post(&stack, "SendMessage", &body).await?;
    ensure!(line == "HTTP/1.1 200 OK", "{line} {answer}");
    let task = &answer["task"];
    ensure!(
        task["status"]["state"] == "TASK_STATE_COMPLETED",
        "{answer}"
    );
    ensure!(
        task["artifacts"][0]["parts"][0]["text"] == "Again?",
        "{answer}"
    );
    let said = &task["history"][0]["parts"][0]["text"];
    let data = "Still?\n\n{\"in\":[true],\"room\":9007199254740991}";
    ensure!(said == data, "{said}");
    // A client that names no version speaks 0.3.
    let request = clock.message("hello", "");
    let old = clock.a2a.clone().send_message(request).await;
    let old = refused(old.map_err(anyhow::Error::from))?;
    ensure!(
        old == a2a(Code::Unimplemented, "VERSION_NOT_SUPPORTED"),
        "{old:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g903_a_question_requires_input_that_a_message_for_the_task_gives() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let herbalist = Client::of(&stack, "herbalist");
    let task = herbalist.send(herbalist.message("cough", "")).await?;
    ensure!(state(&task) == TaskState::InputRequired, "{task:?}");
    let status = task.status.clone().unwrap_or_default();
    let asked = status.message.context("the question")?;
    ensure!(asked.role() == Role::Agent && text_of(&asked.parts) == "Which herb?");
    let Some(Content::Data(data)) = &asked.parts[1].content else {
        bail!("{asked:?} has no choices");
    };
    let Some(Kind::StructValue(known)) = &data.kind else {
        bail!("{data:?}");
    };
    // Its options bind the answer, so there is no schema of others.
    ensure!(known.fields.contains_key("choices") && !known.fields.contains_key("schema"));
    let mut wrong = herbalist.message("number", &task.id);
    let number = prost_types::Value {
        kind: Some(Kind::NumberValue(7.0)),
    };
    wrong.message.get_or_insert_default().parts[0].content = Some(Content::Data(number));
    let wrong = refused(herbalist.send(wrong).await)?;
    ensure!(
        wrong == a2a(Code::InvalidArgument, "message.parts"),
        "{wrong:?}"
    );
    // The question survives a restart, and an answer that is repeated counts once.
    stack.kill()?;
    stack.restart().await?;
    let herbalist = Client::of(&stack, "herbalist");
    let (snapshot, seen) = {
        let request = herbalist.message("sage", &task.id);
        let mut a2a = herbalist.a2a.clone();
        Seen::all(a2a.send_streaming_message(v1(request)?).await?.into_inner()).await?
    };
    ensure!(seen.answer == "I fetch it." && seen.is_complete, "{seen:?}");
    ensure!(state(&snapshot) == TaskState::Working, "{snapshot:?}");
    ensure!(seen.states == [TaskState::Completed], "{seen:?}");
    let again = herbalist.send(herbalist.message("sage", &task.id)).await?;
    let said = again.history.iter().map(|said| text_of(&said.parts));
    ensure!(
        said.collect::<Vec<_>>() == ["cough", "Which herb?", "sage"],
        "{again:?}"
    );
    let late = refused(
        herbalist
            .send(herbalist.message("moonmoss", &task.id))
            .await,
    )?;
    ensure!(
        late == a2a(Code::Unimplemented, "UNSUPPORTED_OPERATION"),
        "{late:?}"
    );
    let cancelled = refused(herbalist.cancel(&task.id).await)?;
    ensure!(cancelled == a2a(Code::FailedPrecondition, "TASK_NOT_CANCELABLE"));
    let followed = refused(herbalist.subscribe(&task.id).await)?;
    ensure!(followed == a2a(Code::Unimplemented, "UNSUPPORTED_OPERATION"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g902_the_pieces_of_a_stream_are_the_answer_of_the_last_round() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let clock = Client::of(&stack, "clock");
    let request = clock.message("hello", "");
    let stream = clock
        .a2a
        .clone()
        .send_streaming_message(v1(request)?)
        .await?;
    let (task, seen) = Seen::all(stream.into_inner()).await?;
    ensure!(state(&task) == TaskState::Working, "{task:?}");
    ensure!(
        seen.answer == "It is late, and the inn is closed.",
        "{seen:?}"
    );
    ensure!(seen.is_complete && seen.pieces > 2, "{seen:?}");
    ensure!(seen.states == [TaskState::Completed], "{seen:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g902_a_task_that_is_worked_on_is_steered_followed_and_cancelled() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let sloth = Client::of(&stack, "sloth");
    let task = sloth.leave(sloth.message("hello", "")).await?;
    ensure!(state(&task) == TaskState::Working, "{task:?}");
    for _ in 0..2 {
        let steered = sloth.leave(sloth.message("hurry", &task.id)).await?;
        ensure!(steered.id == task.id);
    }
    let said = eventually("the message", || async {
        let history = sloth.get(&task.id).await.ok()?.history;
        (history.len() > 1).then_some(history)
    });
    let said = said.await?;
    let said: Vec<String> = said.iter().map(|said| text_of(&said.parts)).collect();
    ensure!(said == ["hello", "hurry"], "{said:?}");
    // One more turn of the conversation waits for this one.
    let mut next = sloth.message("next", "");
    next.message.get_or_insert_default().context_id = task.context_id.clone();
    let next = sloth.leave(next).await?;
    ensure!(state(&next) == TaskState::Submitted, "{next:?}");
    let mut elsewhere = sloth.message("elsewhere", &task.id);
    elsewhere.message.get_or_insert_default().context_id = "other".to_owned();
    let elsewhere = refused(sloth.leave(elsewhere).await)?;
    ensure!(elsewhere == a2a(Code::InvalidArgument, "message.context_id"));
    let following = tokio::spawn(Seen::all(sloth.subscribe(&task.id).await?));
    let cancelled = sloth.cancel(&task.id).await?;
    ensure!(state(&cancelled) == TaskState::Canceled, "{cancelled:?}");
    let (snapshot, seen) = following.await??;
    let sequence = snapshot
        .metadata
        .unwrap_or_default()
        .fields
        .remove("sequence");
    let Some(Kind::NumberValue(sequence)) = sequence.and_then(|value| value.kind) else {
        bail!("the snapshot has no sequence");
    };
    ensure!(
        sequence > 1.0 && seen.states == [TaskState::Canceled],
        "{seen:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_wait_leave_room_for_others() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let sloth = Arc::new(Client::of(&stack, "sloth"));
    let mut waiting = JoinSet::new();
    for _ in 0..300 {
        let sloth = Arc::clone(&sloth);
        waiting.spawn(async move { sloth.send(sloth.message("hello", "")).await });
    }
    // All wait for one task; clients without room are refused at once.
    for _ in 0..44 {
        let answer = waiting.join_next().await.context("an answer")??;
        let refusal = refused(answer)?;
        ensure!(
            refusal == a2a(Code::ResourceExhausted, "OVERLOADED"),
            "{refusal:?}"
        );
    }
    let task = sloth.leave(sloth.message("hello", "")).await?;
    sloth.cancel(&task.id).await?;
    while let Some(answer) = waiting.join_next().await {
        ensure!(state(&answer??) == TaskState::Canceled);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g902_tasks_are_listed_by_pages_and_by_state() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let clock = Client::of(&stack, "clock");
    let mut sent = Vec::new();
    for id in ["one", "two", "three"] {
        sent.push(clock.send(clock.message(id, "")).await?.id);
    }
    let herbalist = Client::of(&stack, "herbalist");
    herbalist.send(herbalist.message("cough", "")).await?;
    sent.reverse();
    let mut listed = Vec::new();
    let mut request = ListTasksRequest {
        tenant: "clock".to_owned(),
        page_size: Some(2),
        ..ListTasksRequest::default()
    };
    loop {
        let page = clock
            .a2a
            .clone()
            .list_tasks(v1(request.clone())?)
            .await?
            .into_inner();
        ensure!(
            page.tasks
                .iter()
                .all(|task| task.artifacts.is_empty() && task.history.is_empty())
        );
        listed.extend(page.tasks.into_iter().map(|task| task.id));
        ensure!(
            page.total_size == 3 && page.page_size == 2,
            "{}",
            page.total_size
        );
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    ensure!(listed == sent, "{listed:?}");
    request.tenant = "herbalist".to_owned();
    let foreign = clock.a2a.clone().list_tasks(v1(request)?).await;
    let foreign = refused(foreign.map_err(anyhow::Error::from))?;
    ensure!(
        foreign == a2a(Code::InvalidArgument, "page_token"),
        "{foreign:?}"
    );
    for (status, tenant, count) in [
        (TaskState::Completed, "clock", 3),
        (TaskState::Failed, "clock", 0),
        (TaskState::InputRequired, "herbalist", 1),
        (TaskState::Working, "herbalist", 0),
    ] {
        let request = ListTasksRequest {
            tenant: tenant.to_owned(),
            status: status.into(),
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        let page = clock
            .a2a
            .clone()
            .list_tasks(v1(request)?)
            .await?
            .into_inner();
        ensure!(page.tasks.len() == count, "{status:?}: {page:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g902_the_card_of_an_agent_is_its_profile() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let url = "https://agents.example.com";
    let stack = Stack::builder()
        .deploy(deploy.path())
        .env("TAVERN_AGENT__A2A_URL", url)
        .start()
        .await?;
    let clock = Client::of(&stack, "clock");
    let request = GetExtendedAgentCardRequest {
        tenant: "clock".to_owned(),
    };
    let card = clock
        .a2a
        .clone()
        .get_extended_agent_card(v1(request)?)
        .await?
        .into_inner();
    ensure!(
        card.name == "The clock" && card.version == "2.1",
        "{card:?}"
    );
    let skills: Vec<&str> = card.skills.iter().map(|skill| skill.id.as_str()).collect();
    ensure!(skills == ["system:get_current_time"], "{skills:?}");
    ensure!(!card.skills[0].description.is_empty() && card.skills[0].tags == ["tool"]);
    // No key exists, so none is needed.
    ensure!(card.security_schemes.is_empty() && card.security_requirements.is_empty());
    let interfaces = card.supported_interfaces.iter();
    let interfaces: Vec<_> = interfaces
        .map(|one| {
            (
                one.protocol_binding.as_str(),
                one.url.as_str(),
                one.tenant.as_str(),
            )
        })
        .collect();
    let http = format!("{url}/a2a");
    let expected = [
        ("JSONRPC", http.as_str(), "clock"),
        ("HTTP+JSON", http.as_str(), "clock"),
        ("GRPC", url, "clock"),
    ];
    ensure!(interfaces == expected, "{interfaces:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g902_a_client_with_a_key_uses_agents_of_five_processes_over_grpc_and_tls()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).proven();
    let stack = stack.encrypted().with_keys().start().await?;
    let stranger = Client::with(&stack, None, "clock");
    let stranger = refused(stranger.send(stranger.message("hello", "")).await)?;
    let unknown = (Code::Unauthenticated, "UNAUTHENTICATED".to_owned());
    ensure!(stranger == unknown, "{stranger:?}");
    let clock = Client::of(&stack, "clock");
    let request = clock.message("hello", "");
    let mut a2a = clock.a2a.clone();
    let stream = a2a.send_streaming_message(v1(request)?).await?;
    let (task, seen) = Seen::all(stream.into_inner()).await?;
    ensure!(seen.states == [TaskState::Completed], "{seen:?}");
    ensure!(state(&clock.get(&task.id).await?) == TaskState::Completed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g902_the_official_client_finds_and_uses_agents_over_plain_http() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    edges::run(official_client(&stack.address())?)
        .await
        .map(drop)
}

/// Returns the official client of the agents of [`prepare`], at `address`.
pub(crate) fn official_client(address: &str) -> anyhow::Result<Command> {
    let mut client = Command::new(python()?);
    client.arg(python_program("a2a_clients.py")).arg(address);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn g804_no_message_of_a_client_decides_an_approval() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let scribe = Client::of(&stack, "scribe");
    let task = scribe.leave(scribe.message("write", "")).await?;
    let mut registry = ApprovalServiceClient::new(
        grpc_kit::remote(&ClientSettings::to(stack.address()))?.outermost(),
    );
    let request = ListApprovalsRequest {
        run_id: task.id.clone(),
        ..ListApprovalsRequest::default()
    };
    let pending = eventually("an approval to be asked for", || {
        let (mut registry, request) = (registry.clone(), request.clone());
        async move {
            registry
                .list_approvals(request)
                .await
                .ok()?
                .into_inner()
                .approvals
                .pop()
        }
    })
    .await?;
    let answered = scribe.leave(scribe.message("approve", &task.id)).await?;
    ensure!(state(&answered) == TaskState::Working, "{answered:?}");
    let listed = registry
        .list_approvals(request)
        .await?
        .into_inner()
        .approvals;
    ensure!(listed == [pending], "{listed:?}");
    Ok(())
}

/// A fault of a message, and its refusal.
type Case = (
    fn(&mut SendMessageRequest, &mut Message),
    Code,
    &'static str,
);

const CASES: [Case; 14] = [
    (
        |_, message| message.parts[0].content = Some(Content::Raw(vec![1])),
        Code::InvalidArgument,
        "CONTENT_TYPE_NOT_SUPPORTED",
    ),
    (
        |_, message| message.parts[0].content = Some(Content::Url("http://a".to_owned())),
        Code::InvalidArgument,
        "CONTENT_TYPE_NOT_SUPPORTED",
    ),
    (
        |_, message| {
            let kind = Some(Kind::NumberValue(f64::NAN));
            message.parts[0].content = Some(Content::Data(prost_types::Value { kind }));
        },
        Code::InvalidArgument,
        "message.parts[0]",
    ),
    (
        |_, message| message.parts[0].content = None,
        Code::InvalidArgument,
        "message.parts[0]",
    ),
    (
        |_, message| message.parts.clear(),
        Code::InvalidArgument,
        "message.parts",
    ),
    (
        |_, message| message.parts = vec![text(""); 101],
        Code::InvalidArgument,
        "message.parts",
    ),
    (
        |_, message| message.parts = vec![text(" ")],
        Code::InvalidArgument,
        "message.parts",
    ),
    (
        |_, message| message.parts = vec![text(&"x".repeat(600_000))],
        Code::InvalidArgument,
        "message.parts",
    ),
    (
        |_, message| message.message_id.clear(),
        Code::InvalidArgument,
        "message.message_id",
    ),
    (
        |_, message| message.set_role(Role::Agent),
        Code::InvalidArgument,
        "message.role",
    ),
    (
        |_, message| message.context_id = "../x".to_owned(),
        Code::InvalidArgument,
        "message.context_id",
    ),
    (
        |request, _| request.tenant.clear(),
        Code::InvalidArgument,
        "tenant",
    ),
    (
        |request, _| request.tenant = "ghost".to_owned(),
        Code::NotFound,
        "PROFILE_NOT_FOUND",
    ),
    (
        |_, message| message.task_id = "turn_1".to_owned(),
        Code::NotFound,
        "TASK_NOT_FOUND",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn g904_a_message_that_cannot_be_read_starts_nothing_and_says_why() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let clock = Client::of(&stack, "clock");
    for (index, (change, code, reason)) in CASES.into_iter().enumerate() {
        let mut request = clock.message("hello", "");
        let mut message = request.message.take().unwrap_or_default();
        change(&mut request, &mut message);
        request.message = Some(message);
        let refusal = refused(clock.send(request).await)?;
        ensure!(refusal == a2a(code, reason), "case {index}: {refusal:?}");
    }
    let mut pushed = clock.message("hello", "");
    pushed.configuration = Some(SendMessageConfiguration {
        task_push_notification_config: Some(TaskPushNotificationConfig::default()),
        ..SendMessageConfiguration::default()
    });
    let no_push = a2a(Code::Unimplemented, "PUSH_NOTIFICATION_NOT_SUPPORTED");
    ensure!(refused(clock.send(pushed).await)? == no_push);
    let config = v1(TaskPushNotificationConfig::default())?;
    let created = clock
        .a2a
        .clone()
        .create_task_push_notification_config(config)
        .await;
    ensure!(refused(created.map_err(anyhow::Error::from))? == no_push);
    let listed = ListTasksRequest {
        tenant: "clock".to_owned(),
        ..ListTasksRequest::default()
    };
    let listed = clock
        .a2a
        .clone()
        .list_tasks(v1(listed)?)
        .await?
        .into_inner();
    ensure!(listed.tasks.is_empty() && listed.total_size == 0);
    Ok(())
}
