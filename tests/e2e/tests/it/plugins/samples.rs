//! Plugins as people write them, from `tests/plugins`: each is installed, set and called as `calls.json` there says.

use std::collections::HashMap;
use std::process::Command;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::CallStatus;
use contracts::tavern::registry::v1::UpdatePluginOptionsRequest;
use plugin_package::read_path;
use serde::Deserialize;
use serde_json::Value;
use testkit::{Stack, binary, repository};

use super::{call, code_of, install};
use crate::packages::PROGRAMS;

/// A plugin with its calls.
#[derive(Deserialize)]
struct Sample {
    plugin: String,
    #[serde(default)]
    options: HashMap<String, String>,
    calls: Vec<SampleCall>,
    /// A library that has to be built first.
    #[serde(default)]
    needs: Option<String>,
}

#[derive(Deserialize)]
struct SampleCall {
    tool: String,
    arguments: Value,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<String>,
}

/// Builds the package set of the dependencies of a plugin of the repository.
pub(super) fn build_dependencies(stack: &Stack, plugin: &str) -> anyhow::Result<()> {
    let mut command = Command::new(binary("tavern")?);
    command.args(["packages", "build", "--plugin"]);
    command.arg(repository().join(plugin));
    command
        .arg("--data-dir")
        .arg(stack.directory().join("data"));
    let output = command.env("PATH", PROGRAMS).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

async fn play(stack: &Stack, sample: Sample) -> anyhow::Result<()> {
    let name = &sample.plugin;
    let read = read_path(&repository().join("tests/plugins").join(name))?;
    let files = read.map_err(|violations| anyhow::anyhow!("{violations:?}"))?;
    install(stack, &files).await?;
    if !sample.options.is_empty() {
        let request = UpdatePluginOptionsRequest {
            name: name.clone(),
            texts: sample.options,
            ..UpdatePluginOptionsRequest::default()
        };
        stack.plugins().update_plugin_options(request).await?;
    }
    if sample.needs.is_some() {
        let first = sample.calls.first().context("a call")?;
        let missing = call(stack, (&first.tool, ""), first.arguments.clone()).await?;
        let message = missing.error.as_ref().map_or("", |error| &error.message);
        let command = format!("tavern packages build --plugin {name}");
        ensure!(message.contains(&command), "{missing:?}");
        build_dependencies(stack, &format!("tests/plugins/{name}"))?;
    }
    for wanted in sample.calls {
        let place = (&*wanted.tool, "");
        let result = call(stack, place, wanted.arguments.clone()).await?;
        let about = || format!("{} {}: {result:?}", wanted.tool, wanted.arguments);
        match (wanted.result, wanted.error) {
            (Some(expected), _) => {
                ensure!(result.status() == CallStatus::Succeeded, "{}", about());
                let output: Value = serde_json::from_str(&result.output_json)?;
                ensure!(output == expected, "{}", about());
            }
            (None, error) => ensure!(error.as_deref() == Some(code_of(&result)), "{}", about()),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_as_people_write_them_are_installed_set_and_called() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let calls = std::fs::read_to_string(repository().join("tests/plugins/calls.json"))?;
    let samples: Vec<Sample> = serde_json::from_str(&calls)?;
    let played = samples.len();
    for sample in samples {
        let name = sample.plugin.clone();
        play(&stack, sample).await.context(name)?;
    }
    let directories = std::fs::read_dir(repository().join("tests/plugins"))?;
    let plugins =
        directories.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()));
    assert_eq!(plugins.count(), played, "each plugin has calls");
    Ok(())
}
