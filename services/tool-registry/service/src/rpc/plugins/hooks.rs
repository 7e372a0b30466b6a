//! Hooks of plugins: the list, and the acts of other services.

use contracts::tavern::registry::v1::{
    ApplyHooksRequest, ApplyHooksResponse, ListHooksResponse, PluginHook, WatchHookPointsResponse,
};
use futures::Stream;
use grpc_kit::{CallContext, Drain, Failure};
use hook_chain::ActiveHook;
use run_events::store_failure;
use tonic::Status;
use tool_domain::{hook_point::HookPoint, manifest::HookHandler};

use crate::{
    hooks::{Hooks, Unapplied},
    tools::{NotActive, PluginChoices, Revision, Tools},
};

/// Lists the hooks in force, as they run for a tenant.
pub(super) async fn list(
    tools: &Tools,
    context: &CallContext,
) -> Result<ListHooksResponse, Status> {
    let choices = tools.choices(context.tenant()).await;
    let choices = choices.map_err(|error| store_failure(&error).into_status())?;
    let revision = tools.revision();
    let points = revision.hooks.points();
    let hooks = points.flat_map(|point| revision.hooks.at(point));
    Ok(ListHooksResponse {
        hooks: hooks
            .map(|hook| describe(hook, &revision, &choices))
            .collect(),
    })
}

fn describe(active: &ActiveHook, revision: &Revision, choices: &PluginChoices) -> PluginHook {
    let hook = &active.hook;
    let (failures, suspended, last_failure) = {
        let health = active.health();
        let last_failure = health.last_failure().to_owned();
        (health.failures(), health.is_suspended(), last_failure)
    };
    let plugin = revision.plugins.get(&active.plugin);
    let inactive = match choices.is_off(&active.plugin) {
        true => Some(NotActive::PluginOff(active.plugin.clone())),
        false => plugin.and_then(|plugin| choices.refuses("", Some(plugin))),
    };
    let name = active.name();
    PluginHook {
        point: hook.point.to_string(),
        condition: hook.when.clone().unwrap_or_default(),
        handler: match &hook.handler {
            HookHandler::Script(program) => program.command(),
            HookHandler::Backend(backend) => format!("grpc:{backend}"),
        },
        order: hook.order,
        timeout_ms: u32::try_from(hook.timeout.as_millis()).unwrap_or(u32::MAX),
        on_failure: hook.on_failure.as_str().to_owned(),
        may: hook.point.may().iter().map(ToString::to_string).collect(),
        failures,
        suspended,
        last_failure,
        inactive_reason: inactive.map_or_else(String::new, |reason| {
            format!("{}. {}", reason.sentence(&name), reason.remedy(&name))
        }),
        hook: name,
    }
}

/// Passes an act of another service through its hooks.
pub(super) async fn apply(
    hooks: &Hooks,
    context: &CallContext,
    request: &ApplyHooksRequest,
) -> Result<ApplyHooksResponse, Status> {
    let applied = hooks.pass(context, &request.point, &request.payload_json);
    applied.await.map_err(|error| match &error {
        Unapplied::Point(_) => invalid("point", &error),
        Unapplied::Act(_) => invalid("payload_json", &error),
        Unapplied::Store(error) => store_failure(error).into_status(),
    })
}

fn invalid(field: &str, problem: &Unapplied) -> Status {
    let failure = Failure::invalid_fields();
    failure.violation(field, problem.to_string()).into_status()
}

/// Returns the points with hooks and the overridden services, and again after each change, until the server drains.
pub(super) fn watch(
    tools: &Tools,
    drain: Drain,
) -> impl Stream<Item = Result<WatchHookPointsResponse, Status>> + Send + use<> {
    let (tools, mut changes) = (tools.clone(), tools.asked());
    async_stream::try_stream! {
        loop {
            let overrides = changes.borrow_and_update().overrides.clone();
            let points = HookPoint::all().filter(|point| tools.has_hooks(*point));
            let mut points: Vec<String> = points.map(|point| point.to_string()).collect();
            points.sort();
            yield WatchHookPointsResponse { points, overrides };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = drain.started() => return,
            }
        }
    }
}
