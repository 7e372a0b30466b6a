//! Plugins as packages of the installation.

mod hooks;
mod node_types;
mod options;
mod overrides;
mod watch_tools;

use std::sync::Arc;

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        ApplyHooksRequest, ApplyHooksResponse, CallOverrideRequest, CallOverrideResponse,
        GetPluginOptionsRequest, GetPluginOptionsResponse, InstallPluginRequest,
        InstallPluginResponse, ListHooksRequest, ListHooksResponse, PlanPluginRequest,
        PlanPluginResponse, PluginPlan, ResolveNodeTypesRequest, ResolveNodeTypesResponse,
        RollbackPluginRequest, RollbackPluginResponse, SetPluginStateRequest,
        SetPluginStateResponse, SetToolStateRequest, SetToolStateResponse, UninstallPluginRequest,
        UninstallPluginResponse, UpdatePluginOptionsRequest, UpdatePluginOptionsResponse,
        WatchHookPointsRequest, WatchHookPointsResponse, WatchPluginsRequest, WatchPluginsResponse,
        WatchToolsRequest, WatchToolsResponse, plan_plugin_request::Part,
        plugin_service_server::PluginService,
    },
};
use core_types::Tenant;
use documents::{Request as Repeatable, change::request_id_reused};
use grpc_kit::{CallContext, Drain, Failure};
use plugin_package::MAX_PACKED_BYTES;
use prost::Message;
use run_events::{store_failure, to_its_end};
use run_log::Hash;
use tonic::{Code, Request, Response, Status, Streaming};
use tool_domain::diagnostic::Diagnostic;

pub(super) use overrides::unanswered;
use watch_tools::WatchedTools;

use super::{Answer, CatalogueRpc, StreamOf, convert, refusal};
use crate::{
    hooks::Hooks,
    overrides::StandIns,
    plugins::{PluginCatalogue, PluginChange, PluginError, Source},
    tools::{Switch, Tools},
};

/// Plugins as a gRPC service.
#[derive(Clone, Debug)]
pub struct PluginRpc {
    plugins: PluginCatalogue,
    tools: Tools,
    hooks: Hooks,
    stand_ins: StandIns,
    catalogue: CatalogueRpc,
    watched: Arc<WatchedTools>,
}

impl PluginRpc {
    /// Takes the plugins, the tools, the hooks, and the service that lists plugins.
    pub fn new(
        plugins: PluginCatalogue,
        (tools, hooks): (Tools, Hooks),
        catalogue: CatalogueRpc,
    ) -> Self {
        Self {
            plugins,
            watched: Arc::new(WatchedTools::new(tools.clone())),
            stand_ins: StandIns::new(tools.clone()),
            tools,
            hooks,
            catalogue,
        }
    }

    /// Checks that a plugin is in force.
    fn ensure_there(&self, name: &str) -> Result<(), Status> {
        match self.tools.revision().plugins.contains_key(name) {
            true => Ok(()),
            false => Err(refusal::no_plugin_named(name)),
        }
    }
}

#[tonic::async_trait]
impl PluginService for PluginRpc {
    type WatchPluginsStream = StreamOf<WatchPluginsResponse>;
    type WatchToolsStream = StreamOf<WatchToolsResponse>;
    type WatchHookPointsStream = StreamOf<WatchHookPointsResponse>;

    async fn list_hooks(&self, request: Request<ListHooksRequest>) -> Answer<ListHooksResponse> {
        let context = CallContext::of(&request);
        hooks::list(&self.tools, &context).await.map(Response::new)
    }

    async fn apply_hooks(&self, request: Request<ApplyHooksRequest>) -> Answer<ApplyHooksResponse> {
        let context = CallContext::of(&request);
        let applied = hooks::apply(&self.hooks, &context, request.get_ref());
        applied.await.map(Response::new)
    }

    async fn call_override(
        &self,
        request: Request<CallOverrideRequest>,
    ) -> Answer<CallOverrideResponse> {
        let context = CallContext::of(&request);
        let answered = overrides::call(&self.stand_ins, &context, request.into_inner());
        answered.await.map(Response::new)
    }

    async fn watch_hook_points(
        &self,
        request: Request<WatchHookPointsRequest>,
    ) -> Answer<Self::WatchHookPointsStream> {
        let points = hooks::watch(&self.tools, Drain::of(&request));
        Ok(Response::new(Box::pin(points)))
    }

    async fn plan_plugin(
        &self,
        request: Request<Streaming<PlanPluginRequest>>,
    ) -> Answer<PlanPluginResponse> {
        let source = receive(request.into_inner()).await?;
        let named = match &source {
            Source::Directory(directory) => directory.clone(),
            Source::Archive(_) => String::new(),
        };
        let planned = self.plugins.plan(source).await;
        let planned = planned.map_err(|error| status_of(error, &named))?;
        let violations = planned.violations.iter().map(Diagnostic::from);
        let violations = violations.map(|found| convert::diagnostic_to_proto(&found));
        let plan = PluginPlan {
            violations: violations.collect(),
            plan_digest: planned.digest,
            plugin: planned.plugin,
            plan_json: planned.json,
            text: planned.text,
            expire_time: planned
                .expires
                .map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
        };
        Ok(Response::new(PlanPluginResponse { plan: Some(plan) }))
    }

    async fn install_plugin(
        &self,
        request: Request<InstallPluginRequest>,
    ) -> Answer<InstallPluginResponse> {
        let tenant = CallContext::of(&request).tenant();
        let request = request.into_inner();
        refusal::check_request_id(&request.request_id)?;
        let plugins = self.plugins.clone();
        let changed = to_its_end(async move {
            let once = repeatable("InstallPlugin", &request.request_id, &request);
            let changed = plugins.install(&request.plan_digest, once).await;
            changed.map_err(|error| status_of(error, &request.plan_digest))
        });
        let PluginChange {
            plugin,
            revision,
            replayed,
        } = changed.await?;
        Ok(Response::new(InstallPluginResponse {
            plugin: self.catalogue.plugin_named(tenant, &plugin).await?,
            revision,
            replayed,
        }))
    }

    async fn resolve_node_types(
        &self,
        request: Request<ResolveNodeTypesRequest>,
    ) -> Answer<ResolveNodeTypesResponse> {
        let tenant = CallContext::of(&request).tenant();
        let choices = self.tools.choices(tenant).await;
        let choices = choices.map_err(|error| store_failure(&error).into_status())?;
        let revision = self.tools.revision();
        node_types::resolve(&revision, &choices, &request.into_inner()).map(Response::new)
    }

    async fn rollback_plugin(
        &self,
        request: Request<RollbackPluginRequest>,
    ) -> Answer<RollbackPluginResponse> {
        let tenant = CallContext::of(&request).tenant();
        let request = request.into_inner();
        refusal::check_request_id(&request.request_id)?;
        let plugins = self.plugins.clone();
        let changed = to_its_end(async move {
            let once = repeatable("RollbackPlugin", &request.request_id, &request);
            let changed = plugins
                .roll_back(&request.name, &request.package_digest, once)
                .await;
            changed.map_err(|error| status_of(error, &request.name))
        });
        let PluginChange {
            plugin,
            revision,
            replayed,
        } = changed.await?;
        Ok(Response::new(RollbackPluginResponse {
            plugin: self.catalogue.plugin_named(tenant, &plugin).await?,
            revision,
            replayed,
        }))
    }

    async fn uninstall_plugin(
        &self,
        request: Request<UninstallPluginRequest>,
    ) -> Answer<UninstallPluginResponse> {
        let request = request.into_inner();
        refusal::check_request_id(&request.request_id)?;
        let plugins = self.plugins.clone();
        let changed = to_its_end(async move {
            let UninstallPluginRequest {
                name,
                purge,
                validate_only,
                ..
            } = &request;
            let once = repeatable("UninstallPlugin", &request.request_id, &request);
            let once = once.filter(|_| !validate_only);
            let changed = plugins.uninstall(name, *validate_only, once).await;
            let changed = changed.map_err(|error| status_of(error, name))?;
            if *purge && !validate_only {
                let purged = plugins.purge(name).await;
                purged.map_err(|error| store_failure(&error).into_status())?;
            }
            Ok::<_, Status>(changed)
        });
        let (changed, removed) = changed.await?;
        Ok(Response::new(UninstallPluginResponse {
            tool_ids: removed.tools,
            profile_ids: removed.dependents.profiles,
            workflow_ids: removed.dependents.workflows,
            revision: changed.revision,
            replayed: changed.replayed,
        }))
    }

    async fn set_plugin_state(
        &self,
        request: Request<SetPluginStateRequest>,
    ) -> Answer<SetPluginStateResponse> {
        let tenant = CallContext::of(&request).tenant();
        let request = request.into_inner();
        self.ensure_there(&request.name)?;
        self.switch(tenant, Switch::Plugin(&request.name), request.enabled)
            .await?;
        Ok(Response::new(SetPluginStateResponse {}))
    }

    async fn set_tool_state(
        &self,
        request: Request<SetToolStateRequest>,
    ) -> Answer<SetToolStateResponse> {
        let tenant = CallContext::of(&request).tenant();
        let request = request.into_inner();
        let id = self.tools.id_of(tenant, &request.tool_id).await;
        let id = id.map_err(|missing| refusal::tool_not_found(missing, &request.tool_id))?;
        self.switch(tenant, Switch::Tool(&id), request.enabled)
            .await?;
        Ok(Response::new(SetToolStateResponse {}))
    }

    async fn get_plugin_options(
        &self,
        request: Request<GetPluginOptionsRequest>,
    ) -> Answer<GetPluginOptionsResponse> {
        let tenant = CallContext::of(&request).tenant();
        options::get(&self.tools, tenant, &request.get_ref().name)
            .await
            .map(Response::new)
    }

    async fn update_plugin_options(
        &self,
        request: Request<UpdatePluginOptionsRequest>,
    ) -> Answer<UpdatePluginOptionsResponse> {
        let tenant = CallContext::of(&request).tenant();
        let (tools, request) = (self.tools.clone(), request.into_inner());
        let updated = to_its_end(async move { options::update(&tools, tenant, &request).await });
        let updated = updated.await?;
        self.plugins.has_changed();
        Ok(Response::new(updated))
    }

    async fn watch_plugins(
        &self,
        request: Request<WatchPluginsRequest>,
    ) -> Answer<Self::WatchPluginsStream> {
        let (tenant, drain) = (CallContext::of(&request).tenant(), Drain::of(&request));
        let (catalogue, tools) = (self.catalogue.clone(), self.tools.clone());
        let mut changes = self.plugins.changes();
        let listed = async_stream::try_stream! {
            loop {
                changes.mark_unchanged();
                let revision = tools.revision().number;
                let plugins = catalogue.all_plugins(tenant).await?;
                yield WatchPluginsResponse { revision, plugins };
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = drain.started() => return,
                }
            }
        };
        Ok(Response::new(Box::pin(listed)))
    }

    async fn watch_tools(
        &self,
        request: Request<WatchToolsRequest>,
    ) -> Answer<Self::WatchToolsStream> {
        let (tenant, drain) = (CallContext::of(&request).tenant(), Drain::of(&request));
        let (watched, changes) = (Arc::clone(&self.watched), self.plugins.changes());
        let watched = watch_tools::changes(watched, tenant, changes, drain);
        Ok(Response::new(Box::pin(watched)))
    }
}

impl PluginRpc {
    async fn switch(
        &self,
        tenant: Tenant,
        switch: Switch<'_>,
        enabled: bool,
    ) -> Result<(), Status> {
        let switched = self.tools.switch(tenant, switch, enabled).await;
        switched.map_err(|error| store_failure(&error).into_status())?;
        self.plugins.has_changed();
        Ok(())
    }
}

/// Receives a package.
async fn receive(mut pieces: Streaming<PlanPluginRequest>) -> Result<Source, Status> {
    let first = pieces.message().await?;
    let Some(Part::Header(header)) = first.and_then(|first| first.part) else {
        let failure = Failure::invalid_fields().violation("header", "must be the first message");
        return Err(failure.into_status());
    };
    let mut archive = Vec::new();
    while let Some(message) = pieces.message().await? {
        let Some(Part::Chunk(piece)) = message.part else {
            let problem = "must be in every message but the first";
            let failure = Failure::invalid_fields().violation("chunk", problem);
            return Err(failure.into_status());
        };
        let size = archive.len() + piece.len();
        if size > MAX_PACKED_BYTES {
            let failure = Failure::limit_exceeded("archive_bytes", MAX_PACKED_BYTES, size);
            return Err(failure.into_status());
        }
        archive.extend_from_slice(&piece);
    }
    match (header.directory.is_empty(), archive.is_empty()) {
        (false, false) => {
            let problem = "must be empty where an archive follows";
            let failure = Failure::invalid_fields().violation("header.directory", problem);
            Err(failure.into_status())
        }
        (false, true) => Ok(Source::Directory(header.directory)),
        (true, _) => Ok(Source::Archive(archive)),
    }
}

fn repeatable<'r>(
    method: &'static str,
    request_id: &'r str,
    request: &impl Message,
) -> Option<Repeatable<'r>> {
    Repeatable::of(method, request_id, Hash::of(&request.encode_to_vec()))
}

/// Returns the status of a change that was not made, of the plugin or plan with this name.
fn status_of(error: PluginError, named: &str) -> Status {
    match error {
        PluginError::NotFound => refusal::no_plugin_named(named),
        PluginError::NoEarlierPackage => {
            let message = format!(
                "the plugin `{named}` has no such earlier package; `tavern plugins show` lists those that it has"
            );
            Failure::new(Code::NotFound, ErrorReason::PluginNotFound, message)
                .metadata("plugin", named)
                .into_status()
        }
        PluginError::Stale => {
            let message = "the plan is unknown, is older than 24 h, or would be another one by now; plan the \
                           package again";
            Failure::new(Code::FailedPrecondition, ErrorReason::PlanStale, message)
                .metadata("plan_digest", named)
                .into_status()
        }
        PluginError::Invalid(violations) => {
            let message = "the package cannot be installed";
            let reason = ErrorReason::PluginInvalid;
            let failure = Failure::new(Code::FailedPrecondition, reason, message);
            let failure = violations.into_iter().fold(failure, |failure, violation| {
                failure.violation(violation.pointer, violation.message)
            });
            failure.into_status()
        }
        PluginError::RequestIdReused(id) => request_id_reused(&id).into_status(),
        PluginError::Conflict => {
            Status::aborted("another change of plugins came first; repeat the request")
        }
        PluginError::CutOff => {
            Status::unavailable("the server ends, or failed; repeat the request")
        }
        PluginError::Store(error) => store_failure(&error).into_status(),
    }
}
