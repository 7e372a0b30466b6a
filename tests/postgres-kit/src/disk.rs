//! A small file system in memory, which can be filled.

use std::{
    fs::{File, remove_file},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
};

use crate::programs::run;

/// The file that fills it.
const BALLAST: &str = "ballast";

/// A file system in memory over a directory, taken away when it is dropped.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    directory: PathBuf,
}

impl SmallDisk {
    /// Whether this process may mount one.
    #[expect(
        clippy::print_stderr,
        reason = "a person reads which tests did not run"
    )]
    pub(crate) fn may_be_mounted() -> bool {
        let may = rustix::process::geteuid().is_root();
        if !may {
            eprintln!("only root mounts a file system, so this test does not run");
        }
        may
    }

    pub(crate) fn mount(directory: &Path, megabytes: u32) -> anyhow::Result<Self> {
        let size = format!("size={megabytes}m,mode=0700");
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tavern-test"])
            .arg(directory))?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Writes until no byte is left.
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let mut ballast = File::create(self.directory.join(BALLAST))?;
        for bytes in [1 << 20, 1 << 12] {
            let zeros = vec![0; bytes];
            loop {
                match ballast.write_all(&zeros) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn free(&self) -> anyhow::Result<()> {
        Ok(remove_file(self.directory.join(BALLAST))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy, as a process of the server may still have a file open.
        let unmounted = run(Command::new("umount").arg("--lazy").arg(&self.directory));
        unmounted.map(drop).unwrap_or_default();
    }
}
