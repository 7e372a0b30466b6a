//! The service put together.

use std::{path::Path, sync::Arc};

use contracts::tavern::registry::v1::{
    approval_service_server::ApprovalServiceServer, audit_service_server::AuditServiceServer,
    call_service_server::CallServiceServer, identity_service_server::IdentityServiceServer,
    plugin_service_server::PluginServiceServer, tenant_service_server::TenantServiceServer,
    tool_registry_service_server::ToolRegistryServiceServer,
    tool_search_service_server::ToolSearchServiceServer,
    workspace_service_server::WorkspaceServiceServer,
};
use core_types::{Clock, IdSource, RunOwner, SystemClock, SystemIds, Tenant};
use data_home::{DataHome, HomeError, LogOptions, ServiceData};
use documents::{DocumentStore, StoredDocuments};
use grpc_kit::{Services, Transport};
use run_events::{Neighbours, RetentionSettings, Runs};
use run_log::RunLogs;
use sql_store::Database;
use tenancy::TenantSync;
use tokio::{sync::OnceCell, task::AbortHandle};
use tonic::Status;
use tool_domain::{catalogue::Catalogue, tool::Origin};

use workspace_store::Workspaces;

use crate::{
    approvals::{Approvals, Policy},
    audit::{Audit, Stores},
    conversation_files::{ConversationFiles, WORKSPACES},
    dispatch::{
        Dispatcher,
        backend::Backends,
        builtin::{self, Builtins},
        runs::ChildRuns,
        sandbox::{PackageSets, Sandbox, Sessions},
        script::Scripts,
    },
    error::Error,
    hooks::Hooks,
    identities::{Identities, Issuers},
    ledger::Ledger,
    peers::Peers,
    plugins::{self, PluginCatalogue, PluginSettings, Skipped, Surroundings},
    rpc::{
        ApprovalRpc, AuditRpc, Audited, CallRpc, CatalogueRpc, IdentityRpc, PluginRpc, TenantRpc,
        ToolSearchRpc, WorkspaceRpc,
    },
    runner::{
        agents::Agents,
        calls::{Calls, handles},
        invocation::Invocations,
        key_sources, retention,
        tenant_data::RegistryData,
        tenant_exchange::TenantExchange,
    },
    settings::RegistrySettings,
    store::{self, open_database},
    tenants::Tenants,
    tool_search::ToolSearch,
    tools::{Revision, Tools},
};

/// The name of the service in health checks and method names.
pub const SERVICE: &str = "tavern.registry.v1.ToolRegistryService";

/// The ledger of effects.
const EFFECTS: LogOptions = LogOptions::new("tool-registry.effects.db", "effect");
/// The log of runs.
const RUNS: LogOptions = LogOptions::new("tool-registry.runs.db", "call");

/// The data of this service. The key of the audit is moved by [`crate::copy_audit_key`].
pub const DATA: ServiceData = ServiceData {
    service: "tool-registry",
    file: store::DATABASE,
    in_file: &store::IN_FILE,
    schema: "registry",
    kinds: &[
        store::tools_of(Tenant::DEFAULT).kind,
        store::backends_of(Tenant::DEFAULT).kind,
        store::plugin_options_of(Tenant::DEFAULT).kind,
        store::switches_of(Tenant::DEFAULT).kind,
        plugins::state::STATE.kind,
        plugins::state::PLANS.kind,
    ],
    logs: &[EFFECTS, RUNS, crate::audit::LOG],
};

/// The tool registry.
#[derive(Clone)]
pub struct ToolRegistry {
    home: DataHome,
    tools: Tools,
    agents: Agents,
    approvals: Approvals,
    identities: Identities,
    audit: Audit,
    calls: Calls,
    invocations: Invocations,
    effects: RunLogs,
    retention: RetentionSettings,
    neighbours: Neighbours,
    /// The services that have data of tenants, this one included.
    tenant_services: Vec<Transport>,
    /// The exchange of tenants, the work of the audit, the scans at the plugin directory, and the view of its changes.
    endless: OnceCell<[AbortHandle; 4]>,
    agent: Transport,
    store: Arc<dyn DocumentStore>,
    files: ConversationFiles,
    plugins: PluginCatalogue,
    hooks: Hooks,
    search: ToolSearch,
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ToolRegistry")
            .field("skipped", &self.skipped_plugins())
            .finish_non_exhaustive()
    }
}

/// Opens the databases, loads the plugins and puts the service together.
///
/// # Errors
/// [`Error`] names the part that cannot be used. A plugin that cannot be loaded is not an error: it
/// is skipped and named by [`ToolRegistry::skipped_plugins`].
pub async fn build(settings: RegistrySettings, peers: Peers) -> Result<ToolRegistry, Error> {
    build_with(&settings, peers, Arc::new(SystemClock), Arc::new(SystemIds)).await
}

/// Does the same with a clock and a source of identifiers.
///
/// # Errors
/// As [`build`].
pub async fn build_with(
    settings: &RegistrySettings,
    peers: Peers,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
) -> Result<ToolRegistry, Error> {
    let home = DataHome::open(settings.home()).await?;
    build_at(home, settings, peers, (clock, ids)).await
}

/// Puts the service together at a home that the process has opened, in place of that of the settings.
///
/// # Errors
/// As [`build`].
pub async fn build_at(
    home: DataHome,
    settings: &RegistrySettings,
    peers: Peers,
    (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
) -> Result<ToolRegistry, Error> {
    let database = open_database(&home).await?;
    let identities = load_identities(&database, settings, &clock, (&home, peers.proven)).await?;
    let parts = (database.clone(), Arc::clone(&clock), Arc::clone(&ids));
    let audit = open_audit(&home, settings, identities.clone(), parts.clone()).await?;
    let approvals = load_approvals(settings, identities.clone(), parts)?;
    let packages = Arc::new(database.clone());
    let store: Arc<dyn DocumentStore> = Arc::new(StoredDocuments::new(database));
    let effects = home.log(EFFECTS).await?;
    let runs = home.log(RUNS).await?;
    let files = open_workspaces(&home, settings, (&ids, &peers))?;

    let (own, own_slot) = grpc_kit::late();
    let tenant_services = with_tenants(&peers, own.clone());
    let neighbours = neighbours_of(&peers, own);
    let places = (settings, Surroundings::of(&peers));
    let sets = PackageSets::new(peers.sandbox.clone(), &settings.code_interpreter.packages);
    let sandbox = Sandbox::new(peers.sandbox.clone(), sets.clone());
    let backends = Backends::new(Arc::clone(&store), settings.allowed_hosts());
    let agents = Agents::new(peers.agent.clone());
    let workflow_runs = ChildRuns::new(peers.workflow, peers.agent.clone());
    let tools = Tools::new(
        builtin_revision(),
        Arc::clone(&store),
        Arc::clone(&clock),
        workflow_runs.clone(),
        (backends.clone(), sets),
    );
    let ledger = Ledger::new(effects.clone(), Arc::clone(&clock), Arc::clone(&ids));
    let of_all = (tools.clone(), identities.tenants().clone());
    let stores = (Arc::clone(&store), packages, files.all().clone());
    let plugins =
        open_plugins(places, (of_all, ledger.clone()), stores, Arc::clone(&clock)).await?;
    tools.restore().await?;
    let catalogue = tools.catalogue(Tenant::DEFAULT).await?;
    report(&approvals, &catalogue, &settings.approvals_file);
    let sessions = Sessions::new(peers.sandbox);
    let around = (sessions, peers.agent.clone(), Arc::clone(&clock));
    let dispatcher = Dispatcher {
        home: home.clone(),
        builtins: Builtins::new(files.clone(), sandbox.clone(), around),
        backends,
        scripts: Scripts::new(sandbox, files.clone()),
        runs: workflow_runs,
    };
    let hooks = Hooks::new(tools.clone(), &dispatcher);
    let runs = Runs::new(runs, RunOwner::Registry, clock, Arc::clone(&ids));
    let calls = Calls::new(
        (tools.clone(), plugins.clone()),
        (dispatcher, hooks.clone()),
        ledger,
        (approvals.clone(), identities.clone(), audit.clone()),
        agents.clone(),
        runs.clone(),
        settings.call_limits(),
    );
    let invocations = Invocations::new(runs, calls.clone(), ids);
    let registry = ToolRegistry {
        home,
        plugins,
        hooks,
        search: ToolSearch::new(tools.clone()),
        tools,
        agents,
        approvals,
        identities,
        audit,
        calls,
        invocations,
        effects,
        retention: settings.retention,
        neighbours,
        tenant_services,
        endless: OnceCell::new(),
        agent: peers.agent,
        store,
        files,
    };
    own_slot.fill(grpc_kit::local(&registry.services()));
    Ok(registry)
}

impl ToolRegistry {
    /// Returns the gRPC services, for a socket or in process.
    pub fn services(&self) -> Services {
        let runs = self.invocations.runs();
        let data = RegistryData {
            runs: runs.clone(),
            calls: self.calls.clone(),
            approvals: self.approvals.clone(),
            documents: Arc::clone(&self.store),
            workspaces: self.files.all().clone(),
            tools: self.tools.clone(),
            search: self.search.clone(),
        };
        self.services_beside_gateway()
            .add(runs.service())
            .add(TenantSync::service(runs.tenants().clone(), Arc::new(data)))
    }

    /// Returns the services of a server that serves the gateway too, whose run service covers these
    /// runs, and which are for clients.
    pub fn services_beside_gateway(&self) -> Services {
        let catalogue = CatalogueRpc::new(
            self.tools.clone(),
            (self.agents.clone(), self.identities.clone()),
            self.approvals.clone(),
            self.plugins.clone(),
        );
        let plugins = PluginRpc::new(
            self.plugins.clone(),
            (self.tools.clone(), self.hooks.clone()),
            catalogue.clone(),
        );
        let calls = CallRpc::new(self.calls.clone(), self.invocations.clone());
        let tenants = TenantRpc::new(self.identities.tenants().clone());
        let identities = IdentityRpc::new(self.identities.clone(), self.tools.clone());
        let audit = AuditRpc::new(self.audit.clone(), self.identities.clone());
        Services::new()
            .add(self.audited(ToolRegistryServiceServer::new(catalogue)))
            .add(self.audited(PluginServiceServer::new(plugins)))
            .add(CallServiceServer::new(calls))
            .add(ApprovalServiceServer::new(ApprovalRpc::new(
                self.calls.clone(),
            )))
            .add(self.audited(IdentityServiceServer::new(identities)))
            .add(self.audited(TenantServiceServer::new(tenants)))
            .add(AuditServiceServer::new(audit))
            .add(ToolSearchServiceServer::new(ToolSearchRpc::new(
                self.search.clone(),
            )))
            .add(WorkspaceServiceServer::new(WorkspaceRpc::new(
                self.files.clone(),
            )))
    }

    fn audited<S>(&self, service: S) -> Audited<S> {
        Audited::new(service, &self.audit)
    }

    /// Returns principals, their keys and their rights.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Continues the work that a crash cut off: open invocations and unsettled effects. Call it
    /// once the server listens. Peers need not be there yet.
    ///
    /// # Errors
    /// A status when the logs cannot be read.
    pub async fn recover(&self) -> Result<(), Status> {
        let (resumed, settled) = (self.invocations.resume().await, self.calls.recover().await);
        let (resumed, settled) = (resumed?, settled?);
        let invocations = self.invocations.clone();
        self.invocations.runs().resume_left_open(move || {
            let invocations = invocations.clone();
            async move { invocations.resume().await.map(drop) }
        });
        self.endless.get_or_init(|| self.begin_endless_work()).await;
        if resumed + settled > 0 {
            tracing::info!(
                resumed,
                settled,
                "work that a crash cut off continues or is settled as in doubt"
            );
        }
        Ok(())
    }

    /// Begins the work that lasts as long as the registry: the exchange of tenants, that of the audit, the scans at the
    /// plugin directory and the view of its changes, which it returns, the reading of issuers' keys, and retention.
    async fn begin_endless_work(&self) -> [AbortHandle; 4] {
        self.tools.read_package_sets();
        self.identities.begin_reading_keys();
        let (identities, services) = (self.identities.clone(), self.tenant_services.clone());
        let exchange = TenantExchange::new(identities, services);
        let exchange = exchange.begin().await.abort_handle();
        let calls = (self.calls.ledger(), &self.approvals);
        let (neighbours, agent) = (self.neighbours.clone(), self.agent.clone());
        let runs = self.invocations.runs();
        retention::begin(self.retention, runs, calls, neighbours, agent);
        let scans = tokio::spawn(self.plugins.clone().keep_scanning());
        let hooks = self.hooks.clone();
        let changes = tokio::spawn(hooks.keep_showing_changes(self.plugins.clone()));
        [
            exchange,
            self.audit.begin().abort_handle(),
            scans.abort_handle(),
            changes.abort_handle(),
        ]
    }

    /// Returns the plugins, and single tools, of the plugin directory that are not in force, with the reasons.
    pub fn skipped_plugins(&self) -> Vec<Skipped> {
        self.plugins.skipped()
    }

    /// Returns the home of the tables and logs.
    pub fn home(&self) -> &DataHome {
        &self.home
    }

    /// Gives calls in flight some time, then ends everything and closes the databases. Runs that
    /// are not over resume at the next start.
    pub async fn shutdown(&self) {
        for endless in self.endless.get().into_iter().flatten() {
            endless.abort();
        }
        // The tasks of runs wait for calls, so they go first and leave their runs open.
        self.invocations.runs().shutdown().await;
        self.calls.shutdown().await;
        self.effects.close().await;
        self.audit.close().await;
        self.store.close().await;
    }
}

/// Loads the file of rules and approvers.
fn load_approvals(
    settings: &RegistrySettings,
    identities: Identities,
    (database, clock, ids): (Database, Arc<dyn Clock>, Arc<dyn IdSource>),
) -> Result<Approvals, Error> {
    let policy = Policy::load(&settings.approvals_file)?;
    Ok(Approvals::new(policy, identities, database, clock, ids))
}

/// Returns the services that have data of tenants; `own` leads to this one.
fn with_tenants(peers: &Peers, own: Transport) -> Vec<Transport> {
    let others = [&peers.workflow, &peers.agent, &peers.sandbox].map(Transport::clone);
    [own].into_iter().chain(others).collect()
}

/// Opens the directory of workspaces, or of their copies where they are at a server.
fn open_workspaces(
    home: &DataHome,
    settings: &RegistrySettings,
    (ids, peers): (&Arc<dyn IdSource>, &Peers),
) -> Result<ConversationFiles, Error> {
    let name = match home.is_shared() {
        true => "workspace-copies",
        false => WORKSPACES,
    };
    let directory = home.directory().directory(name);
    let directory = directory.map_err(HomeError::from)?;
    let (limits, ids) = (settings.workspace, Arc::clone(ids));
    let opened = Workspaces::open(&directory, limits, ids, home.files());
    let opened = opened.map_err(Error::Workspaces)?;
    Ok(ConversationFiles::new(opened, peers.agent.clone()))
}

/// Returns the services that know whether a run that ended is still needed; `own` leads to this service.
fn neighbours_of(peers: &Peers, own: Transport) -> Neighbours {
    Neighbours::new(own)
        .with(RunOwner::Workflow, peers.workflow.clone())
        .with(RunOwner::Agent, peers.agent.clone())
}

/// Logs the findings about the file of rules and approvers, which all tenants have, against the tools of the default
/// one.
fn report(approvals: &Approvals, catalogue: &Catalogue, file: &Path) {
    for finding in approvals.findings(catalogue) {
        tracing::warn!(path = %file.display(), %finding, "a rule for approvals may have no effect");
    }
    if approvals.refuses_file() {
        tracing::warn!(
            path = %file.display(),
            "the approvers of the file are no longer accepted, as keys of principals exist; \
             `tavern keys import-approvers` makes principals of them"
        );
    }
}

/// Returns the issuers of the settings with the places of their keys.
fn issuers_of(settings: &RegistrySettings, clock: &Arc<dyn Clock>) -> Issuers {
    let issuers = settings.issuers.iter().map(|issuer| {
        let source = key_sources::source_of(&issuer.keys, &issuer.ca_file);
        (issuer.as_domain(), source)
    });
    Issuers::new(issuers.collect(), settings.token_rights, clock)
}

/// Loads principals and keys. With a key or an issuer, the service works only where the others prove themselves.
async fn load_identities(
    database: &Database,
    settings: &RegistrySettings,
    clock: &Arc<dyn Clock>,
    (home, proven): (&DataHome, bool),
) -> Result<Identities, Error> {
    let issuers = issuers_of(settings, clock);
    let identities = Identities::load(database.clone(), issuers, Arc::clone(clock), proven);
    let identities = identities.await;
    let identities = identities.map_err(Error::Identities)?;
    match identities.is_open() || proven {
        true => Ok(identities),
        false => Err(Error::KeysNeedProof {
            path: home.to_string(),
        }),
    }
}

/// Opens the audit.
pub(crate) async fn open_audit(
    home: &DataHome,
    settings: &RegistrySettings,
    identities: Identities,
    (database, clock, ids): (Database, Arc<dyn Clock>, Arc<dyn IdSource>),
) -> Result<Audit, Error> {
    let stores = Stores {
        database: database.clone(),
        identities,
        documents: Arc::new(StoredDocuments::new(database)),
    };
    Audit::open(home, settings.audit.clone(), stores, (clock, ids)).await
}

/// Opens the plugins of the settings.
async fn open_plugins(
    (settings, surroundings): (&RegistrySettings, Surroundings),
    of_all: ((Tools, Tenants), Ledger),
    (store, packages, workspaces): (Arc<dyn DocumentStore>, Arc<Database>, Workspaces),
    clock: Arc<dyn Clock>,
) -> Result<PluginCatalogue, Error> {
    let stores = (store, packages as _, workspaces);
    let places = PluginSettings {
        directory: settings.plugins_dir.clone(),
        without_plugins: settings.without_plugins,
    };
    let plugins = PluginCatalogue::open((places, surroundings), of_all, stores, clock).await;
    plugins.map_err(|source| Error::Plugins {
        path: settings.plugins_dir.display().to_string(),
        source,
    })
}

/// Makes the revision with the platform's tools alone.
fn builtin_revision() -> Revision {
    let mut catalogue = Catalogue::default();
    let definitions = builtin::definitions();
    for definition in definitions.into_iter().chain(handles::definitions()) {
        let added = catalogue.add(definition, Origin::Builtin);
        added.expect("the platform's own definitions are tested");
    }
    Revision {
        catalogue: Arc::new(catalogue),
        ..Revision::default()
    }
}
