//! The package set that the scripts of a plugin import by its `dependencies`.

use std::collections::BTreeMap;

use call_outcome::Violation;
use core_types::ContentDigest;
use package_lock::{Format, Lock};
use tool_domain::{
    manifest::{Manifest, PackageRuntime},
    package::Package,
};

use crate::{MANIFEST, PluginFiles};

/// The most bytes of a plugin's name in the name of its set.
const MAX_PREFIX_BYTES: usize = 40;

/// The most wrong lines of a lock that are named.
const MAX_PROBLEMS: usize = 100;

/// The hexadecimal digits of the lock's digest in the name of its set.
const DIGITS: usize = 12;

/// The package set of a plugin. Another lock makes another set, so that earlier packages keep theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSet {
    /// The name, made of the plugin's and of the lock's digest.
    pub name: String,
    /// The language.
    pub runtime: PackageRuntime,
    /// The path of the lock in the package.
    lock: String,
    /// The versions of the libraries, by name.
    pub libraries: BTreeMap<String, String>,
}

impl PluginSet {
    /// Returns the lock in the package whose set it is; empty in another one.
    pub fn lock_in<'f>(&self, files: &'f PluginFiles) -> &'f [u8] {
        content(files.package(), &self.lock).unwrap_or_default()
    }

    /// Returns the set of a plugin, if it has dependencies.
    ///
    /// # Errors
    /// The lock is no file of the package, or has wrong lines, at most 100 of which are named.
    pub(crate) fn of(
        manifest: &Manifest,
        package: &Package,
    ) -> Result<Option<Self>, Vec<Violation>> {
        let Some(dependencies) = &manifest.dependencies else {
            return Ok(None);
        };
        let lock = &dependencies.lock;
        let of_lock = |code: &'static str, place: &str, message: String| {
            Violation::new(place, code, format!("its lock '{lock}' {message}"))
        };
        let place = format!("{MANIFEST}/dependencies/lock");
        let Some(content) = content(package, lock) else {
            let message = "is not a file of the plugin".to_owned();
            return Err(vec![of_lock("lock_not_found", &place, message)]);
        };
        let format = match dependencies.runtime {
            PackageRuntime::Python => Format::Pip,
            PackageRuntime::Node => Format::Npm,
        };
        let text = std::str::from_utf8(content).map_err(|error| {
            let message = format!("is no text: {error}");
            vec![of_lock("lock_invalid", &place, message)]
        })?;
        let read = Lock::read(format, text).map_err(|problems| {
            let problems = problems.into_iter().take(MAX_PROBLEMS);
            let of_line = |(line, problem)| format!("cannot be used: line {line}: {problem}");
            let problems = problems.map(|problem| of_lock("lock_invalid", lock, of_line(problem)));
            problems.collect::<Vec<_>>()
        })?;
        let plugin = manifest.name.as_str();
        let prefix = &plugin[..plugin.floor_char_boundary(MAX_PREFIX_BYTES)];
        let digest = ContentDigest::of(content).to_string();
        Ok(Some(Self {
            name: format!("{prefix}-{}", &digest[..DIGITS]),
            runtime: dependencies.runtime,
            lock: lock.clone(),
            libraries: read.packages,
        }))
    }
}

fn content<'f>(package: &'f Package, path: &str) -> Option<&'f [u8]> {
    let mut files = package.files().iter();
    let file = files.find(|file| file.path == path);
    file.map(|file| &*file.content)
}
