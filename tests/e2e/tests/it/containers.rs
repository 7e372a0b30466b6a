//! The commands of the containers of `docker-compose.yml` and of the image itself, as processes.

use std::path::Path;

use contracts::tavern::run::v1::GetRunRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use grpc_kit::ClientSettings;
use testkit::{APPROVER_KEY, Process, approvals_file, binary, eventually, repository};

/// A container: its name, its program, and its environment.
struct Container {
    name: String,
    program: String,
    environment: Vec<(String, String)>,
}

/// Reads the services of the compose file, which is written in one simple form.
fn composed() -> anyhow::Result<Vec<Container>> {
    let text = std::fs::read_to_string(repository().join("docker-compose.yml"))?;
    let (_, services) = text.split_once("\nservices:\n").unwrap_or_default();
    let mut containers: Vec<Container> = Vec::new();
    for line in services
        .lines()
        .filter(|line| !line.trim().starts_with('#'))
    {
        let indent = line.len() - line.trim_start().len();
        let Some((key, value)) = line.trim().split_once(':') else {
            continue;
        };
        let value = value.trim().trim_matches('"');
        match (indent, containers.last_mut()) {
            (0, _) => break,
            (2, _) => containers.push(Container {
                name: key.to_owned(),
                program: String::new(),
                environment: Vec::new(),
            }),
            (4, Some(container)) if key == "command" => {
                container.program = value.trim_matches(['[', ']']).to_owned();
            }
            (6, Some(container)) if key.starts_with("TAVERN_") => {
                let variable = (key.to_owned(), value.to_owned());
                container.environment.push(variable);
            }
            _ => {}
        }
    }
    Ok(containers)
}

/// Reads the environment that the image sets.
fn image() -> anyhow::Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(repository().join("deploy/Dockerfile"))?;
    let words = text.split_whitespace();
    let variables = words.filter(|word| word.starts_with("TAVERN_"));
    let variables = variables.filter_map(|word| word.split_once('='));
    Ok(variables
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect())
}

/// Replaces the parts of a container that this machine lacks: its network and its directories.
fn at_home(
    environment: &[(String, String)],
    host: &str,
    names: &[String],
    data: &Path,
) -> Vec<(String, String)> {
    let deploy = repository().join("deploy").display().to_string();
    let data = data.display().to_string();
    let replaced = |value: &str| {
        let value = value
            .replace("0.0.0.0", host)
            .replace("/usr/share/tavern", &deploy)
            .replace("/var/lib/tavern", &data);
        names.iter().fold(value, |value, name| {
            value.replace(&format!("http://{name}:"), &format!("http://{host}:"))
        })
    };
    environment
        .iter()
        .map(|(key, value)| (key.clone(), replaced(value)))
        .collect()
}

/// Returns the variable that adds an approver, whom neither image nor compose file can bring.
fn with_approver(variable: &str, data: &Path) -> anyhow::Result<(String, String)> {
    let file = approvals_file(&repository().join("deploy"), data)?;
    Ok((variable.to_owned(), file))
}

async fn plays_every_transcript(
    host: &str,
    processes: &mut [Process],
    directory: &Path,
) -> anyhow::Result<()> {
    let gateway = format!("http://{host}:7401");
    let transport = grpc_kit::remote(&ClientSettings::to(&gateway))?;
    let client = RunServiceClient::new(transport.outermost());
    eventually("the gateway to serve", || {
        let mut client = client.clone();
        async move {
            let asked = client.get_run(GetRunRequest::default()).await.err()?;
            (asked.code() != tonic::Code::Unavailable).then_some(())
        }
    })
    .await?;
    for process in processes.iter_mut() {
        process.ensure_alive()?;
    }
    // The services behind the gateway may need a moment more.
    let examples = repository().join("deploy/examples").display().to_string();
    let arguments = [
        "play",
        "--address",
        &gateway,
        "--examples",
        &examples,
        "--approver-key",
        APPROVER_KEY,
    ];
    eventually("every transcript to play", || {
        let nothing: [(String, String); 0] = [];
        let played = binary("tavern").and_then(|program| {
            let mut play = Process::start("play", &program, &arguments, &nothing, directory)?;
            play.wait()
        });
        async move { played.ok().filter(|status| status.success()).map(drop) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_compose_starts_plays_every_transcript() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let host = testkit::own_loopback_address();
    let containers = composed()?;
    assert_eq!(containers.len(), 5);
    let names: Vec<String> = containers
        .iter()
        .map(|container| container.name.clone())
        .collect();
    let mut processes = Vec::new();
    for Container {
        name,
        program,
        environment,
    } in &containers
    {
        // Within the private network every caller is a service whose trace continues.
        let trusts = environment
            .iter()
            .any(|(key, value)| key.ends_with("__SERVER__TRACE_TRUST") && value == "anyone");
        assert_eq!(trusts, name != "gateway", "{name}");
        let data = directory.path().join(name);
        std::fs::create_dir(&data)?;
        let mut environment = at_home(environment, &host, &names, &data);
        if name == "tool-registry" {
            environment.push(with_approver("TAVERN_REGISTRY__APPROVALS_FILE", &data)?);
        }
        processes.push(Process::start(
            name,
            &binary(program)?,
            &[],
            &environment,
            &data,
        )?);
    }
    plays_every_transcript(&host, &mut processes, directory.path()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_the_image_plays_every_transcript() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let host = testkit::own_loopback_address();
    let environment = image()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let mut environment = at_home(&environment, &host, &[], &data);
    environment.push(with_approver("TAVERN__APPROVALS_FILE", &data)?);
    let program = binary("tavern")?;
    let process = Process::start(
        "tavern",
        &program,
        &["serve"],
        &environment,
        directory.path(),
    )?;
    plays_every_transcript(&host, &mut [process], directory.path()).await
}
