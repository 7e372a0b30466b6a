//! Requests about documents and their answers, as recorded in `golden/documents`, one file a kind.
//!
//! A file has lists of steps: `changes` are played first, `reads` before and after a restart, and then
//! `after_restart` and `after_files_change`. With the variable `BLESS` set, the answers are
//! recorded anew, also of steps without an answer.

mod player;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use prost_reflect::DescriptorPool;
use serde_json::Value;
use testkit::{PythonServer, Stack};

use player::Player;

/// The kinds in the order in which they are played: later kinds may name earlier ones.
const KINDS: [&str; 8] = [
    "backends",
    "tools",
    "workflows",
    "schedules",
    "knowledge",
    "profiles",
    "scenes",
    "projects",
];

/// The lists of steps in the order in which they are played.
const LISTS: [&str; 4] = ["changes", "reads", "after_restart", "after_files_change"];

/// The file of a kind, and the requests sent so far.
struct Kind {
    path: PathBuf,
    golden: Value,
    player: Player,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/documents")
}

impl Kind {
    fn read(name: &str, backend: &str, deploy: &Path) -> anyhow::Result<Self> {
        let path = directory().join(name).with_extension("json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let golden: Value = serde_json::from_str(&text)?;
        let service = golden["service"].as_str().context("a service")?;
        Ok(Self {
            player: Player::new(name, service, backend, deploy.to_owned()),
            path,
            golden,
        })
    }

    /// Sends the requests of a list, and returns the differences of the answers from the recorded
    /// ones. With `record` they are recorded instead.
    async fn play(
        &mut self,
        stack: &Stack,
        list: &str,
        record: bool,
    ) -> anyhow::Result<Vec<String>> {
        let mut differences = Vec::new();
        let steps = self.golden[list].as_array_mut();
        for step in steps.into_iter().flatten() {
            match self.player.play(&stack.address(), step, record).await {
                Ok(found) => differences.extend(found),
                // The steps behind it may use values of its answer.
                Err(error) if !record => {
                    differences.push(format!("{error:#}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(differences)
    }

    fn write(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.golden)?;
        Ok(std::fs::write(&self.path, format!("{text}\n"))?)
    }

    /// Returns the methods of the steps, and the methods that the file excludes because they
    /// concern no document.
    fn methods(&self) -> impl Iterator<Item = (&str, &str)> {
        let service = self.golden["service"].as_str().unwrap_or_default();
        let steps = LISTS.into_iter();
        let steps = steps.filter_map(|list| self.golden[list].as_array());
        let asked = steps.flatten().filter_map(|step| step["method"].as_str());
        let other = self.golden["not_about_documents"].as_array();
        let other = other.into_iter().flatten().filter_map(Value::as_str);
        asked.chain(other).map(move |method| (service, method))
    }
}

/// Copies the files of a directory and of the directories below it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(std::fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// Returns the methods of the services of these kinds that no file knows.
fn forgotten(kinds: &[Kind]) -> anyhow::Result<Vec<String>> {
    let pool = DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET)?;
    let known: BTreeSet<(&str, &str)> = kinds.iter().flat_map(Kind::methods).collect();
    let services: BTreeSet<&str> = known.iter().map(|(service, _)| *service).collect();
    let mut forgotten = Vec::new();
    for service in services {
        let descriptor = pool.get_service_by_name(service).context("a service")?;
        let methods = descriptor.methods();
        let methods = methods.filter(|method| !known.contains(&(service, method.name())));
        forgotten.extend(methods.map(|method| method.full_name().to_owned()));
    }
    Ok(forgotten)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_about_a_document_is_answered_as_it_is_recorded() -> anyhow::Result<()> {
    let record = std::env::var_os("BLESS").is_some();
    let deploy = tempfile::tempdir()?;
    copy(&directory().join("deploy"), deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let ledger = stack.directory().join("ledger");
    let backend = PythonServer::start("ledger_backend.py", &ledger, stack.directory()).await?;
    let mut kinds = Vec::new();
    for name in KINDS {
        kinds.push(Kind::read(name, &backend.uri(), deploy.path())?);
    }
    assert_eq!(forgotten(&kinds)?, [""; 0], "methods without a golden");

    let [changes, reads, after_restart, after_files_change] = LISTS;
    let mut differences = Vec::new();
    for list in [changes, reads] {
        for kind in &mut kinds {
            differences.extend(kind.play(&stack, list, record).await?);
        }
    }
    stack.restart().await?;
    for kind in &mut kinds {
        differences.extend(kind.play(&stack, reads, false).await?);
    }
    for list in [after_restart, after_files_change] {
        for kind in &mut kinds {
            differences.extend(kind.play(&stack, list, record).await?);
        }
    }
    if record {
        kinds.iter().try_for_each(Kind::write)?;
    }
    assert!(
        differences.is_empty(),
        "{} differences from the goldens; BLESS=1 records them:\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}
