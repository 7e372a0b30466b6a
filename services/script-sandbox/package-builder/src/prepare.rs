//! Prepares a set in the sandbox, where alone the code of packages runs: its test, the bytecode, the caches.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use blob_store::{BlobDigest, BlobSettings, BlobStore, Caller};
use sandbox_engine::{
    domain::{
        collect::{Caps, CollectSpec},
        limits::Limits,
        outcome::Outcome,
        owner::Owner,
        profile::{Installer, PackagesProfile, Profile},
        script::{Program, Script, ScriptSpec},
        verdict::Verdict,
    },
    input_files::HeldBlobs,
    packages::{CACHES, Packages, TREE},
    run::{self, Job, Origin, io_handler::Collector},
    runtimes::Interpreter,
    slot::HostResources,
};
use serde_json::json;
use tokio::sync::oneshot;
use zip::ZipArchive;

use crate::{
    error::{At as _, BuildError},
    wheel::{self, Problem},
};

/// The file that holds the prepared files.
const PREPARED: &str = "prepared.zip";

/// The most bytes of the prepared files.
const MAX_PREPARED: usize = 1 << 30;

/// The most bytes of the output of a failure that are reported.
const SAID: usize = 4096;

const LIMITS: Limits = Limits {
    wall_time: Duration::from_secs(900),
    cpu_time: Duration::from_secs(900),
    memory: 2 << 30,
    processes: 64,
    file: MAX_PREPARED,
    disk: MAX_PREPARED,
    disk_files: 10_000,
    open_files: 4096,
    output: 1 << 20,
    result: 1 << 10,
};

/// The place where sets are prepared.
pub(crate) struct Workshop<'a> {
    pub(crate) tools: &'a HostResources,
    /// The profile and the interpreter of the set.
    pub(crate) made_for: (Profile, Interpreter),
    pub(crate) profile: &'a PackagesProfile,
    pub(crate) blobs: &'a BlobStore,
}

impl Workshop<'_> {
    /// Runs the test of a set, and puts its bytecode and its caches into its directory. Returns the files of the caches.
    ///
    /// # Errors
    /// The test failed, or prepared files cannot be written.
    pub(crate) async fn prepare(
        &self,
        packages: &Packages,
        test: &str,
        caches: &[String],
    ) -> Result<Vec<PathBuf>, BuildError> {
        let order = json!({"test": test, "caches": caches});
        let outcome = self.run(packages.clone(), order.to_string()).await?;
        if let Verdict::LauncherFailure(failure) = &outcome.verdict {
            return Err(BuildError::Unsound(failure.to_string()));
        }
        if outcome.verdict != (Verdict::Exited { code: 0 }) {
            let said = [outcome.stdout.bytes, outcome.stderr.bytes].concat();
            let end = &said[said.len().saturating_sub(SAID)..];
            let said = String::from_utf8_lossy(end);
            let verdict = outcome.verdict.class();
            return Err(BuildError::Unsound(format!("{verdict}\n{}", said.trim())));
        }
        let files = outcome.collected.map(|collected| collected.files);
        let prepared = files
            .into_iter()
            .flatten()
            .find(|file| file.path.text == PREPARED);
        match prepared {
            Some(file) => self.place(file.digest, packages.directory(), caches),
            None if self.profile.installer == Installer::Npm => Ok(Vec::new()),
            None => Err(BuildError::Unsound(format!(
                "its preparation left no {PREPARED}"
            ))),
        }
    }

    async fn run(&self, packages: Packages, input_json: String) -> Result<Outcome, BuildError> {
        let unsound = |problem: &str| BuildError::Unsound(problem.to_owned());
        let blobs = self.blobs.settings();
        let caps = Caps {
            file_bytes: MAX_PREPARED as u64,
            total_bytes: MAX_PREPARED as u64,
            time: Duration::from_secs(60),
            ..Caps::DEFAULT
        };
        let collect = CollectSpec::new(&[PREPARED.to_owned()], caps, blobs, true);
        let spec = ScriptSpec {
            input_json,
            collect: Some(collect.map_err(|_| unsound("the caps of blobs are too low"))?),
            ..ScriptSpec::of(
                self.made_for.0.name.clone(),
                Program::Source(self.profile.prepare.clone()),
                LIMITS,
            )
        };
        let script = Script::new(spec, Vec::new());
        let script = script.map_err(|_| unsound("its paths and names do not fit a script"))?;
        let user = self.tools.users.take();
        let job = Job {
            script: Arc::new(script),
            profile: self.made_for.0.clone(),
            interpreter: self.made_for.1.clone(),
            packages: Some(packages.unfinished()),
            origin: Origin::Cold(user.map_err(|_| unsound("no user is free"))?),
            blobs: HeldBlobs::default(),
            accepted: Instant::now(),
        };
        // The preparation is never cancelled; the sender only has to live as long.
        let (_cancel, cancelled) = oneshot::channel();
        Ok(run::run(self.tools, job, Box::new(Collector), cancelled).await)
    }

    /// Places prepared files, which code of the packages has had in its hands: bytecode beside the directory of its
    /// source, and files of the caches that the set names. Everything else is refused.
    fn place(
        &self,
        digest: BlobDigest,
        directory: &Path,
        caches: &[String],
    ) -> Result<Vec<PathBuf>, BuildError> {
        let file = self.copy(digest).at("reading", PREPARED)?;
        let unsound = |problem: String| BuildError::Unsound(format!("{PREPARED}: {problem}"));
        let archive = ZipArchive::new(io::BufReader::new(file));
        let mut archive = archive.map_err(|error| unsound(error.to_string()))?;
        let mut left = MAX_PREPARED as u64;
        let mut of_caches = Vec::new();
        for index in 0..archive.len() {
            let mut entry = archive
                .by_index(index)
                .map_err(|error| unsound(error.to_string()))?;
            let shown = wheel::shown(&entry);
            let inside = wheel::plain_path(&entry).filter(|_| entry.is_file());
            let inside = inside.filter(|path| is_prepared(path, directory, caches));
            let Some(inside) = inside else {
                return Err(unsound(format!("its entry {shown} has no place in a set")));
            };
            let written = wheel::write(&mut entry, &directory.join(&inside), &mut left);
            written.map_err(|problem| match problem {
                Problem::Refused(problem) => unsound(format!("its entry {shown} {problem}")),
                Problem::Storage(error) => error,
            })?;
            if let Ok(cache) = inside.strip_prefix(CACHES) {
                of_caches.push(cache.to_owned());
            }
        }
        Ok(of_caches)
    }

    fn copy(&self, digest: BlobDigest) -> io::Result<File> {
        const PIECE: usize = 1 << 20;
        let owner = Owner::default();
        let caller = Caller::named(owner.principal().tenant(), &owner.name());
        let held = self.blobs.hold(&caller, digest).map_err(io::Error::other)?;
        let mut file = tempfile::tempfile()?;
        let mut offset = 0;
        while offset < held.size() {
            let left = usize::try_from(held.size() - offset).unwrap_or(PIECE);
            let mut piece = vec![0; left.min(PIECE)];
            held.read_exact_at(&mut piece, offset)?;
            file.write_all(&piece)?;
            offset += piece.len() as u64;
        }
        Ok(file)
    }
}

/// The settings of the store for prepared files, which ends with the process.
pub(crate) fn blob_settings() -> BlobSettings {
    BlobSettings {
        total: 2 * MAX_PREPARED,
        per_caller: 2 * MAX_PREPARED,
        largest: MAX_PREPARED,
        ..BlobSettings::default()
    }
}

fn is_prepared(path: &Path, directory: &Path, caches: &[String]) -> bool {
    let parts: Vec<&str> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    match parts.as_slice() {
        [TREE, .., "__pycache__", file] => {
            let source = path.parent().and_then(Path::parent);
            file.ends_with(".pyc") && source.is_some_and(|source| directory.join(source).is_dir())
        }
        [CACHES, cache, _, ..] => caches.iter().any(|it| it == cache),
        _ => false,
    }
}
