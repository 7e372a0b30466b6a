//! All services in this process, reached in memory.

use std::fs;
use std::net::SocketAddr;

use all_in_one::{Tavern, TavernSettings};
use anyhow::{Context, ensure};
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{Durability, RunOptions, RunState};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::invoke_text_request::Target;
use contracts::tavern::gateway::v1::{
    CallsTarget, InvokeTextRequest, InvokeTextResponse, ToolScope,
};
use contracts::tavern::registry::v1::BootstrapRequest;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use grpc_kit::{Outbound, ServerSettings, Shutdown, Transport};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::harness::Effort;

/// The tool that is called: it only reads the clock.
pub(crate) const TOOL: &str = "system:get_current_time";

/// All services, on data that are gone with this.
pub(crate) struct InProcess {
    tavern: Tavern,
    _directory: TempDir,
}

impl InProcess {
    /// Builds the services without plugins, workflows, agents or models.
    ///
    /// # Errors
    /// A service cannot be built.
    pub(crate) async fn start(effort: &Effort) -> anyhow::Result<Self> {
        Self::start_with(effort, &[]).await
    }

    /// Builds the services with these files in the deploy directory.
    ///
    /// # Errors
    /// A service cannot be built.
    pub(crate) async fn start_with(
        effort: &Effort,
        files: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let directory = effort.fresh_directory()?;
        let deploy_dir = directory.path().join("deploy");
        for part in ["plugins", "workflows", "agents", "models"] {
            fs::create_dir_all(deploy_dir.join(part))?;
        }
        for (name, text) in files {
            let file = deploy_dir.join(name);
            fs::create_dir_all(file.parent().context("a file has a directory")?)?;
            fs::write(file, text)?;
        }
        let data_dir = directory.path().join("data");
        let settings = TavernSettings {
            data_dir,
            deploy_dir,
            ..TavernSettings::default()
        };
        let tavern = Tavern::build(&settings).await?;
        Ok(Self {
            tavern,
            _directory: directory,
        })
    }

    /// Returns a way to every service, in memory.
    pub(crate) fn transport(&self) -> Transport {
        grpc_kit::local(&self.tavern.services())
    }

    /// Returns a way to every service, in memory, for a client with the first key, which this makes.
    ///
    /// # Errors
    /// A key exists.
    pub(crate) async fn behind_door(&self) -> anyhow::Result<Transport> {
        let mut identities = IdentityServiceClient::new(self.transport().outermost());
        let made = identities.bootstrap(BootstrapRequest::default()).await?;
        let key = format!("Bearer {}", made.into_inner().secret_key);
        let way = grpc_kit::local_behind(&self.tavern.services(), self.tavern.door());
        Ok(way.authorized(key.try_into()?))
    }

    /// Returns the gateway, in memory.
    pub(crate) fn gateway(&self) -> GatewayServiceClient<Outbound> {
        self.tavern.gateway()
    }

    /// Serves on a loopback socket as the program does, and returns the gateway as a foreign
    /// client sees it.
    ///
    /// # Errors
    /// The socket cannot be had.
    pub(crate) async fn gateway_over_socket(
        &self,
    ) -> anyhow::Result<GatewayServiceClient<Channel>> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = ServerSettings {
            listen,
            ..ServerSettings::default()
        };
        let listener = grpc_kit::bind(&settings).await?;
        let address = listener.local_addr()?;
        let server = grpc_kit::Server::new(settings, self.tavern.services());
        // It ends with the process.
        tokio::spawn(server.serve(listener, Shutdown::manual().0));
        connect(&format!("http://{address}")).await
    }

    /// Ends all tasks.
    pub(crate) async fn stop(self) {
        self.tavern.shutdown().await;
    }
}

/// Connects to a gateway as a foreign client does.
///
/// # Errors
/// No peer.
pub(crate) async fn connect(address: &str) -> anyhow::Result<GatewayServiceClient<Channel>> {
    let endpoint = Endpoint::from_shared(address.to_owned())?.tcp_nodelay(true);
    Ok(GatewayServiceClient::new(endpoint.connect().await?))
}

/// Returns a request for `calls` calls of [`TOOL`] without a journal.
pub(crate) fn invocation(calls: usize) -> InvokeTextRequest {
    let calls = CallsTarget {
        text: model_text(calls),
        scope: Some(scope()),
        ..CallsTarget::default()
    };
    InvokeTextRequest {
        target: Some(Target::Calls(calls)),
        options: Some(in_memory()),
        ..InvokeTextRequest::default()
    }
}

/// Returns the model text that calls [`TOOL`] `calls` times.
pub(crate) fn model_text(calls: usize) -> String {
    let call = format!("  <{TOOL}></{TOOL}>\n");
    format!("<ACTION>\n{}</ACTION>", call.repeat(calls))
}

/// Returns a scope in which only [`TOOL`] is visible.
pub(crate) fn scope() -> ToolScope {
    ToolScope {
        tool_ids: vec![TOOL.to_owned()],
        ..ToolScope::default()
    }
}

/// Returns the options of a run that is not written to disk.
pub(crate) fn in_memory() -> RunOptions {
    RunOptions {
        durability: Durability::Memory.into(),
        ..RunOptions::default()
    }
}

/// Follows an invocation to the end of its run and returns the number of records.
///
/// # Errors
/// The run does not succeed.
pub(crate) async fn follow(
    mut stream: tonic::Streaming<InvokeTextResponse>,
) -> anyhow::Result<u32> {
    let (mut records, mut ended) = (0, None);
    // To the end of the stream and not only of the run: dropping a stream makes the
    // connection reset it, and too many resets cost the connection.
    while let Some(answer) = stream.message().await? {
        records += 1;
        if let Some(Record::Terminal(terminal)) = contracts::watch::decode(answer.record)? {
            ended = terminal.run;
        }
    }
    let run = ended.context("the stream ended before the run did")?;
    ensure!(
        run.state() == RunState::Succeeded,
        "the run did not succeed: {:?}",
        run.outcome
    );
    Ok(records)
}
