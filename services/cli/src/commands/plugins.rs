//! `tavern plugins`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::registry::v1::tool_registry_service_client::ToolRegistryServiceClient;
use contracts::tavern::registry::v1::{GetPluginRequest, ListPluginsRequest, Plugin};

use super::{Remote, documents, json, list, print_fields, refusal};

/// The commands about plugins.
#[derive(Subcommand)]
pub enum Command {
    /// List plugins by directory, including the ones left out.
    List,
    /// Show a plugin: its tools, and the findings about its files.
    Show {
        /// The directory of the plugin.
        directory: String,
    },
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
            Self::Show { directory } => {
                let found = registry.get_plugin(GetPluginRequest { directory }).await;
                let found = found.map_err(|status| refusal(&status))?.into_inner();
                let plugin = found.plugin.context("the answer has no plugin")?;
                match remote.json {
                    true => json::print_line(&plugin)?,
                    false => show(&plugin),
                }
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

fn show(plugin: &Plugin) {
    print_fields(&[
        ("plugin", plugin.directory.clone()),
        ("name", plugin.name.clone()),
        ("title", plugin.display_name.clone()),
        ("version", plugin.version.clone()),
        ("state", state(plugin)),
        ("tools", plugin.tool_ids.join("\n")),
        ("description", plugin.description.clone()),
    ]);
    documents::remarks(&plugin.diagnostics);
}

fn state(plugin: &Plugin) -> String {
    let state = if plugin.loaded { "loaded" } else { "left out" };
    state.to_owned()
}
