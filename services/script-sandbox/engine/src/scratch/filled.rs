//! Measures the file system that one script has for itself.

use std::{io, os::fd::BorrowedFd};

/// The content of a script's own file system in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Bytes of all files, including nameless ones.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// Its device, as the kernel writes it in lists: two hexadecimal numbers.
    pub device: String,
}

impl Filled {
    /// Reads the figures of the file system of a directory.
    ///
    /// # Errors
    /// Fails when the kernel does not report them.
    pub fn look(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let system = rustix::fs::fstatfs(directory)?;
        let device = rustix::fs::fstat(directory)?.st_dev;
        let blocks = system.f_blocks.saturating_sub(system.f_bfree);
        Ok(Self {
            bytes: blocks.saturating_mul(u64::try_from(system.f_bsize).unwrap_or(0)),
            files: system.f_files.saturating_sub(system.f_ffree),
            device: device_name(device),
        })
    }

    /// The memory that it takes, in bytes.
    pub fn memory(&self) -> u64 {
        /// The bytes that the kernel keeps of each file, in addition to its content.
        const PER_FILE: u64 = 1024;
        self.bytes
            .saturating_add(self.files.saturating_mul(PER_FILE))
    }
}

/// A device as the kernel writes it in its lists of mappings.
pub(crate) fn device_name(device: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("{major:02x}:{minor:02x}")
}
