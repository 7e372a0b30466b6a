//! The bounds of a plugin's files, counted while they are read.

use call_outcome::Violation;
use tool_domain::{
    manifest::MAX_MANIFEST_BYTES,
    package::{MAX_BYTES, MAX_FILES},
};

use crate::{MANIFEST, refusal::Refusal};

/// The most front-end assets of a plugin.
pub const MAX_ASSETS: usize = 500;
/// The most bytes of all front-end assets of a plugin together.
pub const MAX_ASSET_BYTES: usize = 16 << 20;
/// The most entries of a plugin's container, directories and entries that are passed over included.
pub const MAX_ENTRIES: usize = 2_048;
/// The most violations that are kept of one plugin.
pub(crate) const MAX_VIOLATIONS: usize = 64;

/// The directories of front-end assets; these are served to browsers and never reach a script.
const ASSETS: [&str; 2] = ["web/", "dist/"];

/// Whether a file is a front-end asset.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|prefix| path.starts_with(prefix))
}

/// The files and bytes that were counted.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    files: usize,
    bytes: usize,
}

/// Counts files against the bounds of a plugin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    scripts: Count,
    assets: Count,
}

impl Tally {
    /// Returns the most bytes that a file of this path may have, all other files of the plugin aside.
    pub(crate) fn most_bytes(path: &str) -> usize {
        match path {
            MANIFEST => MAX_MANIFEST_BYTES,
            path if is_asset(path) => MAX_ASSET_BYTES,
            _ => MAX_BYTES,
        }
    }

    /// Counts a file.
    ///
    /// # Errors
    /// The file, or all files up to it, exceed a bound.
    pub(crate) fn add(&mut self, path: &str, bytes: usize) -> Result<(), Refusal> {
        if path == MANIFEST && bytes > MAX_MANIFEST_BYTES {
            let message =
                format!("has more than {MAX_MANIFEST_BYTES} bytes; move long texts elsewhere");
            return Err(Refusal::new(path, "too_large", message));
        }
        let (count, files, most, remedy) = match is_asset(path) {
            true => (
                &mut self.assets,
                MAX_ASSETS,
                MAX_ASSET_BYTES,
                "files in web/ and dist/; build smaller front-end assets",
            ),
            false => (
                &mut self.scripts,
                MAX_FILES,
                MAX_BYTES,
                "files outside web/ and dist/; remove files that no script needs",
            ),
        };
        count.files = count.files.saturating_add(1);
        count.bytes = count.bytes.saturating_add(bytes);
        if count.files > files || count.bytes > most {
            let message = format!("exceeds {files} files or {most} bytes of {remedy}");
            return Err(Refusal::new(path, "too_large", message));
        }
        Ok(())
    }
}

/// Cuts the list of violations to the number that is kept.
pub(crate) fn bounded(mut violations: Vec<Violation>) -> Vec<Violation> {
    violations.truncate(MAX_VIOLATIONS);
    violations
}
