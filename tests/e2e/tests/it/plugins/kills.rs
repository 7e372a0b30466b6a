//! A registry that is killed at any moment of a change has the old package or the new one, whole.
//!
//! `TAVERN_TEST_PLUGIN_KILLS` sets the kills of each kind of change; `make bars` sets 20.

use std::ops::RangeInclusive;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use contracts::tavern::common::v1::{CallResult, CallStatus};
use contracts::tavern::registry::v1::{RollbackPluginRequest, UninstallPluginRequest};
use serde_json::json;
use testkit::{Stack, size};
use tonic::Status;

use plugin_package::PluginFiles;

use super::{call, code_of, file, files, install, install_plan, package, plan};

/// Kills of each kind of change in `make test`.
const KILLS: u32 = 2;

/// The operations of the nodes of packages in turn, with the results for 6 and 3.
const OPERATIONS: [(&str, f64); 4] = [
    ("add", 9.0),
    ("subtract", 3.0),
    ("multiply", 18.0),
    ("divide", 2.0),
];

/// The tools of the packages.
pub(super) const SCRIPT: &str = "numbered:number";
pub(super) const NODE: &str = "numbered:node";

/// Answers with the number of its package: that of its file, and that of its options.
pub(super) fn numbered(number: u32) -> anyhow::Result<PluginFiles> {
    let manifest = format!(
        "version: 1.0.{number}\nconfigOptions:\n  \
         - {{key: extensions.numbered.number, type: integer, default: {number}}}\n"
    );
    let script = format!(
        "import json, os\noptions = json.load(open(os.environ['TAVERN_OPTIONS']))\n\
         print(json.dumps([{number}, options['number']]))\n"
    );
    let mut files = files("numbered", &manifest, &[("number", &script)]);
    let node = json!({
        "id": NODE,
        "description": "Calculates as the number of its package says.",
        "readOnly": true,
        "implementation": {
            "type": "node",
            "nodeType": "core:MathOperation",
            "configValues": {"operationMode": OPERATIONS[number as usize % OPERATIONS.len()].0},
        },
    });
    files.push(file("tools/node.tool.json", node.to_string()));
    package(files)
}

/// A kind of change.
#[derive(Clone, Copy, Debug)]
enum Change {
    Install,
    Update,
    Rollback,
    Removal,
}

impl Change {
    /// The numbers of the package in force before and after it; 0 for none.
    fn numbers(self) -> [u32; 2] {
        match self {
            Self::Install => [0, 1],
            Self::Update => [1, 2],
            Self::Rollback => [2, 1],
            Self::Removal => [2, 0],
        }
    }

    /// Makes the change; the plan of an install was made before.
    async fn make(self, stack: &Stack, plan_digest: String) -> Result<(), Status> {
        let name = || "numbered".to_owned();
        match self {
            Self::Install | Self::Update => install_plan(stack, plan_digest).await,
            Self::Rollback => {
                let request = RollbackPluginRequest {
                    name: name(),
                    ..RollbackPluginRequest::default()
                };
                stack.plugins().rollback_plugin(request).await.map(drop)
            }
            Self::Removal => {
                let request = UninstallPluginRequest {
                    name: name(),
                    ..UninstallPluginRequest::default()
                };
                stack.plugins().uninstall_plugin(request).await.map(drop)
            }
        }
    }
}

/// Returns the number of the package in force; 0 for none.
async fn in_force(stack: &Stack) -> anyhow::Result<u32> {
    number_of(&call(stack, (SCRIPT, ""), json!({})).await?)
}

/// Returns the number of the package whose script had a result; 0 if there was none.
pub(super) fn number_of(result: &CallResult) -> anyhow::Result<u32> {
    if result.status() != CallStatus::Succeeded {
        ensure!(
            ["tool_removed", "unknown_tool"].contains(&code_of(result)),
            "{result:?}"
        );
        return Ok(0);
    }
    let [of_file, of_options]: [u32; 2] = serde_json::from_str(&result.output_json)?;
    ensure!(
        of_file == of_options,
        "the file of one, the options of another: {result:?}"
    );
    Ok(of_file)
}

/// Whether a result of the node for 6 and 3 is that of one of these packages.
pub(super) fn is_of_one(
    result: &CallResult,
    mut numbers: RangeInclusive<u32>,
) -> anyhow::Result<bool> {
    ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
    let number: f64 = result.output_json.parse().context("the node calculates")?;
    let of = |package: u32| OPERATIONS[package as usize % OPERATIONS.len()].1;
    Ok(numbers.any(|package| of(package).total_cmp(&number).is_eq()))
}

/// Brings the packages to the state before a change, and returns the digest of its plan.
async fn prepare(stack: &Stack, change: Change) -> anyhow::Result<String> {
    let [before, after] = change.numbers();
    if before == 0 {
        if in_force(stack).await? != 0 {
            Change::Removal.make(stack, String::new()).await?;
        }
    } else {
        install(stack, &numbered(3 - before)?).await?;
        install(stack, &numbered(before)?).await?;
    }
    match change {
        Change::Install | Change::Update => Ok(plan(stack, &numbered(after)?).await?.plan_digest),
        Change::Rollback | Change::Removal => Ok(String::new()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_registry_has_the_old_or_the_new_package() -> anyhow::Result<()> {
    let kills = size("TAVERN_TEST_PLUGIN_KILLS", KILLS)?;
    let mut stack = Stack::all_in_one().await?;
    let kinds = [
        Change::Install,
        Change::Update,
        Change::Rollback,
        Change::Removal,
    ];
    for change in kinds {
        let plan_digest = prepare(&stack, change).await?;
        let begin = Instant::now();
        change.make(&stack, plan_digest).await?;
        // The kills are spread over the time that a change takes.
        let (whole, mut seen) = (begin.elapsed(), [0, 0]);
        for round in 0..kills {
            let plan_digest = prepare(&stack, change).await?;
            let after = whole.mul_f64(1.5 * f64::from(round) / f64::from(kills));
            let made = change.make(&stack, plan_digest);
            // A change that has ended before the kill must be there afterwards.
            let ended = tokio::time::timeout(after, made).await;
            stack.kill()?;
            stack.restart().await?;
            let [old, new] = change.numbers();
            let number = in_force(&stack).await?;
            match number {
                number if number == new => seen[1] += 1,
                number if number == old && ended.is_err() => seen[0] += 1,
                _ => bail!("{change:?}, killed after {after:?}: {number} is in force"),
            }
        }
        eprintln!("{change:?} of {whole:?}: {seen:?} had the old and the new package");
    }
    Ok(())
}
