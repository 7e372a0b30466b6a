//! Directories that are swapped for links while files are placed, measured and collected below them.
//!
//! The service places before a script begins and collects when every process is dead; here neither holds,
//! so that each has only its own care to rely on.

use std::{
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::symlink,
    },
    path::PathBuf,
};

use anyhow::{Context, ensure};
use blob_store::{BlobSettings, BlobStore, Caller};
use core_types::Tenant;
use rustix::fs::{CWD, RenameFlags};
use sandbox_engine::{
    domain::collect::{Caps, CollectSpec, Collected, RefusedReason},
    output_files::{Collection, Placed},
    scratch::ScratchDirectory,
};
use sandbox_launcher::place::{self, Areas};
use sandbox_protocol::{
    channel,
    plan::{Area, DeliveredFile, Delivery},
};

use crate::race::{Rearranger, Tally};

const CONTENT: &[u8] = b"own";
const SECRET: &str = "a secret of the host";

/// A working directory whose `out` is now a directory with a file, now a link to a directory of the
/// host with a file of the same name and many more; and whose `file` is now a file, now a link.
struct Scene {
    _all: tempfile::TempDir,
    scratch: ScratchDirectory,
    host: PathBuf,
}

impl Scene {
    fn make() -> anyhow::Result<Self> {
        let all = tempfile::tempdir()?;
        let host = all.path().join("host");
        fs::create_dir(&host)?;
        fs::write(host.join("file"), SECRET)?;
        for number in 0..500 {
            fs::write(host.join(format!("other-{number}")), SECRET)?;
        }
        let scratch = ScratchDirectory::make(all.path(), None)?;
        let scene = Self {
            _all: all,
            scratch,
            host,
        };
        let work = scene.work();
        fs::create_dir(work.join("out"))?;
        for name in ["out/file", "file"] {
            fs::write(work.join(name), CONTENT)?;
        }
        symlink(&scene.host, work.join("out-link"))?;
        symlink(scene.host.join("file"), work.join("file-link"))?;
        Ok(scene)
    }

    fn work(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    fn open(&self) -> anyhow::Result<OwnedFd> {
        Ok(fs::File::open(self.work())?.into())
    }

    /// Swaps both for their links and back, again and again.
    fn rearrange(&self) -> Rearranger {
        let work = self.work();
        Rearranger::start(move || {
            for name in ["out", "file"] {
                let (one, other) = (work.join(name), work.join(format!("{name}-link")));
                // A name that is being replaced at this moment is swapped the next time.
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            }
        })
    }

    /// The host's files are as they were.
    fn is_untouched(&self) -> anyhow::Result<()> {
        let content = fs::read_to_string(self.host.join("file"))?;
        let names = fs::read_dir(&self.host)?.count();
        ensure!(
            content == SECRET && names == 501,
            "the host has {names} files, one with {content:?}"
        );
        Ok(())
    }
}

const PLACED: &str = "deliveries were placed";
const NOT_PLACED: &str = "deliveries met a link";

/// Delivers `times` files.
///
/// # Errors
/// A file that was written through a link.
pub(crate) fn placing(times: u32) -> anyhow::Result<String> {
    let scene = Scene::make()?;
    let areas = Areas {
        work: scene.open()?,
        input: scene.open()?,
    };
    let rearranger = scene.rearrange();
    let mut tally = Tally::of(&[PLACED, NOT_PLACED]);
    for number in 0..times {
        let path = ["out/file", "file"][number as usize % 2];
        let mut bytes = channel::frame(&Delivery {
            files: vec![DeliveredFile {
                area: Area::Work,
                path: path.to_owned(),
                size: CONTENT.len() as u64,
                executable: false,
            }],
            ..Delivery::default()
        })?;
        bytes.extend(CONTENT);
        match place::deliver(&mut bytes.as_slice(), &areas) {
            Ok(_) => tally.add(PLACED),
            Err(_) => tally.add(NOT_PLACED),
        }
        scene.is_untouched().context("placing")?;
    }
    drop(rearranger);
    Ok(tally.hit()?.to_string())
}

const TAKEN: &str = "files were taken";
const LINK: &str = "links were refused";
const CHANGED: &str = "files had changed between two looks";

/// Collects `times` times.
///
/// # Errors
/// A file of the host that was collected.
pub(crate) fn collecting(times: u32) -> anyhow::Result<String> {
    let scene = Scene::make()?;
    let collection = Collection {
        wanted: CollectSpec {
            patterns: Vec::new(),
            caps: Caps::DEFAULT,
            as_blobs: false,
        },
        placed: Placed::new(),
        blobs: BlobStore::open(&BlobSettings::default())?,
        caller: Caller::named(Tenant::DEFAULT, "soak"),
    };
    let work = scene.open()?;
    let rearranger = scene.rearrange();
    // That one changes between two looks is rare, and not to be waited for.
    let mut tally = Tally::of(&[TAKEN, LINK]);
    for _ in 0..times {
        tally.add(look(&collection.collect(work.as_fd()))?);
    }
    drop(rearranger);
    scene.is_untouched()?;
    Ok(tally.hit()?.to_string())
}

/// Returns the result for `file`; no file of the host may be among the collected ones.
fn look(collected: &Collected) -> anyhow::Result<&'static str> {
    for file in &collected.files {
        let own = file.content.as_deref() == Some(CONTENT);
        ensure!(own, "a file of the host was taken: {file:?}");
    }
    let file = |path: &str| path == "file";
    if collected.files.iter().any(|it| file(&it.path.text)) {
        return Ok(TAKEN);
    }
    let refused = collected.refused.iter().find(|it| file(&it.path.text));
    match refused.context("every name is reported")?.reason {
        RefusedReason::SymbolicLink => Ok(LINK),
        RefusedReason::Unreadable => Ok(CHANGED),
        other => anyhow::bail!("refused as {other:?}"),
    }
}

const ENTERED: &str = "looks saw a directory";
const PASSED_BY: &str = "looks saw a link";

/// Measures `times` times, and removes everything at last.
///
/// # Errors
/// Files of the host that were measured or removed.
pub(crate) fn measuring(times: u32) -> anyhow::Result<String> {
    let scene = Scene::make()?;
    let rearranger = scene.rearrange();
    let mut tally = Tally::of(&[ENTERED, PASSED_BY]);
    for _ in 0..times {
        // Three directories, four names in the working directory, and the file in one of them,
        // which is missed when its directory has become a link, or counted twice.
        let entries = scene.scratch.measure().files;
        ensure!(
            entries <= 9,
            "{entries} entries: those of the host are among them"
        );
        tally.add(if entries >= 8 { ENTERED } else { PASSED_BY });
    }
    drop(rearranger);
    let Scene {
        _all,
        scratch,
        host,
    } = scene;
    let path = scratch.path().to_owned();
    drop(scratch);
    ensure!(!path.exists(), "the directory was not removed");
    ensure!(
        fs::read_dir(&host)?.count() == 501,
        "files of the host were removed"
    );
    Ok(tally.hit()?.to_string())
}
