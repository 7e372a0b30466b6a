//! Builds one set: beside all others until it is whole, then in their place.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use package_lock::{Format, Lock};
use rustix::fs::FlockOperation;
use sandbox_engine::{
    Engine, EngineSettings,
    domain::{
        limits::Limits,
        package_set::PackageSet,
        profile::{Installer, PackagesProfile, Profile},
    },
    packages::{MANIFEST, PackageStore, Packages, SETS, TREE, claim_alone},
    pool,
    runtimes::{Interpreter, Runtime},
    slot::HostResources,
};

use blob_store::BlobStore;

use crate::{
    error::{At as _, BuildError},
    installer::Fetcher,
    prepare::{self, Workshop},
    set_file::{SetFile, path_of},
    tree,
    wheel::{MAX_BYTES, Unpacking},
};

/// The lock of everyone who changes the directory of the sets.
const LOCK: &str = ".lock";

/// The runtime of a set that names none.
const PYTHON: &str = "python3";

/// The beginning of the names of directories in which sets are built.
const STAGING: &str = ".building-";

/// The engine that runs the code of packages, and the sets.
#[derive(Debug)]
pub struct Builder {
    engine: Engine,
    blobs: BlobStore,
    limits: Limits,
}

/// A set that was built.
#[derive(Debug)]
pub struct Built {
    /// The set.
    pub set: PackageSet,
    /// Whether the same set was there already.
    pub existed: bool,
    /// Files of packages that were left out: they would act when an interpreter starts, or hide modules of the language.
    pub left_out: Vec<String>,
}

/// The means to build sets of one runtime.
struct Means<'a> {
    tools: &'a HostResources,
    runtime: &'a Runtime,
    interpreter: &'a Interpreter,
    profile: &'a PackagesProfile,
}

impl Builder {
    /// Examines the host, as a sandbox with these settings does.
    ///
    /// # Errors
    /// The engine cannot be built.
    pub async fn open(settings: EngineSettings) -> Result<Self, BuildError> {
        let blobs = BlobStore::open(&prepare::blob_settings())?;
        let limits = settings.default_limits;
        let settings = EngineSettings {
            warm_interpreters: 0,
            ..settings
        };
        let engine = Engine::build(settings, &blobs).await?;
        Ok(Self {
            engine,
            blobs,
            limits,
        })
    }

    /// Ends the processes that wait for scripts.
    pub async fn close(&self) {
        self.engine.shutdown().await;
    }

    /// Resolves packages, and writes the lock of a set and, if it has none, its file for this runtime. Returns the path
    /// of the lock.
    ///
    /// # Errors
    /// The runtime cannot be used, or the packages cannot be resolved.
    pub async fn lock(
        &self,
        directory: &Path,
        name: &str,
        runtime: Option<&str>,
        packages: &[String],
    ) -> Result<PathBuf, BuildError> {
        let file = path_of(directory, name);
        let known = match file.exists() {
            true => Some(SetFile::read(directory, name)?),
            false => None,
        };
        let set = known
            .clone()
            .unwrap_or_else(|| SetFile::new(name, runtime.unwrap_or(PYTHON)));
        if let Some(other) = runtime.filter(|runtime| *runtime != set.runtime) {
            return Err(BuildError::SetFile {
                path: file,
                problems: vec![format!("its `runtime` is {}, not {other}", set.runtime)],
            });
        }
        set.check(&file, name)?;
        let means = self.means(&set.runtime)?;
        let scratch = tempfile::tempdir().at("making a directory in", std::env::temp_dir())?;
        let resolved = means.fetcher().resolve(packages, scratch.path()).await?;
        let text = match means.profile.installer {
            Installer::Npm => resolved,
            Installer::Pip => format!(
                "# Made by `tavern packages lock {name} {}` for {} {} on {}.\n{resolved}",
                packages.join(" "),
                set.runtime,
                means.interpreter.version,
                std::env::consts::ARCH,
            ),
        };
        let path = directory.join(&set.lock);
        read_lock(means.profile.installer, &path, &text)?;
        fs::create_dir_all(directory).at("making", directory)?;
        fs::write(&path, text).at("writing", &path)?;
        if known.is_none() {
            fs::write(&file, set.text()).at("writing", &file)?;
        }
        Ok(path)
    }

    /// Builds a set from its file and its lock.
    ///
    /// # Errors
    /// Anything that keeps it from being whole; the set of this name, if there was one, is unchanged then.
    pub async fn build(&self, directory: &Path, name: &str) -> Result<Built, BuildError> {
        let set = SetFile::read(directory, name)?;
        let means = self.means(&set.runtime)?;
        let path = directory.join(&set.lock);
        let text = fs::read_to_string(&path).at("reading", &path)?;
        let lock = read_lock(means.profile.installer, &path, &text)?;
        let store = &self.engine.packages;
        let _locked = claim(store.directory())?;
        sweep(store)?;
        let staging = tempfile::Builder::new()
            .prefix(STAGING)
            .tempdir_in(store.directory());
        let staging = staging.at("making a directory in", store.directory())?;
        let (tree, left_out) = means.gather(&lock, staging.path()).await?;
        let (digest, bytes, modules) = describe(&means, &set, &tree)?;
        let place = Place::of(store, digest);
        let mut built = PackageSet {
            name: set.name.clone(),
            digest: format!("sha256:{}", place.digest),
            runtime: means.runtime.profile.name.clone(),
            version: means.interpreter.version.clone(),
            architecture: std::env::consts::ARCH.to_owned(),
            packages: lock.packages,
            modules,
            warm: set.warm,
            environment: set.environment,
            caches: Vec::new(),
            bytes,
            warm_memory: 0,
        };
        let known = read_manifest(&place.directory).ok();
        let existed = known.is_some();
        if let Some(known) = known {
            built = known;
        } else {
            // A directory whose description is damaged.
            if place.directory.exists() {
                let in_use = |users| BuildError::InUse {
                    name: name.to_owned(),
                    users,
                };
                let _alone = claim_alone(&place.directory).map_err(in_use)?;
                fs::remove_dir_all(&place.directory).at("removing", &place.directory)?;
            }
            let unfinished = Unfinished::begin(&tree, &place.directory)?;
            let workshop = Workshop {
                tools: means.tools,
                made_for: means.made_for(),
                profile: means.profile,
                blobs: &self.blobs,
            };
            let packages = Packages::new(built.clone(), place.directory.clone());
            built.caches = workshop.prepare(&packages, &set.test, &set.caches).await?;
            tree::open_up(&place.directory)?;
            let packages = Packages::new(built.clone(), place.directory.clone());
            let weighed = pool::weigh(means.tools, means.made_for(), packages, self.limits).await;
            built.warm_memory = weighed.map_err(|problem| {
                BuildError::Unsound(format!(
                    "no interpreter waits with `warm` imported: {problem}"
                ))
            })?;
            unfinished.finish(&built)?;
        }
        place.name(store, name)?;
        sweep(store)?;
        Ok(Built {
            set: built,
            existed,
            left_out,
        })
    }

    fn no_isolation(&self) -> BuildError {
        let failures = self.engine.report.failures.iter();
        let failures: Vec<String> = failures.map(|(_, failure)| failure.to_string()).collect();
        BuildError::NoIsolation(failures.join("; "))
    }

    fn means(&self, name: &str) -> Result<Means<'_>, BuildError> {
        let wrong = |problem: String| BuildError::Runtime {
            runtime: name.to_owned(),
            problem,
        };
        let mut runtimes = self.engine.runtimes.iter();
        let runtime = runtimes.find(|runtime| runtime.profile.answers_to(name));
        let runtime = runtime.ok_or_else(|| wrong("it is unknown".to_owned()))?;
        // The fastest one may be another the next time.
        let interpreter = runtime.proven.first();
        let unusable = || {
            runtime
                .interpreter
                .as_ref()
                .err()
                .cloned()
                .unwrap_or_default()
        };
        let profile = runtime.profile.packages.as_ref();
        Ok(Means {
            tools: self
                .engine
                .tools
                .as_ref()
                .ok_or_else(|| self.no_isolation())?,
            runtime,
            interpreter: interpreter.ok_or_else(|| wrong(unusable()))?,
            profile: profile.ok_or_else(|| wrong("it has no package sets".to_owned()))?,
        })
    }
}

/// Removes a set that no script and no session uses; returns its digest.
///
/// # Errors
/// There is none, or it is in use.
pub fn remove(store: &PackageStore, name: &str) -> Result<String, BuildError> {
    let _locked = claim(store.directory())?;
    // A set whose description is damaged is removed too.
    let directory = store.place(name)?;
    let in_use = |users| BuildError::InUse {
        name: name.to_owned(),
        users,
    };
    let _alone = claim_alone(&directory).map_err(in_use)?;
    let link = store.directory().join(name);
    fs::remove_file(&link).at("removing", &link)?;
    // A directory without a description is no set.
    let manifest = directory.join(MANIFEST);
    fs::remove_file(&manifest).at("removing", &manifest)?;
    fs::remove_dir_all(&directory).at("removing", &directory)?;
    let digest = directory.file_name().unwrap_or_default();
    Ok(format!("sha256:{}", digest.to_string_lossy()))
}

impl Means<'_> {
    fn made_for(&self) -> (Profile, Interpreter) {
        (self.runtime.profile.clone(), self.interpreter.clone())
    }

    fn fetcher(&self) -> Fetcher<'_> {
        Fetcher {
            installer: self.profile.installer,
            interpreter: self.interpreter,
        }
    }

    /// Fetches and unpacks the packages of a lock into a tree below a directory; returns it with the files left out.
    async fn gather(
        &self,
        lock: &Lock,
        below: &Path,
    ) -> Result<(PathBuf, Vec<String>), BuildError> {
        let (fetched, tree) = (below.join("fetched"), below.join(TREE));
        for directory in [&fetched, &tree] {
            fs::create_dir(directory).at("making", directory)?;
        }
        self.fetcher().fetch(lock, &fetched).await?;
        let left_out = match self.profile.installer {
            Installer::Pip => self.unpack(&fetched, &tree).await?,
            Installer::Npm => {
                let (from, to) = (fetched.join("node_modules"), tree.join("node_modules"));
                // npm's note about its own work, not a file of a package.
                let note = from.join(".package-lock.json");
                fs::remove_file(&note).at("removing", &note)?;
                fs::rename(&from, &to).at("moving", &from)?;
                Vec::new()
            }
        };
        tree::open_up(&tree)?;
        Ok((tree, left_out))
    }

    async fn unpack(&self, fetched: &Path, tree: &Path) -> Result<Vec<String>, BuildError> {
        let reserved = self.reserved().await?;
        let mut unpacking = Unpacking {
            tree,
            reserved: &reserved,
            left: MAX_BYTES,
            left_out: Vec::new(),
        };
        for wheel in tree::files(fetched)? {
            unpacking.wheel(&fetched.join(wheel.path))?;
        }
        Ok(unpacking.left_out)
    }

    /// The names that no library may have, as the interpreter states them.
    async fn reserved(&self) -> Result<BTreeSet<String>, BuildError> {
        if self.profile.reserved.is_empty() {
            return Ok(BTreeSet::new());
        }
        let program = &self.interpreter.executable;
        let mut asked = tokio::process::Command::new(program);
        asked
            .args(&self.profile.reserved)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null());
        let said = asked.output().await.at("starting", program)?;
        let names = String::from_utf8_lossy(&said.stdout);
        let names: BTreeSet<String> = names.split_whitespace().map(str::to_owned).collect();
        match said.status.success() && !names.is_empty() {
            true => Ok(names),
            false => Err(io::Error::other("it names no reserved modules")).at("asking", program),
        }
    }
}

fn read_lock(installer: Installer, path: &Path, text: &str) -> Result<Lock, BuildError> {
    let format = match installer {
        Installer::Pip => Format::Pip,
        Installer::Npm => Format::Npm,
    };
    Lock::read(format, text).map_err(|problems| BuildError::Lock {
        path: path.to_owned(),
        problems,
    })
}

/// The digest, the size and the modules of a tree.
fn describe(
    means: &Means<'_>,
    set: &SetFile,
    tree: &Path,
) -> Result<(String, u64, Vec<String>), BuildError> {
    let files = tree::files(tree)?;
    let described = serde_json::to_string(set).at("describing", tree)?;
    let about = [
        means.runtime.profile.name.as_str(),
        &means.interpreter.version,
        std::env::consts::ARCH,
        &described,
    ];
    let digest = tree::digest(tree, &files, &about)?;
    let bytes = files.iter().map(|file| file.bytes).sum();
    Ok((
        digest,
        bytes,
        tree::modules(means.profile.installer, &files),
    ))
}

/// The place of a set by its digest.
struct Place {
    digest: String,
    directory: PathBuf,
}

impl Place {
    fn of(store: &PackageStore, digest: String) -> Self {
        let directory = store.directory().join(SETS).join(&digest);
        Self { digest, directory }
    }

    /// Gives the set its name, in the place of the set that had it.
    fn name(&self, store: &PackageStore, name: &str) -> Result<(), BuildError> {
        let (link, beside) = (
            store.directory().join(name),
            store.directory().join(".link"),
        );
        // A build that was killed may have left it.
        let _ = fs::remove_file(&beside);
        let target = Path::new(SETS).join(&self.digest);
        std::os::unix::fs::symlink(target, &beside).at("linking", &beside)?;
        fs::rename(&beside, &link).at("naming", &link)?;
        tree::sync(store.directory())
    }
}

/// A directory of a set that is not whole, removed on drop.
struct Unfinished<'a>(Option<&'a Path>);

impl<'a> Unfinished<'a> {
    fn begin(tree: &Path, directory: &'a Path) -> Result<Self, BuildError> {
        fs::create_dir_all(directory).at("making", directory)?;
        let unfinished = Self(Some(directory));
        fs::rename(tree, directory.join(TREE)).at("moving", tree)?;
        Ok(unfinished)
    }

    /// Writes the description, by which the directory becomes a set.
    fn finish(mut self, set: &PackageSet) -> Result<(), BuildError> {
        let directory = self.0.unwrap_or(Path::new(""));
        let (manifest, beside) = (directory.join(MANIFEST), directory.join(".set.json"));
        let text = serde_json::to_vec_pretty(set).at("writing", &beside)?;
        fs::write(&beside, text).at("writing", &beside)?;
        tree::open_up(&beside)?;
        tree::sync(directory)?;
        fs::rename(&beside, &manifest).at("naming", &manifest)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(directory) = self.0 {
            // The next build removes the rest.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

fn read_manifest(directory: &Path) -> Result<PackageSet, BuildError> {
    let path = directory.join(MANIFEST);
    let text = fs::read(&path).at("reading", &path)?;
    serde_json::from_slice(&text).at("reading", path)
}

/// Claims the directory of the sets for a change.
fn claim(directory: &Path) -> Result<File, BuildError> {
    let sets = directory.join(SETS);
    fs::create_dir_all(&sets).at("making", &sets)?;
    for directory in [directory, &sets] {
        // Services of other users read them, whatever the umask of the operator.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
            .at("opening up", directory)?;
    }
    let path = directory.join(LOCK);
    let lock = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .at("opening", &path)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_) => Err(BuildError::Busy {
            directory: directory.to_owned(),
        }),
    }
}

/// Removes the leavings of builds that were killed, and sets without a name and without users.
fn sweep(store: &PackageStore) -> Result<(), BuildError> {
    let entries = |directory: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    // By their links: the description of a set that is kept need not be readable for this program.
    let named = entries(store.directory())
        .into_iter()
        .filter(|path| path.is_symlink());
    let named: BTreeSet<PathBuf> = named
        .filter_map(|link| fs::canonicalize(link).ok())
        .collect();
    let staged = entries(store.directory()).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(STAGING)
    });
    let sets = store.directory().join(SETS);
    let sets = fs::canonicalize(&sets).unwrap_or(sets);
    let unnamed = entries(&sets)
        .into_iter()
        .filter(|path| !named.contains(path));
    for path in staged.chain(unnamed) {
        if claim_alone(&path).is_ok() {
            fs::remove_dir_all(&path).at("removing", &path)?;
        }
    }
    Ok(())
}
