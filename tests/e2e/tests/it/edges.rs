//! Clients that speak no gRPC and share no code with Tavern.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::{APPROVER_KEY, PUBLIC_NAME, Stack, StackBuilder, python, python_program, repository};

use crate::a2a;
use crate::text::failing_agents;

/// Runs a client to its end.
pub(crate) async fn run(mut client: Command) -> anyhow::Result<String> {
    let played = tokio::task::spawn_blocking(move || client.output()).await??;
    let printed = String::from_utf8_lossy(&played.stdout);
    let errors = String::from_utf8_lossy(&played.stderr);
    ensure!(played.status.success(), "{printed}\n{errors}");
    Ok(printed.into_owned())
}

/// Returns the clients in Python of the server at `address`, of which `part` is played.
pub(crate) fn part(address: &str, part: &str) -> anyhow::Result<Command> {
    let mut client = Command::new(python()?);
    client.arg(python_program("edge_clients.py"));
    client.args([address, part]);
    Ok(client)
}

/// Plays the clients of web pages in a browser against the server at `address`.
pub(crate) async fn play_in_a_browser(address: &str) -> anyhow::Result<()> {
    let browser = repository().join("tests/browser");
    ensure!(
        browser.join("node_modules").exists(),
        "the packages of tests/browser are missing; run `make test`"
    );
    let descriptors = tempfile::NamedTempFile::new()?;
    std::fs::write(descriptors.path(), contracts::FILE_DESCRIPTOR_SET)?;
    let mut client = Command::new("node");
    client.arg(browser.join("play.mjs"));
    client.arg(address).arg(descriptors.path());
    run(client).await.map(drop)
}

/// Lets a client believe the servers that a CA has signed.
pub(crate) fn believing(mut client: Command, ca: &str) -> Command {
    for variable in [
        "SSL_CERT_FILE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "NODE_EXTRA_CA_CERTS",
    ] {
        client.env(variable, ca);
    }
    client
}

async fn play(stack: &Stack, name: &str) -> anyhow::Result<()> {
    run(part(&stack.address(), name)?).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_client_gets_an_agent_of_five_processes() -> anyhow::Result<()> {
    play(&Stack::builder().separate().start().await?, "openai").await
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_clients_send_a_key() -> anyhow::Result<()> {
    play_with_keys(Stack::builder()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_clients_send_a_key_over_tls() -> anyhow::Result<()> {
    play_with_keys(Stack::builder().encrypted()).await
}

/// Plays every client that sends a key.
async fn play_with_keys(builder: StackBuilder) -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    a2a::prepare(deploy.path())?;
    let builder = builder.with_keys();
    let agents = builder.clone().deploy(deploy.path());
    let (stack, agents) = tokio::try_join!(builder.start(), agents.start())?;
    let address = stack.address();
    tokio::try_join!(
        play_with_a_key(&stack, part(&address, "openai")?),
        play_with_a_key(&stack, part(&address, "session")?),
        play_with_a_key(&stack, part(&address, "cuts")?),
        play_with_a_key(&stack, part(&address, "tickets")?),
        play_with_a_key(&stack, part(&address, "page")?),
        play_with_a_key(&agents, a2a::official_client(&agents.address())?),
    )?;
    Ok(())
}

/// Runs a client, which fails without the key of the stack and has everything with it.
async fn play_with_a_key(stack: &Stack, client: Command) -> anyhow::Result<()> {
    play_with_a_file(stack, &stack.key_file(), client).await
}

/// Runs a client of a stack, which fails without the credential of a file and has everything with it.
pub(crate) async fn play_with_a_file(
    stack: &Stack,
    file: &Path,
    mut client: Command,
) -> anyhow::Result<()> {
    if let Some(ca) = stack.ca() {
        client = believing(client, &ca);
    }
    client.env("TAVERN_TEST_CUTS", "3");
    let without = client_without_a_key(&client);
    client.env("TAVERN_KEY_FILE", file);
    let (without, with) = tokio::join!(run(without), run(client));
    ensure!(without.is_err(), "a client without a key is served");
    with.map(drop)
}

/// Returns the same client again.
fn client_without_a_key(client: &Command) -> Command {
    let mut again = Command::new(client.get_program());
    again.args(client.get_args());
    again.envs(
        client
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    again
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_client_that_closes_its_stream_ends_the_turn() -> anyhow::Result<()> {
    play(
        &Stack::builder().deploy(failing_agents()).start().await?,
        "closing",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_page_sends_follows_and_cancels_over_one_socket() -> anyhow::Result<()> {
    play(&Stack::all_in_one().await?, "session").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_page_answers_steers_and_approves_over_one_socket() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    a2a::prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let mut client = part(&stack.address(), "people")?;
    client.env("TAVERN_APPROVER_KEY", APPROVER_KEY);
    run(client).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_web_pages_reach_every_service_of_five_processes() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    play_in_a_browser(&stack.address()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_cut_see_every_event_once_in_order() -> anyhow::Result<()> {
    play(&Stack::all_in_one().await?, "cuts").await
}

/// Returns the head of the answer of a stack to curl, which reaches it by a name.
async fn head(stack: &Stack, name: &str, path: &str) -> anyhow::Result<String> {
    let address = stack.address();
    let (scheme, place) = address
        .split_once("://")
        .context("an address has a scheme")?;
    let port = place.rsplit(':').next().unwrap_or_default();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*"]);
    curl.args(["--output", "/dev/null", "--dump-header", "-"]);
    curl.args(["--connect-to", &format!("{name}:{port}:{place}")]);
    if let Some(ca) = stack.ca() {
        curl.args(["--cacert", &ca]);
    }
    curl.arg(format!("{scheme}://{name}:{port}{path}"));
    Ok(run(curl).await?.to_lowercase())
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_keep_to_tls_at_names_that_are_not_of_loopback() -> anyhow::Result<()> {
    let hosts = format!("[\"{PUBLIC_NAME}\"]");
    let builder = Stack::builder().env("TAVERN_GATEWAY__HTTP__HOSTS", hosts);
    let (encrypted, plain) = (builder.clone().encrypted().start(), builder.start());
    let (encrypted, plain) = tokio::try_join!(encrypted, plain)?;
    for (stack, name, keeps) in [
        (&encrypted, PUBLIC_NAME, true),
        (&encrypted, "localhost", false),
        (&encrypted, "127.0.0.1", false),
        (&plain, PUBLIC_NAME, false),
        (&plain, "localhost", false),
    ] {
        for (path, status) in [
            ("/console", " 200"),
            ("/v1/models", " 200"),
            ("/none", " 404"),
        ] {
            let head = head(stack, name, path).await?;
            let line = head.lines().next().unwrap_or_default();
            ensure!(line.contains(status), "{name}{path}: {head}");
            let mut lines = head.lines();
            let asks =
                lines.any(|line| line.starts_with("strict-transport-security: max-age=31536000"));
            ensure!(asks == keeps, "{name}{path}: {head}");
        }
    }
    Ok(())
}
