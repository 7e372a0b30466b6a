//! Builds the service.

use std::{sync::Arc, time::Duration};

use blob_store::BlobStore;
use contracts::tavern::sandbox::v1::{
    blob_service_server::BlobServiceServer,
    script_sandbox_service_server::ScriptSandboxServiceServer,
    session_service_server::SessionServiceServer,
};
use grpc_kit::{Need, Services};
use sandbox_engine::{Engine, domain::isolation::IsolationLevel};
use server_files::ServerFiles;
use tenancy::{TenantSync, Tenants};

use crate::{
    error::Error,
    rpc::{BlobRpc, LONGEST as LONGEST_TRANSFER, Rpc},
    runner::sandbox::{Sandbox, packages::problem_of},
    settings::SandboxSettings,
    tenants::{BlobBounds, SandboxData},
};

/// The longest time that a session may take to become ready, and a cell to be interrupted.
const SET_UP: Duration = Duration::from_secs(120);

/// Examines the host and builds a sandbox. A host that reaches no level yields a sandbox that
/// refuses every script and reports the reason.
///
/// # Errors
/// Fails when the launcher program or a runtime profile is missing or wrong.
pub async fn build(settings: SandboxSettings) -> Result<Arc<Sandbox>, Error> {
    build_with(settings, None).await
}

/// Does the same for a sandbox whose blobs are at a server, if there is one.
///
/// # Errors
/// As [`build`], and when the database fails.
pub async fn build_with(
    settings: SandboxSettings,
    server: Option<ServerFiles>,
) -> Result<Arc<Sandbox>, Error> {
    let tenants = Tenants::default();
    let bounds = Arc::new(BlobBounds(tenants.clone()));
    let blobs = BlobStore::open_bounded(&settings.blobs, bounds, server)?;
    blobs.sweep_in_background();
    let engine = Engine::build(settings.engine(), &blobs).await?;
    log(&engine, settings.lowest_isolation);
    Ok(Sandbox::new(settings, blobs, engine, tenants))
}

/// Logs the runtimes that can be used, and the problems of the others.
fn log(engine: &Engine, lowest: IsolationLevel) {
    let report = &engine.report;
    for (level, failure) in &report.failures {
        tracing::warn!(level = level.name(), %failure, "isolation level not reached");
    }
    let level = report.level.map_or("none", IsolationLevel::name);
    let memory_enforcement = report.enforcement.name();
    if report.is_ready(lowest) {
        tracing::info!(level, memory_enforcement, "scripts can be run");
    } else {
        let lowest = lowest.name();
        tracing::error!(
            level,
            lowest,
            "scripts are refused: this host does not reach the lowest level"
        );
    }
    for packages in engine.packages.list() {
        let set = &packages.set;
        let mut runtimes = engine.runtimes.iter();
        let runtime = runtimes.find(|runtime| runtime.profile.name == set.runtime);
        let problem = match runtime {
            Some(runtime) => problem_of(&packages, runtime),
            None => Some(format!("there is no runtime {}", set.runtime)),
        };
        match problem {
            None => tracing::info!(set = set.name, "a package set can be used"),
            Some(problem) => {
                tracing::warn!(set = set.name, problem, "a package set cannot be used")
            }
        }
    }
    for runtime in &engine.runtimes {
        if let Err(problem) = &runtime.interpreter {
            let name = &runtime.profile.name;
            tracing::warn!(runtime = name, problem, "a runtime cannot be used");
        }
    }
}

/// Returns the need of the sandbox: that it may run scripts at all.
pub fn scripts(sandbox: &Arc<Sandbox>) -> Need {
    let sandbox = Arc::clone(sandbox);
    Need::condition("scripts", move || {
        let report = sandbox.report();
        match report.is_ready(sandbox.settings().lowest_isolation) {
            true => Ok(()),
            false => Err("scripts are refused; GetIsolation says why".to_owned()),
        }
    })
}

/// The services of a sandbox, with the longest times of their calls.
pub fn services(sandbox: Arc<Sandbox>) -> Services {
    let data = SandboxData(Arc::clone(&sandbox));
    let sync = TenantSync::service(sandbox.tenants().clone(), Arc::new(data));
    services_beside_gateway(sandbox).add(sync)
}

/// The services of a server that serves the gateway too: those for clients.
pub fn services_beside_gateway(sandbox: Arc<Sandbox>) -> Services {
    let longest = sandbox.longest_request();
    let blobs = BlobRpc::new(Arc::clone(&sandbox));
    let rpc = Rpc::new(sandbox);
    Services::new()
        .add(BlobServiceServer::new(blobs))
        .add(ScriptSandboxServiceServer::new(rpc.clone()))
        .add(SessionServiceServer::new(rpc))
        .method_timeout("tavern.sandbox.v1.BlobService/UploadBlob", LONGEST_TRANSFER)
        .method_timeout(
            "tavern.sandbox.v1.BlobService/DownloadBlob",
            LONGEST_TRANSFER,
        )
        .method_timeout("tavern.sandbox.v1.ScriptSandboxService/Execute", longest)
        .method_timeout(
            "tavern.sandbox.v1.ScriptSandboxService/ExecuteStream",
            longest,
        )
        .method_timeout("tavern.sandbox.v1.SessionService/RunCell", longest)
        .method_timeout("tavern.sandbox.v1.SessionService/CreateSession", SET_UP)
        .method_timeout("tavern.sandbox.v1.SessionService/InterruptCell", SET_UP)
}
