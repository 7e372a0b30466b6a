//! Planning, installing, setting and removing plugins.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use contracts::tavern::registry::v1::plugin_service_client::PluginServiceClient;
use contracts::tavern::registry::v1::{
    GetPluginOptionsRequest, InstallPluginRequest, PlanPluginHeader, PlanPluginRequest, Plugin,
    PluginOption, PluginPlan, RollbackPluginRequest, SetPluginStateRequest, SetToolStateRequest,
    UninstallPluginRequest, UpdatePluginOptionsRequest, plan_plugin_request::Part,
};
use grpc_kit::Outbound;
use prost_reflect::prost::Name;
use serde_json::{Map, Value};
use tonic::{Code, Status};

use super::super::{Remote, json, print, refusal};

/// The piece of an archive that is sent at once, in bytes.
const PIECE: usize = 256 << 10;

/// The largest archive, in bytes.
const MAX_ARCHIVE_BYTES: u64 = 20 << 20;

/// A package to plan.
#[derive(Args)]
pub struct Package {
    /// A `.zip` of this machine, or the name of a directory below the server's plugin directory.
    package: PathBuf,
}

/// A plan to install.
#[derive(Args)]
pub struct Planned {
    /// The digest that `tavern plugins plan` printed. With it the permissions in that plan are approved.
    plan_digest: String,
    /// Makes a repeat of the command safe.
    #[arg(long, default_value = "")]
    request_id: String,
}

/// An earlier package of a plugin.
#[derive(Args)]
pub struct Earlier {
    /// The name of the plugin.
    name: String,
    /// The digest of the package, as `tavern plugins show` lists it; the last one if none is given.
    #[arg(default_value = "")]
    package_digest: String,
}

/// A plugin to remove.
#[derive(Args)]
pub struct Removed {
    /// The name of the plugin.
    name: String,
    /// Remove the values of its options at once, of all tenants.
    #[arg(long)]
    purge: bool,
}

/// A plugin or a tool to switch off or on.
#[derive(Args)]
pub struct Switched {
    /// The name of the plugin.
    #[arg(required_unless_present = "tool")]
    name: Option<String>,
    /// The id of a single tool.
    #[arg(long, conflicts_with = "name")]
    tool: Option<String>,
}

/// The options of a plugin.
#[derive(Args)]
pub struct Options {
    /// The name of the plugin.
    name: String,
    /// Values to set, such as `units=metric`.
    #[arg(value_parser = value)]
    values: Vec<(String, String)>,
    /// The key of an option to take its value away, so that its default holds; repeat it for more.
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
}

fn value(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=');
    let (key, value) = split.ok_or_else(|| format!("`{text}` is not key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

type Plugins = PluginServiceClient<Outbound>;

fn client(remote: &Remote) -> anyhow::Result<Plugins> {
    Ok(PluginServiceClient::new(remote.connect()?))
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn refused(status: Status) -> anyhow::Error {
    refusal(&status)
}

impl Package {
    /// Prints the plan of a package. Returns whether it can be installed.
    pub(super) async fn plan(self, remote: &Remote) -> anyhow::Result<bool> {
        let messages = messages(&self.package)?;
        let messages = async_stream::stream! {
            for message in messages {
                yield message;
            }
        };
        let mut plugins = client(remote)?;
        let planned = plugins.plan_plugin(messages).await;
        let planned = planned.map_err(|status| match status.code() {
            Code::NotFound if self.package.is_dir() => {
                refused(status).context(local(&self.package))
            }
            _ => refused(status),
        });
        let planned = planned?.into_inner();
        let plan = planned.plan.context("the answer has no plan")?;
        match remote.json {
            true => json::print_line(&plan)?,
            false => show_plan(&plan),
        }
        Ok(!plan.plan_digest.is_empty())
    }
}

/// Returns the sentence on a directory of this machine, which no server can read.
fn local(directory: &Path) -> String {
    let example = directory.file_name().map(|name| {
        let (name, directory) = (name.display(), directory.display());
        format!(", such as with `python3 -m zipfile -c {name}.zip {directory}`")
    });
    format!(
        "{} is a directory of this machine, which the server does not read; make a .zip of it{}, and plan that",
        directory.display(),
        example.unwrap_or_default()
    )
}

/// Returns the messages with a package: an archive, or the name of a directory of the server.
fn messages(package: &Path) -> anyhow::Result<Vec<PlanPluginRequest>> {
    let part = |part| PlanPluginRequest { part: Some(part) };
    if !package.is_file() {
        let directory = package.to_str().context("the name is not UTF-8")?;
        if directory.contains('/') {
            ensure!(!package.is_dir(), local(package));
            bail!(
                "{directory} is no file; give a .zip, or the name of a directory below the server's plugin directory"
            );
        }
        let directory = directory.to_owned();
        return Ok(vec![part(Part::Header(PlanPluginHeader { directory }))]);
    }
    let size = package.metadata()?.len();
    if size > MAX_ARCHIVE_BYTES {
        bail!(
            "{} has {size} bytes; at most {MAX_ARCHIVE_BYTES}",
            package.display()
        );
    }
    let archive = std::fs::read(package).with_context(|| package.display().to_string())?;
    let header = part(Part::Header(PlanPluginHeader::default()));
    let pieces = archive
        .chunks(PIECE)
        .map(|piece| part(Part::Chunk(piece.to_vec())));
    Ok([header].into_iter().chain(pieces).collect())
}

fn show_plan(plan: &PluginPlan) {
    print(&plan.text);
    if !plan.text.ends_with('\n') {
        print("\n");
    }
    if !plan.plan_digest.is_empty() {
        let digest = &plan.plan_digest;
        print(&format!(
            "\nInstall it, and approve its permissions:\n  tavern plugins install {digest}\n"
        ));
    }
}

impl Planned {
    pub(super) async fn install(self, remote: &Remote) -> anyhow::Result<()> {
        let Self {
            plan_digest,
            request_id,
        } = self;
        let request = InstallPluginRequest {
            plan_digest,
            request_id,
        };
        let mut plugins = client(remote)?;
        let installed = plugins.install_plugin(request).await;
        let installed = installed.map_err(refused)?.into_inner();
        let (plugin, revision) = (installed.plugin.as_ref(), installed.revision);
        print_change(remote, &installed, || lines_of(plugin, revision))
    }
}

impl Earlier {
    pub(super) async fn roll_back(self, remote: &Remote) -> anyhow::Result<()> {
        let request = RollbackPluginRequest {
            name: self.name,
            package_digest: self.package_digest,
            ..RollbackPluginRequest::default()
        };
        let mut plugins = client(remote)?;
        let installed = plugins.rollback_plugin(request).await;
        let installed = installed.map_err(refused)?.into_inner();
        let (plugin, revision) = (installed.plugin.as_ref(), installed.revision);
        print_change(remote, &installed, || lines_of(plugin, revision))
    }
}

impl Removed {
    pub(super) async fn remove(self, remote: &Remote) -> anyhow::Result<()> {
        let request = UninstallPluginRequest {
            name: self.name.clone(),
            purge: self.purge,
            ..UninstallPluginRequest::default()
        };
        let mut plugins = client(remote)?;
        let removed = plugins.uninstall_plugin(request).await;
        let removed = removed.map_err(refused)?.into_inner();
        print_change(remote, &removed, || {
            let tools = removed.tool_ids.join(", ");
            let (name, revision) = (&self.name, removed.revision);
            let users = [&removed.profile_ids[..], &removed.workflow_ids].concat();
            let users = match users.is_empty() {
                true => String::new(),
                false => format!("these documents name them: {}\n", users.join(", ")),
            };
            format!("removed {name} (revision {revision}); its tools: {tools}\n{users}")
        })
    }
}

impl Switched {
    pub(super) async fn set(self, remote: &Remote, enabled: bool) -> anyhow::Result<()> {
        let mut plugins = client(remote)?;
        let switched = match (self.name, self.tool) {
            (_, Some(tool_id)) => {
                let request = SetToolStateRequest {
                    tool_id: tool_id.clone(),
                    enabled,
                };
                plugins.set_tool_state(request).await.map_err(refused)?;
                tool_id
            }
            (name, None) => {
                let name = name.unwrap_or_default();
                let request = SetPluginStateRequest {
                    name: name.clone(),
                    enabled,
                };
                plugins.set_plugin_state(request).await.map_err(refused)?;
                name
            }
        };
        let state = if enabled { "on" } else { "off" };
        print(&format!("{switched} is {state}\n"));
        Ok(())
    }
}

impl Options {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<()> {
        let mut plugins = client(remote)?;
        let name = self.name;
        let options = if self.values.is_empty() && self.unset.is_empty() {
            let request = GetPluginOptionsRequest { name };
            let found = plugins.get_plugin_options(request).await.map_err(refused)?;
            found.into_inner().options
        } else {
            let texts: HashMap<String, String> = self.values.into_iter().collect();
            let unset = self.unset.into_iter().map(|key| (key, Value::Null));
            let unset: Map<String, Value> = unset.collect();
            let request = UpdatePluginOptionsRequest {
                name,
                texts,
                values_json: Value::Object(unset).to_string(),
                ..UpdatePluginOptionsRequest::default()
            };
            let updated = plugins.update_plugin_options(request).await;
            updated.map_err(refused)?.into_inner().options
        };
        for option in &options {
            match remote.json {
                true => json::print_line(option)?,
                false => print(&line(option)),
            }
        }
        if options.is_empty() && !remote.json {
            print("it declares no options\n");
        }
        Ok(())
    }
}

/// Returns an option with its value, and with the reason for which the plugin waits for it.
fn line(option: &PluginOption) -> String {
    let (kind, title) = (&option.r#type, &option.display_name);
    let has_value = !option.value_json.is_empty();
    let state = match (option.is_missing, option.is_set) {
        (true, _) => "needed",
        (false, true) => "set",
        (false, false) if has_value => "default",
        (false, false) => "not set",
    };
    let declaration: Value = serde_json::from_str(&option.declaration_json).unwrap_or_default();
    let deprecated = match &declaration["deprecated"] {
        Value::String(reason) => format!(", deprecated: {reason}"),
        Value::Bool(true) => ", deprecated".to_owned(),
        _ => String::new(),
    };
    let value = match has_value {
        true => format!(" = {}", option.value_json),
        false => String::new(),
    };
    let key = &option.key;
    format!("{key}{value}  ({kind}, {state}{deprecated})  {title}\n")
}

/// Prints the answer to a change as JSON, or as text.
fn print_change(
    remote: &Remote,
    answer: &impl Name,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match remote.json {
        true => json::print_line(answer),
        false => {
            print(&text());
            Ok(())
        }
    }
}

/// Returns a plugin that was installed, and the command for options that it waits for.
fn lines_of(plugin: Option<&Plugin>, revision: u64) -> String {
    let Some(plugin) = plugin else {
        return format!("installed (revision {revision})\n");
    };
    let (name, version) = (&plugin.name, &plugin.version);
    let mut lines = format!("{name} {version} is in force (revision {revision})\n");
    for tool in &plugin.tool_ids {
        lines.push_str(&format!("  {tool}\n"));
    }
    if !plugin.missing_options.is_empty() {
        let values = plugin.missing_options.iter();
        let values: String = values.map(|key| format!(" {key}=...")).collect();
        let command = format!("tavern plugins options {name}{values}");
        lines.push_str(&format!("Its tools wait for options:\n  {command}\n"));
    }
    lines
}
