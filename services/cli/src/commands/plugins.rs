//! `tavern plugins`.

mod change;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::registry::v1::plugin_service_client::PluginServiceClient;
use contracts::tavern::registry::v1::tool_registry_service_client::ToolRegistryServiceClient;
use contracts::tavern::registry::v1::{
    GetPluginRequest, ListHooksRequest, ListPluginsRequest, Plugin, PluginHook,
};

use tonic::Code;

use super::{Remote, documents, json, list, print_fields, refusal};

/// The commands about plugins.
#[derive(Subcommand)]
pub enum Command {
    /// List plugins by directory, including the ones left out.
    List,
    /// Show a plugin: its tools, and the findings about its files.
    Show {
        /// The name of the plugin, or its directory.
        plugin: String,
    },
    /// Read a package, and show everything that it would change and may do. Changes nothing.
    Plan(change::Package),
    /// Install the package of a plan, and approve its permissions.
    Install(change::Planned),
    /// Install an earlier package of a plugin.
    Rollback(change::Earlier),
    /// Remove a plugin. Its options stay for 30 days.
    Remove(change::Removed),
    /// Switch off a plugin or a tool.
    Disable(change::Switched),
    /// Switch on a plugin or a tool.
    Enable(change::Switched),
    /// Show the options of a plugin, or set some.
    Options(change::Options),
    /// List the hooks of plugins by point, each point in the order in which its hooks run.
    Hooks,
}

impl Command {
    /// Executes the command.
    ///
    /// # Errors
    /// The reason why the command failed.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        remote.located(self.answered(remote).await)
    }

    async fn answered(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut registry = ToolRegistryServiceClient::new(remote.connect()?);
        match self {
            Self::List => {
                let head = ["PLUGIN", "NAME", "VERSION", "STATE", "TOOLS", "FINDINGS"];
                list::print_all(remote.json, head, row, async |_| {
                    let listed = registry.list_plugins(ListPluginsRequest {}).await?;
                    Ok((listed.into_inner().plugins, String::new()))
                })
                .await?;
            }
            Self::Show { plugin } => {
                let by_name = GetPluginRequest {
                    name: plugin.clone(),
                    ..GetPluginRequest::default()
                };
                let by_directory = GetPluginRequest {
                    directory: plugin,
                    ..GetPluginRequest::default()
                };
                let found = match registry.get_plugin(by_name).await {
                    Err(status) if status.code() == Code::NotFound => {
                        registry.get_plugin(by_directory).await
                    }
                    found => found,
                };
                let found = found.map_err(|status| refusal(&status))?.into_inner();
                let plugin = found.plugin.context("the answer has no plugin")?;
                match remote.json {
                    true => json::print_line(&plugin)?,
                    false => show(&plugin),
                }
            }
            Self::Plan(package) => {
                if !package.plan(remote).await? {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Self::Install(planned) => planned.install(remote).await?,
            Self::Rollback(earlier) => earlier.roll_back(remote).await?,
            Self::Remove(removed) => removed.remove(remote).await?,
            Self::Disable(switched) => switched.set(remote, false).await?,
            Self::Enable(switched) => switched.set(remote, true).await?,
            Self::Options(options) => options.execute(remote).await?,
            Self::Hooks => {
                let mut plugins = PluginServiceClient::new(remote.connect()?);
                let head = ["POINT", "HOOK", "ORDER", "HANDLER", "ON FAILURE", "STATE"];
                list::print_all(remote.json, head, hook_row, async |_| {
                    let listed = plugins.list_hooks(ListHooksRequest {}).await?;
                    Ok((listed.into_inner().hooks, String::new()))
                })
                .await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(plugin: &Plugin) -> [String; 6] {
    [
        plugin.directory.clone(),
        plugin.name.clone(),
        plugin.version.clone(),
        state(plugin),
        plugin.tool_ids.len().to_string(),
        plugin.diagnostics.len().to_string(),
    ]
}

fn hook_row(hook: &PluginHook) -> [String; 6] {
    let state = match (hook.suspended, &*hook.inactive_reason) {
        (true, _) => format!("suspended: {}", hook.last_failure),
        (false, "") if hook.failures > 0 => {
            format!("{} failures: {}", hook.failures, hook.last_failure)
        }
        (false, "") => "active".to_owned(),
        (false, reason) => reason.to_owned(),
    };
    [
        hook.point.clone(),
        hook.hook.clone(),
        hook.order.to_string(),
        hook.handler.clone(),
        hook.on_failure.clone(),
        state,
    ]
}

fn show(plugin: &Plugin) {
    print_fields(&[
        ("plugin", plugin.directory.clone()),
        ("name", plugin.name.clone()),
        ("title", plugin.display_name.clone()),
        ("version", plugin.version.clone()),
        ("state", state(plugin)),
        ("tools", plugin.tool_ids.join("\n")),
        ("switched off", plugin.disabled_tool_ids.join("\n")),
        ("permissions", plugin.permissions.join("\n")),
        ("package", plugin.package_digest.clone()),
        ("earlier", plugin.earlier_digests.join("\n")),
        ("description", plugin.description.clone()),
    ]);
    documents::remarks(&plugin.diagnostics);
}

fn state(plugin: &Plugin) -> String {
    let states = [
        (!plugin.loaded, "left out"),
        (plugin.disabled, "switched off"),
        (!plugin.missing_options.is_empty(), "needs options"),
        (plugin.has_changes, "has changes"),
    ];
    let states = states.iter().filter(|(holds, _)| *holds);
    let states: Vec<&str> = states.map(|(_, state)| *state).collect();
    match states.is_empty() {
        true => "loaded".to_owned(),
        false => states.join(", "),
    }
}
