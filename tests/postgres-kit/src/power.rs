//! A file system that loses its power.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context;
use tempfile::NamedTempFile;

use crate::{disk::SmallDisk, programs::run};

/// Ends a file system of ext4 at once: nothing that was not synced is written any more, and every later access fails.
/// The numbers are `EXT4_IOC_SHUTDOWN` and `EXT4_GOING_FLAGS_NOLOGFLUSH`.
const CUT: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// The longest wait for processes that still have a file open.
const BUSY: Duration = Duration::from_secs(30);

/// A file system in a file, over a directory. It is taken away when it is dropped.
#[derive(Debug)]
pub struct PowerDisk {
    image: NamedTempFile,
    directory: PathBuf,
}

impl PowerDisk {
    /// Mounts one over a directory. `None` where this process may not, or has no loop device.
    ///
    /// # Errors
    /// The image cannot be made.
    #[expect(
        clippy::print_stderr,
        reason = "a person reads which tests did not run"
    )]
    pub fn mount(directory: &Path, megabytes: u64) -> anyhow::Result<Option<Self>> {
        if !SmallDisk::may_be_mounted() {
            return Ok(None);
        }
        let image = NamedTempFile::new()?;
        image.as_file().set_len(megabytes << 20)?;
        run(Command::new("mkfs.ext4").arg("-q").arg(image.path()))?;
        let disk = Self {
            image,
            directory: directory.to_owned(),
        };
        match disk.turn_on() {
            Ok(()) => Ok(Some(disk)),
            Err(error) => {
                eprintln!("a file is not mounted here, so this test does not run: {error:#}");
                Ok(None)
            }
        }
    }

    /// Cuts the power. The processes that use the disk are to be killed next.
    ///
    /// # Errors
    /// Python is missing, or the file system refuses.
    pub fn cut(&self) -> anyhow::Result<()> {
        run(Command::new("python3")
            .args(["-c", CUT])
            .arg(&self.directory))
        .map(drop)
    }

    /// Mounts the disk again, as it was when the power was cut.
    ///
    /// # Errors
    /// A process still uses it, or the file system is broken.
    pub fn restore(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while let Err(error) = run(Command::new("umount").arg(&self.directory)) {
            if begun.elapsed() > BUSY {
                return Err(error).context("the disk is in use");
            }
            sleep(Duration::from_millis(20));
        }
        self.turn_on()
    }

    fn turn_on(&self) -> anyhow::Result<()> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]);
        run(mount.arg(self.image.path()).arg(&self.directory)).map(drop)
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // Lazy, as a process may still have a file open.
        let unmounted = run(Command::new("umount").arg("--lazy").arg(&self.directory));
        unmounted.map(drop).unwrap_or_default();
    }
}
