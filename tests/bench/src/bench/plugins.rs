//! The start of `tavern serve` with many plugins, the memory of their tools, and the cost of looking for changes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use crate::harness::Effort;
use crate::series::{Series, Unit};
use crate::support::{processes, served::Served};
use crate::table::Figure;

/// The most plugins of a server.
const PLUGINS: usize = 512;

/// The tools of each plugin: 10,240 of all.
const TOOLS: usize = 20;

/// The workflows with node types of a plugin that is not there.
const MISSING: usize = 50;

/// The seconds by which they may lengthen a start.
const MISSING_GOAL: f64 = 50e-3;

/// The time without requests over which the processor time is measured.
const IDLE: Duration = Duration::from_secs(20);

/// The figures of starts with one set of plugins.
#[derive(Default)]
struct Starts {
    first: Vec<f64>,
    later: Vec<f64>,
    mebibytes: Vec<f64>,
    idle: Vec<f64>,
}

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let (mut without, mut with) = (Starts::default(), Starts::default());
    for round in 0..=effort.times(5) {
        // The first round brings files into memory.
        if round == 1 {
            (without, with) = (Starts::default(), Starts::default());
        }
        measure(effort, 0, &mut without).await?;
        measure(effort, PLUGINS, &mut with).await?;
    }
    let missing = missing_types(effort).await?;
    let memory = differences(&with.mebibytes, &without.mebibytes);
    let idle = differences(&with.idle, &without.idle);
    Ok(vec![
        Figure::new(
            "first start with 512 plugins and 10,240 tools, which stores their packages",
            Series::seconds(with.first),
        )
        .floor("without plugins", Series::seconds(without.first)),
        Figure::new("a later start with them", Series::seconds(with.later))
            .floor("without plugins", Series::seconds(without.later))
            .goal(2.0),
        missing,
        Figure::new(
            "memory of their catalogue",
            Series::new(Unit::Mebibytes, memory),
        )
        .goal(100.0),
        Figure::new(
            "processor time of a second in which they are polled",
            Series::seconds(idle),
        )
        .goal(2e-3),
    ])
}

/// Measures starts with workflows whose node types no plugin brings, in turn with starts without them.
async fn missing_types(effort: &Effort) -> anyhow::Result<Figure> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        for (workflows, seconds) in [(MISSING, &mut ours), (0, &mut bare)] {
            let directory = effort.fresh_directory()?;
            let deploy = directory.path().join("deploy");
            for part in ["workflows", "agents", "models", "plugins"] {
                fs::create_dir_all(deploy.join(part))?;
            }
            for workflow in 0..workflows {
                let node =
                    json!({"id": "n", "type": format!("gone:Type{workflow}"), "inputValues": {}});
                let text = json!({"name": format!("w{workflow}"), "nodes": [node], "edges": []});
                let file = deploy.join(format!("workflows/w{workflow}.json"));
                fs::write(file, text.to_string())?;
            }
            let server = Served::start_in(directory.path(), &deploy, "127.83.2.1", &[]).await?;
            if round > 0 {
                seconds.push(server.seconds_to_ready);
            }
        }
    }
    let bare = Series::seconds(bare);
    let goal = bare.median() + MISSING_GOAL;
    let figure = Figure::new(
        "a start with 50 workflows that miss node types",
        Series::seconds(ours),
    );
    Ok(figure.floor("without workflows", bare).goal(goal))
}

/// Starts a server with so many plugins twice on the same data.
async fn measure(effort: &Effort, plugins: usize, starts: &mut Starts) -> anyhow::Result<()> {
    let directory = effort.fresh_directory()?;
    let deploy = directory.path().join("deploy");
    for part in ["workflows", "agents", "models", "plugins"] {
        fs::create_dir_all(deploy.join(part))?;
    }
    for plugin in 0..plugins {
        write_plugin(&deploy.join("plugins"), &format!("bench-{plugin}"))?;
    }
    let start = || Served::start_in(directory.path(), &deploy, "127.83.2.1", &[]);
    starts.first.push(start().await?.seconds_to_ready);
    let server = start().await?;
    starts.later.push(server.seconds_to_ready);
    let process = server.id();
    let used = || processes::processor_seconds(process).context("the server has ended");
    // The work of the start ends.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = used()?;
    tokio::time::sleep(IDLE).await;
    starts.idle.push((used()? - before) / IDLE.as_secs_f64());
    let resident = processes::resident_mebibytes(process);
    starts
        .mebibytes
        .push(resident.context("the server has ended")?);
    Ok(())
}

fn write_plugin(place: &Path, name: &str) -> anyhow::Result<()> {
    let files = place.join(name);
    fs::create_dir_all(files.join("tools"))?;
    let manifest = format!("name: {name}\nversion: 1.0.0\ntools: {{entry: tools}}\n");
    fs::write(files.join("plugin.yaml"), manifest)?;
    fs::write(files.join("main.py"), "print('{}')\n")?;
    for tool in 0..TOOLS {
        let definition = json!({
            "id": format!("{name}:tool-{tool}"),
            "description": "Finds the entries of a list that match the words, the best first.",
            "implementation": {"type": "script", "command": "python main.py"},
            "parameters": {
                "type": "object",
                "properties": {
                    "words": {"type": "string", "description": "The words.", "maxLength": 200},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                    "order": {"type": "string", "enum": ["best", "newest", "oldest"]},
                },
                "required": ["words"],
            },
            "readOnly": true,
        });
        let file = files.join(format!("tools/tool-{tool}.tool.json"));
        fs::write(file, definition.to_string())?;
    }
    Ok(())
}

fn differences(more: &[f64], less: &[f64]) -> Vec<f64> {
    let pairs = more.iter().zip(less);
    pairs.map(|(more, less)| (more - less).max(0.0)).collect()
}
