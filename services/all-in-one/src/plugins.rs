//! `tavern plugins check` and `tavern plugins new`: plugins as files. No server is needed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use approval_rules::EffectClass;
use clap::Subcommand;
use grpc_kit::program::print;
use plugin_package::{Plugin, PluginFiles, check, read_path, template, write_new_directory};

/// A command about a plugin's files.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check a plugin, and print every fault of it on a line of its own; no server is needed.
    Check {
        /// The directory or the `.zip` archive of the plugin.
        path: PathBuf,
    },
    /// Make a directory with a plugin that works; no server is needed.
    New {
        /// The name of the plugin and of its directory, which must not exist.
        name: String,
    },
}

impl Command {
    /// Executes the command. The exit code is 1 if a plugin has a fault.
    ///
    /// # Errors
    /// A path that cannot be read or written, or a name that no plugin can have.
    pub(crate) fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check { path } => check_path(&path),
            Self::New { name } => make(&name),
        }
    }
}

fn check_path(path: &Path) -> anyhow::Result<ExitCode> {
    let read = read_path(path).with_context(|| format!("reading {}", path.display()))?;
    let (violations, summary) = match &read {
        Ok(files) => {
            let checked = check(files);
            let summary = checked.plugin.map(|plugin| summary(&plugin, files));
            (checked.violations, summary)
        }
        Err(violations) => (violations.clone(), None),
    };
    match summary {
        Some(summary) if violations.is_empty() => {
            print(&summary);
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            let lines = violations.iter().map(|each| {
                let place = format!("{} {}", path.display(), each.pointer);
                let message = each.message.replace('\n', " ");
                format!("{}: {message}\n", place.trim_end())
            });
            print(&lines.collect::<String>());
            Ok(ExitCode::FAILURE)
        }
    }
}

fn summary(plugin: &Plugin, files: &PluginFiles) -> String {
    let manifest = &plugin.manifest;
    let tools = plugin.tools.iter().map(|tool| {
        let effects = match tool.flags.effect_class() {
            EffectClass::ReadOnly => "reads only",
            EffectClass::Idempotent => "has effects, repeating it has no more",
            EffectClass::SideEffecting => "has effects",
            EffectClass::Destructive => "destroys data",
        };
        format!("tool     {}  {effects}\n", tool.id)
    });
    format!(
        "name     {}\nversion  {}\n{}files    {} with {} bytes\ndigest   {}\n",
        manifest.name,
        manifest.version,
        tools.collect::<String>(),
        files.all().len(),
        files.bytes(),
        files.digest()
    )
}

fn make(name: &str) -> anyhow::Result<ExitCode> {
    let files = template(name).with_context(|| {
        format!("'{name}' is no name for a plugin; use up to 64 lower-case letters, digits and '-'")
    })?;
    let written = write_new_directory(Path::new(name), &files);
    written.with_context(|| format!("making the directory {name}"))?;
    print(&format!(
        "{name} has a plugin with one tool; its README.md shows how to try it\n"
    ));
    Ok(ExitCode::SUCCESS)
}
