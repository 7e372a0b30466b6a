//! The package set that the scripts of a plugin import by its `dependencies`.

use call_outcome::Violation;
use core_types::ContentDigest;
use tool_domain::{
    manifest::{Manifest, PackageRuntime},
    package::Package,
};

use crate::{MANIFEST, PluginFiles};

/// The most bytes of a plugin's name in the name of its set.
const MAX_PREFIX_BYTES: usize = 40;

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
}

impl PluginSet {
    /// Returns the lock in the package whose set it is; empty in another one.
    pub fn lock_in<'f>(&self, files: &'f PluginFiles) -> &'f [u8] {
        content(files.package(), &self.lock).unwrap_or_default()
    }

    /// Returns the set of a plugin, if it has dependencies.
    ///
    /// # Errors
    /// The lock is no file of the package.
    pub(crate) fn of(
        manifest: &Manifest,
        package: &Package,
    ) -> Result<Option<Self>, Box<Violation>> {
        let Some(dependencies) = &manifest.dependencies else {
            return Ok(None);
        };
        let lock = &dependencies.lock;
        let Some(content) = content(package, lock) else {
            let place = format!("{MANIFEST}/dependencies/lock");
            let message = format!("its lock '{lock}' is not a file of the plugin");
            return Err(Box::new(Violation::new(place, "lock_not_found", message)));
        };
        let plugin = manifest.name.as_str();
        let prefix = &plugin[..plugin.floor_char_boundary(MAX_PREFIX_BYTES)];
        let digest = ContentDigest::of(content).to_string();
        Ok(Some(Self {
            name: format!("{prefix}-{}", &digest[..DIGITS]),
            runtime: dependencies.runtime,
            lock: lock.clone(),
        }))
    }
}

fn content<'f>(package: &'f Package, path: &str) -> Option<&'f [u8]> {
    let mut files = package.files().iter();
    let file = files.find(|file| file.path == path);
    file.map(|file| &*file.content)
}
