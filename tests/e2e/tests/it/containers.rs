//! The commands of the containers of `docker-compose.yml` and of the image itself, as processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::{Process, binary, eventually, repository};

use crate::edges;

/// A container: its name, its program, and its environment.
struct Container {
    name: String,
    /// Its program, and the arguments of that.
    command: Vec<String>,
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
                command: Vec::new(),
                environment: Vec::new(),
            }),
            (4, Some(container)) if key == "command" => {
                let words = value.trim_matches(['[', ']']).split(", ");
                container.command = words.map(str::to_owned).collect();
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
            value.replace(&format!("https://{name}:"), &format!("https://{host}:"))
        })
    };
    environment
        .iter()
        .map(|(key, value)| (key.clone(), replaced(value)))
        .collect()
}

/// The directories of all containers, and a command line with the address of their gateway.
struct Installation {
    directory: PathBuf,
    host: String,
}

impl Installation {
    /// Makes an installation by the command that runs once, before the containers start.
    fn set_up(directory: &Path, command: &[&str]) -> anyhow::Result<Self> {
        for name in ["authority", "operator"] {
            std::fs::create_dir(directory.join(name))?;
        }
        let installation = Self {
            directory: directory.to_owned(),
            host: testkit::own_loopback_address(),
        };
        // A second run finds everything there.
        for _ in 0..2 {
            installation.execute(Command::new("sh").args(command).arg(directory))?;
        }
        Ok(installation)
    }

    /// Executes a command whose client is that of the gateway.
    fn execute(&self, command: &mut Command) -> anyhow::Result<()> {
        let programs = binary("tavern")?;
        let programs = programs
            .parent()
            .context("a program stands in a directory")?;
        let path = format!("{}:{}", programs.display(), std::env::var("PATH")?);
        command.env("PATH", path);
        command.env("TAVERN_ADDRESS", format!("https://{}:7401", self.host));
        command.env("TAVERN_CA", self.directory.join("operator/ca.pem"));
        command.env("TAVERN_SERVER_NAME", "localhost");
        let output = command.output()?;
        ensure!(output.status.success(), "{command:?}: {output:?}");
        Ok(())
    }

    /// Executes a command of `tavern` with a key.
    fn tavern(&self, key: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(binary("tavern")?);
        self.execute(command.arg("--key-file").arg(key).args(arguments))
    }

    /// Makes a key of a principal with the first key, and returns its file.
    fn key(&self, principal: &str, options: &[&str]) -> anyhow::Result<PathBuf> {
        let file = self.directory.join(principal).with_extension("key");
        let out = file.display().to_string();
        let create = [&["keys", "create", principal, "--out", &out], options].concat();
        self.tavern(&self.directory.join("operator/admin.key"), &create)?;
        Ok(file)
    }

    /// Makes the certificate of the gateway anew, for the address of the installation.
    fn name_host(&self) -> anyhow::Result<()> {
        let [authority, certs] = ["authority", "tavern/certs"].map(|it| self.directory.join(it));
        let mut command = Command::new(binary("tavern")?);
        command.args([
            "certs",
            "issue",
            "gateway",
            "--replace",
            "--host",
            &self.host,
        ]);
        self.execute(command.arg("--dir").arg(authority).arg("--out").arg(certs))
    }

    /// Starts the program with TLS beyond loopback, and with a data directory that has no key.
    fn refuses_to_serve_without_a_key(
        &self,
        environment: &[(String, String)],
    ) -> anyhow::Result<()> {
        let mut command = Command::new(binary("tavern")?);
        let keyless = self.directory.join("keyless");
        command.args(["serve", "--listen", "0.0.0.0:0", "--data-dir"]);
        let environment = environment.iter().map(|(key, value)| (key, value));
        let output = command.arg(keyless).envs(environment).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(78),
            "{}: {errors}",
            output.status
        );
        ensure!(errors.contains("tavern keys bootstrap"), "{errors}");
        Ok(())
    }

    /// Plays clients that share no code with Tavern, over TLS and with a key.
    async fn answers_foreign_clients(&self) -> anyhow::Result<()> {
        let address = format!("https://{}:7401", self.host);
        let [ca, key] = ["ca.pem", "admin.key"].map(|it| self.directory.join("operator").join(it));
        for part in ["openai", "session", "tickets", "page"] {
            let client = edges::part(&address, part)?;
            let mut client = edges::believing(client, &ca.display().to_string());
            client.env("TAVERN_KEY_FILE", &key);
            edges::run(client).await?;
        }
        Ok(())
    }

    /// Plays every transcript, with the keys of a caller and a person who decides.
    async fn plays_every_transcript(&self, processes: &mut [Process]) -> anyhow::Result<()> {
        let admin = self.directory.join("operator/admin.key");
        eventually("the gateway to be ready", || {
            let ready = self.tavern(&admin, &["keys", "list"]);
            async move { ready.ok() }
        })
        .await?;
        for process in processes.iter_mut() {
            process.ensure_alive()?;
        }
        let caller = self.key("mara", &["--role", "invoker"])?;
        let decider = self.key("ada", &["--role", "approver", "--group", "storykeeper"])?;
        let decider = decider.display().to_string();
        let examples = repository().join("deploy/examples").display().to_string();
        let play = [
            "play",
            "--examples",
            &examples,
            "--approver-key-file",
            &decider,
        ];
        // The services behind the gateway may need a moment more.
        eventually("every transcript to play", || {
            let played = self.tavern(&caller, &play);
            async move { played.ok() }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_compose_starts_plays_every_transcript() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let containers = composed()?;
    let (first, containers) = containers.split_first().context("there are containers")?;
    assert_eq!((&*first.name, containers.len()), ("setup", 5));
    for container in containers {
        std::fs::create_dir(directory.path().join(&container.name))?;
    }
    let [shell, script, arguments @ ..] = &*first.command else {
        anyhow::bail!("{:?} is no script", first.command);
    };
    assert_eq!((&**shell, &**script), ("sh", "/usr/share/tavern/setup.sh"));
    let script = repository().join("deploy/setup.sh").display().to_string();
    let command = [&*script, &*arguments[0]];
    let installation = Installation::set_up(directory.path(), &command)?;
    let names: Vec<String> = containers
        .iter()
        .map(|container| container.name.clone())
        .collect();
    let mut processes = Vec::new();
    for container in containers {
        let (name, environment) = (&*container.name, &container.environment);
        // Within the private network every caller is a service whose trace continues.
        let trusts = environment
            .iter()
            .any(|(key, value)| key.ends_with("__SERVER__TRACE_TRUST") && value == "anyone");
        assert_eq!(trusts, name != "gateway", "{name}");
        let data = directory.path().join(name);
        let environment = at_home(environment, &installation.host, &names, &data);
        let program = binary(&container.command[0])?;
        processes.push(Process::start(name, &program, &[], &environment, &data)?);
    }
    installation.plays_every_transcript(&mut processes).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_the_image_plays_every_transcript() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("tavern");
    std::fs::create_dir(&data)?;
    let script = repository().join("deploy/setup.sh").display().to_string();
    let installation = Installation::set_up(directory.path(), &[&script, "one"])?;
    installation.name_host()?;
    let environment = at_home(&image()?, &installation.host, &[], &data);
    let program = binary("tavern")?;
    installation.refuses_to_serve_without_a_key(&environment)?;
    let mut processes = [Process::start(
        "tavern",
        &program,
        &["serve"],
        &environment,
        directory.path(),
    )?];
    installation.plays_every_transcript(&mut processes).await?;
    installation.answers_foreign_clients().await
}
