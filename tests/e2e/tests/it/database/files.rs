//! The files of conversations and the blobs are at the server, whatever becomes of a machine.

use std::fs;

use anyhow::{Context, ensure};
use testkit::{Stack, migrated};

use crate::files::model::play;
use crate::left_files::{CODE, fetched};
use crate::text::{output, result_of};

/// Operations in `make test`.
const OPERATIONS: u64 = 50;

/// Kills a process, loses its data directory, and starts another.
async fn lose_machine(stack: &mut Stack) -> anyhow::Result<()> {
    stack.kill()?;
    fs::remove_dir_all(stack.directory().join("data"))?;
    stack.restart().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_are_those_of_a_model_on_one_machine_after_the_other() -> anyhow::Result<()> {
    let Some(server) = postgres_kit::shared() else {
        return Ok(());
    };
    let database = migrated(server).await?;
    let mut stack = Stack::builder().database(database).start().await?;
    let left = output(&result_of(&stack, "harvest", CODE.to_owned()).await?)?;
    let digest = left["files"][0]["digest"].as_str().context("a digest")?;
    let digest = digest.strip_prefix("sha256:").context("its kind")?;
    let content = fetched(&stack, "harvest", digest).await?;
    ensure!(content.len() == 1_000_000, "{} bytes", content.len());
    let lose = async |stack: &mut Stack, _: &mut fastrand::Rng| lose_machine(stack).await;
    play(&mut stack, OPERATIONS, lose).await?;
    ensure!(fetched(&stack, "harvest", digest).await? == content);
    Ok(())
}
