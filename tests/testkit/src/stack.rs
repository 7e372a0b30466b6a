//! Tavern as processes: all services in one, or each in its own.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, ensure};
use contracts::tavern::registry::v1::BootstrapRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use grpc_kit::tls::ClientTls;
use grpc_kit::{ClientSettings, Outbound, ServiceName, Transport};
use tempfile::TempDir;
use tonic::{Code, Request};

use crate::approvals::approvals_file;
use crate::certificates::Certificates;
use crate::database;
use crate::process::{Process, binary, repository};
use crate::wait::eventually;

/// A service: the name of its program, the prefix of its settings, and its port.
struct Service {
    program: &'static str,
    prefix: &'static str,
    port: u16,
}

/// A name of every encrypted stack that is no name of loopback.
pub const PUBLIC_NAME: &str = "tavern.example";

const GATEWAY: Service = Service {
    program: "gateway",
    prefix: "TAVERN_GATEWAY",
    port: 7401,
};
const REGISTRY: Service = Service {
    program: "tool-registry",
    prefix: "TAVERN_REGISTRY",
    port: 7402,
};
const WORKFLOW: Service = Service {
    program: "workflow-execution",
    prefix: "TAVERN_WORKFLOW",
    port: 7403,
};
const SANDBOX: Service = Service {
    program: "script-sandbox",
    prefix: "TAVERN_SANDBOX",
    port: 7404,
};
const AGENT: Service = Service {
    program: "agent-runtime",
    prefix: "TAVERN_AGENT",
    port: 7405,
};
const ALL: [&Service; 5] = [&SANDBOX, &REGISTRY, &WORKFLOW, &AGENT, &GATEWAY];

/// The `PATH` of a sandbox. With the `PATH` of a host that has more interpreters, a sandbox would
/// try and measure each one when it starts, which here happens in every test.
const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin";

/// The settings of a stack to start.
#[derive(Clone, Debug, Default)]
pub struct StackBuilder {
    separate: bool,
    with_certificates: bool,
    encrypted: bool,
    with_keys: bool,
    deploy: Option<PathBuf>,
    database: Option<String>,
    environment: Vec<(String, String)>,
}

/// Tavern as processes, which end with this.
#[derive(Debug)]
pub struct Stack {
    builder: StackBuilder,
    host: String,
    directory: TempDir,
    processes: Vec<Process>,
    /// The key of the administrator; `None` while no key exists.
    key: Option<String>,
    /// The certificates of the services, by which they prove themselves or which clients of the gateway see.
    certificates: Option<Certificates>,
    /// The database, in place of files.
    database: Option<String>,
}

impl StackBuilder {
    /// Starts each service as a process of its own.
    pub fn separate(mut self) -> Self {
        self.separate = true;
        self
    }

    /// Starts each service as a process of its own that proves itself to the others.
    pub fn proven(mut self) -> Self {
        self.with_certificates = true;
        self.separate()
    }

    /// Serves clients over TLS, at the address of the stack and as [`PUBLIC_NAME`].
    pub fn encrypted(mut self) -> Self {
        self.encrypted = true;
        self
    }

    /// Creates the key of an administrator at the first start, which the clients of the stack send.
    pub fn with_keys(mut self) -> Self {
        self.with_keys = true;
        self
    }

    /// Reads plugins, workflows, agents and models from `deploy` instead of the repository's.
    pub fn deploy(mut self, deploy: impl Into<PathBuf>) -> Self {
        self.deploy = Some(deploy.into());
        self
    }

    /// Keeps tables and logs in a database instead of files.
    pub fn database(mut self, address: impl Into<String>) -> Self {
        self.database = Some(address.into());
        self
    }

    /// Sets an environment variable of every process.
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// Starts the processes and waits until each of them serves.
    ///
    /// # Errors
    /// A program is missing or does not come up; the error has its output.
    pub async fn start(self) -> anyhow::Result<Stack> {
        let mut stack = Stack {
            database: self.database.clone(),
            builder: self,
            host: own_loopback_address(),
            directory: TempDir::with_prefix("tavern-test-")?,
            processes: Vec::new(),
            key: None,
            certificates: None,
        };
        if stack.database.is_none() {
            stack.database = database::of_run().await?;
        }
        if stack.builder.with_certificates || stack.builder.encrypted {
            let directory = stack.directory.path().join("certs");
            stack.certificates = Some(Certificates::make(directory)?);
        }
        if let Some(certificates) = stack.encryption() {
            certificates.name_hosts(ServiceName::Gateway, &[&stack.host, PUBLIC_NAME])?;
        }
        stack.restart().await?;
        if stack.builder.with_keys {
            stack.bootstrap().await?;
        }
        Ok(stack)
    }
}

impl Stack {
    /// Starts to describe a stack.
    pub fn builder() -> StackBuilder {
        StackBuilder::default().env("PATH", PROGRAMS)
    }

    /// Starts all services in one process.
    ///
    /// # Errors
    /// As [`StackBuilder::start`].
    pub async fn all_in_one() -> anyhow::Result<Self> {
        Self::builder().start().await
    }

    /// Returns the address of the gateway.
    pub fn address(&self) -> String {
        self.uri(&GATEWAY)
    }

    /// Creates the first key, which the clients of the stack send from now on. It is in [`Stack::key_file`].
    ///
    /// # Errors
    /// A key exists, or the file cannot be written.
    pub async fn bootstrap(&mut self) -> anyhow::Result<()> {
        let mut identities = self.identities();
        let created = identities.bootstrap(BootstrapRequest::default());
        let key = created.await?.into_inner().secret_key;
        let mut file = OpenOptions::new();
        let mut file = file
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.key_file())?;
        file.write_all(key.as_bytes())?;
        self.key = Some(key);
        Ok(())
    }

    /// Returns the file with the key of the administrator.
    pub fn key_file(&self) -> PathBuf {
        self.directory.path().join("admin.key")
    }

    /// Returns the key of the administrator; `None` while no key exists.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the transport of a client at the gateway that sends `key`, or no credential.
    ///
    /// # Panics
    /// The key is no text for a header.
    pub fn transport_with(&self, key: Option<&str>) -> Transport {
        let settings = ClientSettings {
            tls: self
                .encryption()
                .map(Certificates::ca_alone)
                .unwrap_or_default(),
            ..ClientSettings::to(self.uri(&GATEWAY))
        };
        let transport = grpc_kit::remote(&settings).expect("a loopback address is a good address");
        match key.map(|key| format!("Bearer {key}").parse()) {
            Some(header) => transport.authorized(header.expect("a key is plain text")),
            None => transport,
        }
    }

    /// Sets an environment variable of every process from the next start on.
    pub fn set_env(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.builder.environment.push((key.into(), value.into()));
    }

    /// Keeps tables and logs in a database from the next start on.
    pub fn move_to(&mut self, address: impl Into<String>) {
        self.database = Some(address.into());
    }

    /// Returns the directory that holds data and logs of the stack.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the processes.
    pub fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }

    /// Kills every process at once; data stay.
    ///
    /// # Errors
    /// A process cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().try_for_each(Process::kill)?;
        self.processes.clear();
        Ok(())
    }

    /// Requests every process to end, and waits for it.
    ///
    /// # Errors
    /// A process cannot be signalled or waited for.
    pub fn terminate(&mut self) -> anyhow::Result<Vec<ExitStatus>> {
        let ended = self
            .processes
            .iter_mut()
            .rev()
            .map(Process::terminate)
            .collect();
        self.processes.clear();
        ended
    }

    /// Starts every process on the existing data.
    ///
    /// # Errors
    /// As [`StackBuilder::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        if self.builder.separate {
            for service in ALL {
                let environment = self.environment(service)?;
                self.spawn(service.program, &[], &environment)?;
            }
            for service in ALL {
                self.await_service(service).await?;
            }
            return Ok(());
        }
        let listen = format!("{}:{}", self.host, GATEWAY.port);
        let data = self.directory.path().join("data").display().to_string();
        let deploy = self.deploy().display().to_string();
        let mut environment = self.builder.environment.clone();
        environment.extend(database::settings(self.database.as_deref(), "TAVERN"));
        environment.push((
            "TAVERN__APPROVALS_FILE".to_owned(),
            approvals_file(&self.deploy(), self.directory.path())?,
        ));
        let mut arguments = vec![
            "serve",
            "--listen",
            &listen,
            "--data-dir",
            &data,
            "--deploy-dir",
            &deploy,
        ];
        let pair = self
            .encryption()
            .map(|made| made.pair(ServiceName::Gateway));
        let [cert, key] = pair.unwrap_or_default();
        if self.builder.encrypted {
            arguments.extend(["--tls-cert", &cert, "--tls-key", &key]);
        }
        self.spawn("tavern", &arguments, &environment)?;
        self.await_service(&GATEWAY).await
    }

    /// Kills one service of a separate stack at once; its data stay.
    ///
    /// # Errors
    /// It does not run, or cannot be waited for.
    pub fn kill_service(&mut self, program: &str) -> anyhow::Result<()> {
        self.take_service(program)?.kill()
    }

    /// Requests one service of a separate stack to end, and waits for it.
    ///
    /// # Errors
    /// It does not run, or cannot be signalled or waited for.
    pub fn terminate_service(&mut self, program: &str) -> anyhow::Result<ExitStatus> {
        self.take_service(program)?.terminate()
    }

    /// Starts one service of a separate stack on the existing data; ends it first if it runs.
    ///
    /// # Errors
    /// There is no such service, or it does not come up.
    pub async fn restart_service(&mut self, program: &str) -> anyhow::Result<()> {
        ensure!(self.builder.separate, "the services are one process");
        let service = ALL.into_iter().find(|service| service.program == program);
        let service = service.with_context(|| format!("there is no service {program}"))?;
        if let Ok(mut running) = self.take_service(program) {
            running.kill()?;
        }
        let environment = self.environment(service)?;
        self.spawn(service.program, &[], &environment)?;
        self.await_service(service).await
    }

    fn take_service(&mut self, program: &str) -> anyhow::Result<Process> {
        let place = self
            .processes
            .iter()
            .position(|process| process.name() == program);
        let place = place.with_context(|| format!("{program} does not run"))?;
        Ok(self.processes.swap_remove(place))
    }

    /// Returns the certificates of the services.
    ///
    /// # Panics
    /// The stack has none.
    pub fn certificates(&self) -> &Certificates {
        let certificates = self.certificates.as_ref();
        certificates.expect("the stack was started with certificates")
    }

    /// Returns the file with the CA that clients believe; `None` for a stack that serves them without TLS.
    pub fn ca(&self) -> Option<String> {
        self.encryption().map(Certificates::ca)
    }

    /// Returns the certificates of a stack that serves clients over TLS.
    fn encryption(&self) -> Option<&Certificates> {
        let made = self.certificates.as_ref();
        made.filter(|_| self.builder.encrypted)
    }

    /// Returns the certificates by which the services prove themselves.
    fn proof(&self) -> Option<&Certificates> {
        let made = self.certificates.as_ref();
        made.filter(|_| self.builder.with_certificates)
    }

    /// Returns the way to a service of a separate stack with certificates of its own.
    pub fn transport_of(&self, service: ServiceName, tls: ClientTls) -> Transport {
        let service = ALL
            .into_iter()
            .find(|known| known.program == service.program());
        let service = service.expect("the stack has all services");
        let uri = self.uri(service);
        grpc_kit::remote(&ClientSettings { uri, tls }).expect("the certificates are good")
    }

    /// Returns the way to a service: to one behind the gateway as the gateway goes, if it is a process of its own.
    pub(crate) fn transport(&self, service: ServiceName) -> Transport {
        if !self.builder.separate || service == ServiceName::Gateway {
            return self.transport_with(self.key.as_deref());
        }
        let of_gateway = |made: &Certificates| made.client(ServiceName::Gateway.word(), service);
        self.transport_of(service, self.proof().map(of_gateway).unwrap_or_default())
    }

    fn uri(&self, service: &Service) -> String {
        let port = if self.builder.separate {
            service.port
        } else {
            GATEWAY.port
        };
        // Clients of the gateway have no certificates.
        let is_encrypted = match service.program == GATEWAY.program {
            true => self.builder.encrypted,
            false => self.builder.with_certificates,
        };
        let scheme = if is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}:{port}", self.host)
    }

    fn deploy(&self) -> PathBuf {
        self.builder
            .deploy
            .clone()
            .unwrap_or_else(|| repository().join("deploy"))
    }

    fn environment(&self, service: &Service) -> anyhow::Result<Vec<(String, String)>> {
        let mut environment = self.builder.environment.clone();
        if service.program == "agent-runtime" {
            let file = self
                .deploy()
                .join("agent-runtime.toml")
                .display()
                .to_string();
            environment.push(("TAVERN_AGENT_CONFIG".to_owned(), file));
        }
        if ["tool-registry", "workflow-execution", "agent-runtime"].contains(&service.program) {
            environment.extend(database::settings(self.database.as_deref(), service.prefix));
        }
        let mut set = |key: &str, value: String| {
            environment.push((format!("{}__{key}", service.prefix), value));
        };
        set("SERVER__LISTEN", format!("{}:{}", self.host, service.port));
        let peers: &[(&str, &Service)] = match service.program {
            "gateway" => &[
                ("REGISTRY", &REGISTRY),
                ("WORKFLOW", &WORKFLOW),
                ("SANDBOX", &SANDBOX),
                ("AGENT", &AGENT),
            ],
            "tool-registry" => &[
                ("WORKFLOW", &WORKFLOW),
                ("SANDBOX", &SANDBOX),
                ("AGENT", &AGENT),
            ],
            "workflow-execution" => &[
                ("REGISTRY", &REGISTRY),
                ("SANDBOX", &SANDBOX),
                ("AGENT", &AGENT),
            ],
            "agent-runtime" => &[("REGISTRY", &REGISTRY), ("WORKFLOW", &WORKFLOW)],
            _ => &[],
        };
        for (key, peer) in peers {
            set(&format!("{key}__URI"), self.uri(peer));
        }
        let peers: Vec<_> = peers.iter().map(|(key, _)| *key).collect();
        for (key, file) in self.tls_settings(service.program, &peers) {
            set(&key, file);
        }
        if service.program == "script-sandbox" {
            let blobs = self.directory.path().join("blobs");
            set("BLOBS__DIRECTORY", blobs.display().to_string());
        }
        let deploy = |part: &str| self.deploy().join(part).display().to_string();
        match service.program {
            "tool-registry" => {
                set("PLUGINS_DIR", deploy("plugins"));
                set(
                    "APPROVALS_FILE",
                    approvals_file(&self.deploy(), self.directory.path())?,
                );
            }
            "workflow-execution" => set("WORKFLOWS_DIR", deploy("workflows")),
            "agent-runtime" => {
                set("AGENTS_DIR", deploy("agents"));
                set("SCENES_DIR", deploy("scenes"));
                set("KNOWLEDGE_DIR", deploy("knowledge"));
                set("SCRIPTS_DIR", deploy("models"));
            }
            _ => {}
        }
        if !matches!(service.program, "gateway" | "script-sandbox") {
            set(
                "DATA_DIR",
                self.directory
                    .path()
                    .join(service.program)
                    .display()
                    .to_string(),
            );
        }
        Ok(environment)
    }

    /// Returns the settings of TLS of a program that calls `peers`.
    fn tls_settings(&self, program: &str, peers: &[&str]) -> Vec<(String, String)> {
        let proof = self.proof().map(|made| made.settings(program, peers));
        let mut settings = proof.unwrap_or_default();
        if let Some(made) = self.encryption().filter(|_| program == GATEWAY.program) {
            let files = ["CERT", "KEY"]
                .into_iter()
                .zip(made.pair(ServiceName::Gateway));
            settings.extend(files.map(|(key, file)| (format!("SERVER__TLS__{key}"), file)));
        }
        settings
    }

    fn spawn(
        &mut self,
        program: &str,
        arguments: &[&str],
        environment: &[(String, String)],
    ) -> anyhow::Result<()> {
        let path = binary(program)?;
        let process = Process::start(
            program,
            &path,
            arguments,
            environment,
            self.directory.path(),
        )?;
        self.processes.push(process);
        Ok(())
    }

    /// Waits until a service answers, or returns the output of its process if it ended.
    async fn await_service(&mut self, service: &Service) -> anyhow::Result<()> {
        let name = ServiceName::of_program(service.program);
        let mut probe = RunServiceClient::new(
            self.transport(name.unwrap_or(ServiceName::Gateway))
                .outermost(),
        );
        let what = format!("{} to serve", service.program);
        let processes = &mut self.processes;
        let answered = eventually(&what, || {
            if let Some(error) = processes
                .iter_mut()
                .find_map(|process| process.ensure_alive().err())
            {
                return probe_once(Some(Err(error)), &mut probe);
            }
            probe_once(None, &mut probe)
        });
        answered.await?
    }
}

/// Requests a run that does not exist: any answer but "unavailable" means that the service serves.
fn probe_once(
    failed: Option<anyhow::Result<()>>,
    probe: &mut RunServiceClient<Outbound>,
) -> impl Future<Output = Option<anyhow::Result<()>>> + use<> {
    let mut probe = probe.clone();
    async move {
        if failed.is_some() {
            return failed;
        }
        let request = contracts::tavern::run::v1::GetRunRequest {
            run_id: String::new(),
        };
        let code = probe.get_run(Request::new(request)).await.err()?.code();
        (code != Code::Unavailable).then_some(Ok(()))
    }
}

/// Returns a loopback address that no other stack of this machine is likely to use: all of
/// 127.0.0.0/8 belongs to this machine, so fixed ports never collide.
pub fn own_loopback_address() -> String {
    let random = uuid::Uuid::now_v7().into_bytes();
    format!(
        "127.{}.{}.{}",
        1 + random[13] % 254,
        random[14],
        1 + random[15] % 254
    )
}
