//! The audit of Tavern: administrative changes below kills, tampering, a full disk, and the commands.
//!
//! - `load`: changes and denied calls while the process is killed.

mod load;

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::gateway::v1::CallsTarget;
use contracts::tavern::registry::v1::{
    AuditRecord, CreateKeyRequest, CreateTenantRequest, ListAuditRecordsRequest, ListToolsRequest,
    PutToolRequest, VerifyAuditRequest, audit_entry::Event,
    audit_service_client::AuditServiceClient, identity_service_client::IdentityServiceClient,
    tenant_service_client::TenantServiceClient,
};
use grpc_kit::Outbound;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};
use testkit::{Stack, binary, invoke};

use crate::text::{calls, write_file};

/// The file of the audit below the directory of a stack.
const FILE: &str = "data/tool-registry.audit.db";

fn client(stack: &Stack) -> AuditServiceClient<Outbound> {
    AuditServiceClient::new(stack.transport_with(stack.key()).outermost())
}

/// Returns all records that the administrator of the installation sees.
async fn records(stack: &Stack) -> anyhow::Result<Vec<AuditRecord>> {
    let (mut records, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAuditRecordsRequest {
            page_size: 500,
            page_token,
            ..ListAuditRecordsRequest::default()
        };
        let page = client(stack)
            .list_audit_records(request)
            .await?
            .into_inner();
        records.extend(page.records);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(records);
        }
    }
}

/// Returns a tool that rolls a number.
fn tool(id: &str) -> String {
    let tool = json!({"id": id, "displayName": "Rolls", "description": "Rolls.",
        "implementation": {"type": "node", "nodeType": "core:RandomNumber"},
        "parameters": {"type": "object", "properties": {}}});
    tool.to_string()
}

fn key_for(principal: &str, roles: &[&str]) -> CreateKeyRequest {
    CreateKeyRequest {
        principal: principal.to_owned(),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        ..CreateKeyRequest::default()
    }
}

/// Runs a command of the administrator of a stack.
fn run(stack: &Stack, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary("tavern")?);
    let command = command.args(arguments);
    let command = command.env("TAVERN_ADDRESS", stack.address());
    Ok(command.env("TAVERN_KEY_FILE", stack.key_file()).output()?)
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that a command ends with a code and prints each part.
fn check(output: &Output, code: i32, parts: &[&str]) {
    let text = printed(output);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

fn verify_at_rest(stack: &Stack, more: &[&str]) -> anyhow::Result<Output> {
    let data = stack.directory().join("data").display().to_string();
    let verify = ["audit", "verify", "--data-dir", &data];
    run(stack, &[&verify[..], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_show_who_changed_what_and_who_was_denied() -> anyhow::Result<()> {
    let mut stack = Stack::builder().with_keys().start().await?;
    let made = stack
        .identities()
        .create_key(key_for("ada", &["invoker"]))
        .await?;
    let ada = made.into_inner().secret_key;
    let as_ada = stack.transport_with(Some(&ada)).outermost();
    let mut identities = IdentityServiceClient::new(as_ada);
    for _ in 0..3 {
        let denied = identities.create_key(key_for("bob", &["admin"])).await;
        ensure!(denied.is_err_and(|status| status.code() == tonic::Code::PermissionDenied));
    }
    let mut stranger = AuditServiceClient::new(stack.transport_with(None).outermost());
    let denied = stranger
        .list_audit_records(ListAuditRecordsRequest::default())
        .await;
    ensure!(denied.is_err_and(|status| status.code() == tonic::Code::Unauthenticated));
    let refused = stack
        .identities()
        .create_key(key_for("without-role", &[]))
        .await;
    ensure!(refused.is_err());

    let listed = run(&stack, &["audit", "list", "--since", "1h"])?;
    let parts = ["Bootstrap", "local", "CreateKey", "principal ada", "done"];
    check(&listed, 0, &parts);
    check(
        &listed,
        0,
        &[
            "refused (NOT_FOUND)",
            "3 × PERMISSION_DENIED",
            "1 × UNAUTHENTICATED",
        ],
    );
    let of_ada = run(
        &stack,
        &["audit", "list", "--principal", "ada", "--kind", "denied"],
    )?;
    check(&of_ada, 0, &["3 × PERMISSION_DENIED"]);
    ensure!(!printed(&of_ada).contains("UNAUTHENTICATED"), "{of_ada:?}");
    ensure!(!printed(&run(&stack, &["audit", "list", "--until", "1h"])?).contains("CreateKey"));
    check(
        &run(&stack, &["audit", "list", "--since", "yesterday"])?,
        2,
        &[],
    );

    let out = stack.directory().join("audit.jsonl").display().to_string();
    check(&run(&stack, &["audit", "export", "--out", &out])?, 0, &[]);
    let lines = std::fs::read_to_string(&out)?;
    let lines: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
    let lines = lines?;
    ensure!(lines.len() == records(&stack).await?.len(), "{lines:?}");
    let recorded = &lines[1]["entry"]["changeIntended"];
    ensure!(
        recorded["method"] == "tavern.registry.v1.IdentityService/CreateKey"
            || recorded["method"] == "tavern.registry.v1.IdentityService/Bootstrap",
        "{recorded}"
    );
    ensure!(
        !run(&stack, &["audit", "export", "--out", &out])?
            .status
            .success()
    );

    // The runs of the audit are none of a client's.
    let run_id = lines[0]["runId"].as_str().context("a run")?.to_owned();
    let shown = run(&stack, &["runs", "list", "--json"])?;
    ensure!(!printed(&shown).contains(&run_id), "{shown:?}");
    ensure!(!run(&stack, &["runs", "delete", &run_id])?.status.success());

    let verified = run(&stack, &["audit", "verify"])?;
    check(&verified, 0, &["the chain is whole", "audit-head="]);
    stack.terminate()?;
    check(&verify_at_rest(&stack, &[])?, 0, &["the chain is whole"]);
    // The end of the process logged the last head.
    let log = stack.directory().join("tavern.log").display().to_string();
    check(
        &verify_at_rest(&stack, &["--anchor", &log])?,
        0,
        &["logged heads agree"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_of_a_tenant_sees_the_records_about_it() -> anyhow::Result<()> {
    let stack = Stack::builder().with_keys().start().await?;
    let way = stack.transport_with(stack.key()).outermost();
    let request = CreateTenantRequest {
        name: "acme".to_owned(),
        ..CreateTenantRequest::default()
    };
    TenantServiceClient::new(way).create_tenant(request).await?;
    stack
        .identities()
        .create_key(key_for("ada", &["viewer"]))
        .await?;
    let of_acme = |principal: &str, roles: &[&str]| CreateKeyRequest {
        tenant: "acme".to_owned(),
        ..key_for(principal, roles)
    };
    let made = stack
        .identities()
        .create_key(of_acme("wile", &["admin"]))
        .await?;
    let wile = made.into_inner().secret_key;
    let wile = stack.transport_with(Some(&wile)).outermost();
    let request = VerifyAuditRequest::default();
    let denied = AuditServiceClient::new(wile.clone())
        .verify_audit(request)
        .await;
    ensure!(denied.is_err_and(|status| status.code() == tonic::Code::PermissionDenied));

    let request = ListAuditRecordsRequest::default();
    let mut client = AuditServiceClient::new(wile);
    let listed = client.list_audit_records(request).await?.into_inner();
    let subjects: Vec<String> = listed.records.iter().map(subject).collect();
    ensure!(
        subjects == ["acme/wile", "acme/wile", "denied acme/wile"],
        "{subjects:?}"
    );
    let request = ListAuditRecordsRequest {
        principal: "wile".to_owned(),
        ..ListAuditRecordsRequest::default()
    };
    let listed = client.list_audit_records(request).await?.into_inner();
    ensure!(listed.records.len() == 3, "{listed:?}");
    ensure!(records(&stack).await?.len() > 8);
    Ok(())
}

/// Returns the tenant and the name of the first thing that a record is about, or the principal that was denied.
fn subject(record: &AuditRecord) -> String {
    let event = record.entry.as_ref().and_then(|entry| entry.event.as_ref());
    let subject = match event {
        Some(Event::ChangeIntended(intended)) => intended.subject.as_ref(),
        Some(Event::ChangeEnded(ended)) => ended.subject.as_ref(),
        Some(Event::Denied(denied)) => return format!("denied {}", denied.principal),
        _ => None,
    };
    subject.map_or_else(String::new, |subject| {
        let name = subject.names.first().map_or("", String::as_str);
        format!("{}/{name}", subject.tenant)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_that_was_changed_is_found_and_named() -> anyhow::Result<()> {
    let mut stack = Stack::builder().with_keys().start().await?;
    for name in ["unmistakable-one", "unmistakable-two", "unmistakable-three"] {
        stack
            .identities()
            .create_key(key_for(name, &["viewer"]))
            .await?;
    }
    let recorded = records(&stack).await?;
    stack.terminate()?;
    check(&verify_at_rest(&stack, &[])?, 0, &["the chain is whole"]);
    let intent = recorded.iter().find(|record| record.sequence == 6);
    let hash = bytes_of(&intent.context("there are three changes")?.hash)?;

    // The name stands in the intent and in the outcome of the second change.
    let of_second = ["sequence 6", "sequence 7"];
    let file = stack.directory().join(FILE);
    for (bytes, places) in [
        (b"unmistakable-two".as_slice(), &of_second[..]),
        (&hash, &of_second[..1]),
    ] {
        change_byte(&file, bytes)?;
        let verified = verify_at_rest(&stack, &[])?;
        check(&verified, 1, &["changed: "]);
        let text = printed(&verified);
        ensure!(places.iter().any(|place| text.contains(place)), "{text}");
        // A Tavern that runs finds it too.
        stack.restart().await?;
        let verified = run(&stack, &["audit", "verify"])?;
        ensure!((verified.status.code(), printed(&verified)) == (Some(1), text));
        stack.terminate()?;
        change_byte(&file, bytes)?;
    }
    check(&verify_at_rest(&stack, &[])?, 0, &["the chain is whole"]);
    Ok(())
}

/// Returns the bytes that hexadecimal digits stand for.
fn bytes_of(digits: &str) -> anyhow::Result<Vec<u8>> {
    let places = (0..digits.len()).step_by(2);
    let bytes = places.map(|place| u8::from_str_radix(&digits[place..place + 2], 16));
    Ok(bytes.collect::<Result<_, _>>()?)
}

/// Changes the last byte, to another and back, of the first place of a file where some bytes stand but for that one.
fn change_byte(file: &Path, sought: &[u8]) -> anyhow::Result<()> {
    let mut bytes = std::fs::read(file)?;
    let most = &sought[..sought.len() - 1];
    let place = bytes.windows(most.len()).position(|part| part == most);
    bytes[place.context("they are in the file")? + most.len()] ^= 1;
    Ok(std::fs::write(file, bytes)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_the_audit_changes_are_refused_and_calls_go_on() -> anyhow::Result<()> {
    let mut stack = Stack::builder().with_keys().start().await?;
    stack.terminate()?;
    let options = SqliteConnectOptions::new().filename(stack.directory().join(FILE));
    let mut database = options.connect().await?;
    let ballast = "CREATE TABLE ballast AS SELECT randomblob(1000000) AS bytes";
    sqlx::query(ballast).execute(&mut database).await?;
    drop(database);
    stack.set_env("TAVERN_REGISTRY__AUDIT__MAX_BYTES", "1048576");
    stack.restart().await?;

    let mut put = 0;
    let refused = loop {
        let request = PutToolRequest {
            definition_json: tool(&format!("core-x:tool{put}")),
            ..PutToolRequest::default()
        };
        match stack.registry().put_tool(request).await {
            Ok(_) => put += 1,
            Err(status) => break status,
        }
    };
    ensure!(
        grpc_kit::reason(&refused) == Some(ErrorReason::AuditUnavailable),
        "{refused:?}"
    );
    let refused = stack
        .identities()
        .create_key(key_for("ada", &["viewer"]))
        .await;
    let refused = refused.err().context("it is refused")?;
    ensure!(
        grpc_kit::reason(&refused) == Some(ErrorReason::AuditUnavailable),
        "{refused:?}"
    );
    let text = calls(CallsTarget {
        text: write_file("a.txt", "x"),
        ..CallsTarget::default()
    });
    invoke(&stack.gateway(), text).await?;

    // Nothing that was refused was made, and there is room again.
    stack.set_env("TAVERN_REGISTRY__AUDIT__MAX_BYTES", "0");
    stack.restart().await?;
    let request = ListToolsRequest {
        page_size: 500,
        ..ListToolsRequest::default()
    };
    let tools = stack.registry().list_tools(request).await?;
    let tools = tools.into_inner().tools;
    let made = tools
        .iter()
        .filter(|tool| format!("{tool:?}").contains("core-x:tool"));
    ensure!(made.count() == put);
    stack
        .identities()
        .create_key(key_for("ada", &["viewer"]))
        .await?;
    check(
        &run(&stack, &["audit", "verify"])?,
        0,
        &["the chain is whole"],
    );
    Ok(())
}
