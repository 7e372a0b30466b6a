//! `tavern packages`: the libraries that scripts import. No server is needed; one that runs notices a change at the next
//! use.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use all_in_one::TavernSettings;
use anyhow::Context;
use call_outcome::sentences;
use clap::{Args, Subcommand};
use grpc_kit::program::print;
use package_builder::{Builder, SetFile};
use plugin_package::{check, read_path};
use sandbox_engine::packages::PackageStore;
use tempfile::TempDir;

/// A command about package sets.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Resolve packages, and write the lock of a set with a hash for every file.
    ///
    /// A set without a file gets one, for the runtime; add the modules that interpreters import ahead (`warm`) and a
    /// `test` there. Python's packages are resolved by pip, those of Node.js by npm.
    Lock(Lock),
    /// Build a set from its lock: fetch, unpack, prepare in the sandbox. The same lock gives the same digest.
    Build(Build),
    /// List the sets that are built: name, runtime, size, digest and packages.
    List(Place),
    /// Remove a set that no session and no script uses.
    Remove(Remove),
}

/// The directories of the sets.
#[derive(Args)]
pub(crate) struct Place {
    /// A TOML file with settings; environment variables win over it.
    #[arg(long, env = "TAVERN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory, in which sets are built unless the settings have a `packages_dir`.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<String>,
    /// The directory with `packages`, which has a file and a lock for each set.
    #[arg(long, value_name = "DIRECTORY")]
    deploy_dir: Option<String>,
}

/// The packages to lock.
#[derive(Args)]
pub(crate) struct Lock {
    /// The name of the set.
    name: String,
    /// The packages, as their installer names them, such as `numpy` or `lodash@4`.
    #[arg(required = true)]
    packages: Vec<String>,
    /// The runtime of a set that has no file yet, such as `node`. Default: python3.
    #[arg(long)]
    runtime: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// The set to build.
#[derive(Args)]
pub(crate) struct Build {
    /// The name of the set.
    #[arg(required_unless_present = "plugin")]
    name: Option<String>,
    /// The plugin whose dependencies are the set: its directory or `.zip`, or its directory below the plugin directory.
    #[arg(long, value_name = "PLUGIN", conflicts_with = "name")]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// The set to remove.
#[derive(Args)]
pub(crate) struct Remove {
    /// The name of the set.
    name: String,
    #[command(flatten)]
    place: Place,
}

impl Command {
    /// Executes the command.
    pub(crate) async fn execute(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Lock(lock) => lock.execute().await?,
            Self::Build(build) => build.execute().await?,
            Self::List(place) => list(&place.store()?),
            Self::Remove(Remove { name, place }) => {
                let removed = package_builder::remove(&place.store()?, &name)?;
                print(&format!("removed {name} {removed}\n"));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Lock {
    async fn execute(self) -> anyhow::Result<()> {
        let builder = self.place.builder().await?;
        let directory = self.place.settings()?.deploy_dir.join("packages");
        let locked = builder
            .lock(
                &directory,
                &self.name,
                self.runtime.as_deref(),
                &self.packages,
            )
            .await;
        builder.close().await;
        let path = locked?;
        print(&format!("locked {} in {}\n", self.name, path.display()));
        Ok(())
    }
}

impl Build {
    async fn execute(self) -> anyhow::Result<()> {
        let deployed = self.place.settings()?.deploy_dir;
        let source = match (self.name, self.plugin) {
            (None, Some(plugin)) => Source::of_plugin(&plugin, &deployed)?,
            (name, _) => Source {
                directory: deployed.join("packages"),
                name: name.unwrap_or_default(),
                _temporary: None,
            },
        };
        let builder = self.place.builder().await?;
        let built = builder.build(&source.directory, &source.name).await;
        builder.close().await;
        let built = built?;
        for file in &built.left_out {
            print(&format!(
                "left out {file}: it would act when an interpreter starts\n"
            ));
        }
        let word = if built.existed { "unchanged" } else { "built" };
        let set = &built.set;
        let size = set.bytes >> 20;
        print(&format!(
            "{word} {} {} ({size} MiB)\n",
            set.name, set.digest
        ));
        Ok(())
    }
}

/// The place of the file and the lock of a set.
struct Source {
    directory: PathBuf,
    name: String,
    /// Removes the directory of a plugin's set when it is built.
    _temporary: Option<TempDir>,
}

impl Source {
    /// Writes the file and the lock of the set of a plugin.
    fn of_plugin(plugin: &Path, deployed: &Path) -> anyhow::Result<Self> {
        let path = match plugin.exists() {
            true => plugin.to_owned(),
            false => deployed.join("plugins").join(plugin),
        };
        let read = read_path(&path).with_context(|| {
            let path = path.display();
            format!("reading {path}; give the directory or the .zip of the plugin")
        })?;
        let files = read.map_err(|violations| anyhow::anyhow!(sentences(&violations)))?;
        let checked = check(&files);
        let set = checked.plugin.and_then(|plugin| plugin.package_set);
        let set = set.with_context(|| match &checked.violations[..] {
            [] => format!("the plugin in {} has no dependencies", path.display()),
            violations => sentences(violations),
        })?;
        let directory = tempfile::tempdir()?;
        let runtime = set.runtime.runtime();
        SetFile::write(directory.path(), &set.name, runtime, set.lock_in(&files))?;
        Ok(Self {
            directory: directory.path().to_owned(),
            name: set.name.clone(),
            _temporary: Some(directory),
        })
    }
}

impl Place {
    fn settings(&self) -> anyhow::Result<TavernSettings> {
        let flags = [
            ("data_dir", &self.data_dir),
            ("deploy_dir", &self.deploy_dir),
        ];
        let flags = flags
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.clone()?)));
        let flags: Vec<(&'static str, String)> = flags.collect();
        let loaded = settings::load::<TavernSettings>(self.config.as_deref(), &flags);
        Ok(loaded.context("settings")?.settings)
    }

    fn store(&self) -> anyhow::Result<PackageStore> {
        Ok(PackageStore::new(&self.settings()?.packages_dir()))
    }

    async fn builder(&self) -> anyhow::Result<Builder> {
        let sandbox = self
            .settings()?
            .sandbox()
            .context("settings of the sandbox")?;
        Ok(Builder::open(sandbox.engine()).await?)
    }
}

fn list(store: &PackageStore) {
    let sets = store.list();
    if sets.is_empty() {
        let directory = store.directory().display();
        print(&format!(
            "no package set is built in {directory}; `tavern packages build` builds one\n"
        ));
    }
    for packages in sets {
        let set = packages.set;
        let named = set
            .packages
            .iter()
            .map(|(name, version)| format!("{name} {version}"));
        let named = named.collect::<Vec<_>>().join(", ");
        let size = set.bytes >> 20;
        print(&format!(
            "{}  {} {}  {size} MiB  {}\n    {named}\n",
            set.name, set.runtime, set.version, set.digest
        ));
    }
}
