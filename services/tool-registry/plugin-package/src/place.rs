//! Plugins at paths of this machine.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

use call_outcome::Violation;
use cap_std::{ambient_authority, fs::Dir};
use tool_domain::package::PackageFile;

use crate::{MAX_PACKED_BYTES, PluginFiles, read_archive, read_directory};

/// Reads the plugin at a path: its directory, or its archive. The path itself may lead through links.
///
/// # Errors
/// The system's error where the path cannot be opened; the violations as of [`read_directory`] and [`read_archive`].
pub fn read_path(path: &Path) -> io::Result<Result<PluginFiles, Vec<Violation>>> {
    if fs::metadata(path)?.is_dir() {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        return Ok(read_directory(&dir));
    }
    let mut bytes = Vec::new();
    let one_more = MAX_PACKED_BYTES as u64 + 1;
    File::open(path)?.take(one_more).read_to_end(&mut bytes)?;
    Ok(read_archive(&bytes))
}

/// Writes files into a new directory.
///
/// # Errors
/// The system's error, also where the directory exists; nothing that exists is changed.
pub fn write_new_directory(path: &Path, files: &[PackageFile]) -> io::Result<()> {
    fs::create_dir(path)?;
    for file in files {
        let target = path.join(&file.path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create_new(target)?.write_all(&file.content)?;
    }
    Ok(())
}
