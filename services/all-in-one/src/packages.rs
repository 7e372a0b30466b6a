//! `tavern packages`: the libraries that scripts import. No server is needed; one that runs notices a change at the next
//! use.

use std::path::PathBuf;
use std::process::ExitCode;

use all_in_one::TavernSettings;
use anyhow::Context;
use clap::{Args, Subcommand};
use grpc_kit::program::print;
use package_builder::Builder;
use sandbox_engine::packages::PackageStore;

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
    name: String,
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
        let builder = self.place.builder().await?;
        let directory = self.place.settings()?.deploy_dir.join("packages");
        let built = builder.build(&directory, &self.name).await;
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
