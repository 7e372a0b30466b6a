//! Tokens of issuers, as a company's programs bring them.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use contracts::tavern::registry::v1::GetCallerRequest;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::{GetRunRequest, WatchRunRequest};
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use serde_json::{Value, json};
use testkit::{Stack, StackBuilder, TestIssuer, binary, eventually, exchange};
use tonic::Code;

use crate::edges;

/// A Tavern with the issuer `company`, and an administrator with a key.
struct Company {
    stack: Stack,
    issuer: TestIssuer,
    files: tempfile::TempDir,
}

/// The rules of the issuer, as TOML within a variable.
const RULES: &str = r#"[{claim="groups",value="devs",roles=["developer","operator"]}]"#;

impl Company {
    async fn open() -> anyhow::Result<Self> {
        Self::with(Stack::builder()).await
    }

    async fn with(stack: StackBuilder) -> anyhow::Result<Self> {
        let issuer = TestIssuer::start().await?;
        let (keys, ca_file) = (issuer.keys()?, issuer.ca_file().display().to_string());
        let iss = TestIssuer::ISS;
        let issuers = format!(
            r#"[{{name="company",issuer="{iss}",audiences=["tavern"],keys="{keys}",ca_file="{ca_file}",rules={RULES}}}]"#
        );
        let stack = stack.env("TAVERN_REGISTRY__ISSUERS", issuers);
        let mut stack = stack.start().await?;
        stack.bootstrap().await?;
        Ok(Self {
            stack,
            issuer,
            files: tempfile::tempdir()?,
        })
    }

    /// Returns a token of a subject of the group `devs`, whose `exp` is in so many seconds.
    async fn token(&self, subject: &str, seconds: i64) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let now = i64::try_from(now)?;
        let claims = json!({
            "iss": TestIssuer::ISS, "aud": "tavern", "sub": subject, "groups": ["devs"],
            "iat": now, "exp": now + seconds,
        });
        self.issuer.sign("ed", &claims, &json!({})).await
    }

    /// Returns a file of a token that lasts for an hour.
    async fn token_file(&self, subject: &str) -> anyhow::Result<PathBuf> {
        let file = self.files.path().join(subject);
        write_secret(&file, &self.token(subject, 3600).await?)?;
        Ok(file)
    }

    fn run(&self, option: &str, file: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(binary("tavern")?);
        command.args(arguments).arg(option).arg(file);
        let command = command.env("TAVERN_ADDRESS", self.stack.address());
        Ok(command.output()?)
    }

    /// Returns the message that a command with a token prints.
    fn json(&self, file: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = self.run("--token-file", file, &[arguments, &["--json"]].concat())?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Carries a command of the administrator out.
    fn administer(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let output = self.run("--key-file", &self.stack.key_file(), arguments)?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(())
    }
}

fn write_secret(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    Ok(std::io::Write::write_all(
        &mut options.open(file)?,
        text.as_bytes(),
    )?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_serves_commands_until_its_principal_is_blocked() -> anyhow::Result<()> {
    let company = Company::open().await?;
    let file = company.token_file("ada").await?;
    let caller = company.json(&file, &["keys", "whoami"])?;
    assert_eq!(caller["principal"], "company:ada", "{caller}");
    assert_eq!(caller["issuer"], TestIssuer::ISS);
    assert_eq!(caller["subject"], "ada");
    assert_eq!(caller["roles"], json!(["developer", "operator"]));
    let invoked = company.run("--token-file", &file, &["runs", "list"])?;
    ensure!(invoked.status.success(), "{invoked:?}");

    let key_file = company.stack.key_file().display().to_string();
    let both = company.run(
        "--token-file",
        &file,
        &["runs", "list", "--key-file", &key_file],
    )?;
    let error = String::from_utf8(both.stderr)?;
    assert!(error.contains("cannot be used with"), "{error}");
    let wrong = company.files.path().join("wrong");
    write_secret(&wrong, &company.token("ada", -3600).await?)?;
    let refused = company.run("--token-file", &wrong, &["runs", "list"])?;
    let error = String::from_utf8(refused.stderr)?;
    assert!(error.contains("does not accept the token in"), "{error}");

    company.administer(&["keys", "block", "company:ada"])?;
    eventually("the token to be refused", || async {
        let listed = company.run("--token-file", &file, &["runs", "list"]);
        (!listed.ok()?.status.success()).then_some(())
    })
    .await?;
    // It is read anew for each command; a new token of the same subject helps no more.
    company.token_file("ada").await?;
    ensure!(
        !company
            .run("--token-file", &file, &["runs", "list"])?
            .status
            .success()
    );
    company.administer(&["keys", "unblock", "company:ada"])?;
    company.json(&file, &["keys", "whoami"])?;

    // The audit finds both changes by the name of the principal.
    let key_file = company.stack.key_file();
    let list = ["audit", "list", "--principal", "company:ada"];
    let listed = company.run("--key-file", &key_file, &list)?;
    let listed = String::from_utf8(listed.stdout)?;
    for method in ["BlockPrincipal", "UnblockPrincipal"] {
        let records = listed.lines().filter(|line| line.contains(method));
        let records: Vec<_> = records
            .filter(|line| line.contains("company:ada"))
            .collect();
        ensure!(records.len() == 2, "an intent and an outcome: {listed}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_ends_with_its_token_and_its_run_continues() -> anyhow::Result<()> {
    let company = Company::open().await?;
    let long = company.token("ada", 3600).await?;
    let long = company.stack.transport_with(Some(&long));
    let request = StartRunRequest {
        target: Some(Target::WorkflowId("await_delivery".to_owned())),
        inputs_json: json!({"parcel": "p1"}).to_string(),
        ..StartRunRequest::default()
    };
    let mut workflows = WorkflowServiceClient::new(long.clone().outermost());
    let started = workflows.start_run(request).await?.into_inner();
    let run_id = started.run.context("the run was started")?.run_id;

    // The skew of a minute is over in some seconds.
    let token = company.token("ada", -55).await?;
    let transport = company.stack.transport_with(Some(&token));
    let request = WatchRunRequest {
        run_id: run_id.clone(),
        ..WatchRunRequest::default()
    };
    let mut runs = RunServiceClient::new(transport.clone().outermost());
    let mut events = runs.watch_run(request).await?.into_inner();
    let end = loop {
        match events.message().await {
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("the stream is over without a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Unauthenticated, "{end:?}");
    let mut identities = IdentityServiceClient::new(transport.outermost());
    let refused = identities
        .get_caller(GetCallerRequest {})
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut runs = RunServiceClient::new(long.outermost());
    let run = runs.get_run(GetRunRequest { run_id }).await?.into_inner();
    let run = run.run.context("the run is there")?;
    assert_eq!(run.principal, "company:ada");
    assert!(run.finish_time.is_none(), "{run:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_clients_send_a_token() -> anyhow::Result<()> {
    play_with_tokens(Stack::builder()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_clients_send_a_token_over_tls() -> anyhow::Result<()> {
    play_with_tokens(Stack::builder().encrypted()).await
}

/// Plays clients that send a token.
async fn play_with_tokens(stack: StackBuilder) -> anyhow::Result<()> {
    let company = Company::with(stack).await?;
    let (stack, file) = (&company.stack, company.token_file("ada").await?);
    let part = |name| edges::part(&stack.address(), name);
    tokio::try_join!(
        edges::play_with_a_file(stack, &file, part("openai")?),
        edges::play_with_a_file(stack, &file, part("session")?),
        edges::play_with_a_file(stack, &file, part("tickets")?),
        edges::play_with_a_file(stack, &file, part("page")?),
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_logs_in_with_a_token_and_gets_a_cookie() -> anyhow::Result<()> {
    let company = Company::open().await?;
    let token = company.token("ada", 3600).await?;
    let login = json!({ "key": token }).to_string();
    let head = "POST /v1/login\r\ncontent-type: application/json\r\n";
    let address = company.stack.address();
    let answer = exchange(&address, head, login.as_bytes(), |_| false).await?;
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .and_then(|cookie| cookie.split(';').next())
        .with_context(|| answer.clone())?;
    assert!(!cookie.contains(&token), "{cookie}");
    let head = format!("GET /v1/models\r\ncookie: {cookie}\r\n");
    let models = exchange(&address, &head, b"", |_| false).await?;
    assert!(models.starts_with("HTTP/1.1 200 "), "{models}");
    let head = format!("GET /v1/models?access_token={token}\r\n");
    let in_address = exchange(&address, &head, b"", |_| false).await?;
    assert!(in_address.starts_with("HTTP/1.1 400 "), "{in_address}");
    Ok(())
}
