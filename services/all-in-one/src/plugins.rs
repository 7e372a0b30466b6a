//! `tavern plugins check` and `tavern plugins new`: plugins as files. No server is needed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use call_outcome::{Violation, sentences};
use clap::Subcommand;
use grpc_kit::program::print;
use plugin_package::{
    MANIFEST, PluginFiles, check, plan_alone, plan_text, read_path, template, write_new_directory,
};

/// A command about a plugin's files.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check a plugin: print every fault and remark on a line of its own, or its plan; no server is needed.
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
    let found = match read.map(|files| (check(&files), files)) {
        Err(violations) => violations,
        Ok((checked, files)) => match &checked.plugin {
            None => checked.violations,
            Some(plugin) => {
                let mut plan = plan_alone(&files, plugin);
                plan.refuse(checked.violations.into_iter().map(Into::into));
                if plan.is_installable() {
                    print(&plan_text(&plan));
                    return Ok(ExitCode::SUCCESS);
                }
                let mut found = plan.reasons();
                found.extend(plan.remarks.into_iter().map(|each| {
                    let message = format!("(a remark) {}", each.message);
                    Violation::new(each.pointer, each.code, message)
                }));
                found
            }
        },
    };
    let lines = found.iter().map(|each| {
        // A pointer alone is one into the manifest.
        let file = if each.pointer.starts_with('/') {
            MANIFEST
        } else {
            ""
        };
        let place = format!("{} {file}{}", path.display(), each.pointer);
        let message = each.message.replace('\n', " ");
        format!("{}: {message}\n", place.trim_end())
    });
    print(&lines.collect::<String>());
    Ok(ExitCode::FAILURE)
}

fn make(name: &str) -> anyhow::Result<ExitCode> {
    let files = template(name).with_context(|| {
        format!("'{name}' is no name for a plugin; use up to 64 lower-case letters, digits and '-'")
    })?;
    if let Ok(files) = PluginFiles::new(files.clone())
        && let Some(plugin) = check(&files).plugin
    {
        let reasons = plan_alone(&files, &plugin).reasons();
        ensure!(reasons.is_empty(), "{}", sentences(&reasons));
    }
    let written = write_new_directory(Path::new(name), &files);
    written.with_context(|| format!("making the directory {name}"))?;
    print(&format!(
        "{name} has a plugin with one tool; its README.md shows how to try it\n"
    ));
    Ok(ExitCode::SUCCESS)
}
