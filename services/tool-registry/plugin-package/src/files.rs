//! The files of a plugin.

use std::sync::Arc;

use call_outcome::Violation;
use tool_domain::package::{self, Package, PackageFile};

use crate::{
    MANIFEST,
    limits::{Tally, bounded, is_asset},
    names::{self, Named},
    refusal::{Refusal, shown},
};

/// All files of a plugin as they were read, within the bounds of a plugin and with names that every system can keep.
/// Two are equal if their digests are. Clone, cheap.
#[derive(Clone, Debug)]
pub struct PluginFiles {
    package: Arc<Package>,
    assets: Arc<[PackageFile]>,
    digest: String,
}

impl PluginFiles {
    /// Makes the files of a plugin, in any order. A file beneath the top-level `web/` or `dist/` is a front-end asset.
    ///
    /// # Errors
    /// All violations: a name that is refused or passed over, names that a file system may take for one, no
    /// `plugin.yaml` or two, more than [`MAX_FILES`](tool_domain::package::MAX_FILES) files or
    /// [`MAX_BYTES`](tool_domain::package::MAX_BYTES) bytes, more than [`MAX_ASSETS`](crate::MAX_ASSETS) assets or
    /// [`MAX_ASSET_BYTES`](crate::MAX_ASSET_BYTES) bytes of assets.
    pub fn new(mut files: Vec<PackageFile>) -> Result<Self, Vec<Violation>> {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        check_all(&files)?;
        let digest = package::digest(&files);
        let (assets, files): (Vec<_>, _) = files.into_iter().partition(|file| is_asset(&file.path));
        Ok(Self {
            package: Arc::new(Package::new(files)),
            assets: assets.into(),
            digest,
        })
    }

    /// Returns the scripts and definitions, which scripts see.
    pub fn package(&self) -> &Arc<Package> {
        &self.package
    }

    /// Returns the front-end assets, sorted by path.
    pub fn assets(&self) -> &[PackageFile] {
        &self.assets
    }

    /// Returns every file, sorted by path.
    pub fn all(&self) -> Vec<&PackageFile> {
        let mut all: Vec<&PackageFile> = self.package.files().iter().chain(&*self.assets).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Returns the number of bytes of all files together.
    pub fn bytes(&self) -> usize {
        let all = self.package.files().iter().chain(&*self.assets);
        all.map(|file| file.content.len()).sum()
    }

    /// Returns the digest over path, size and content of every file, assets included (rule R103), with its `sha256:`.
    /// Without assets it is the digest of [`PluginFiles::package`].
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl PartialEq for PluginFiles {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

fn check_all(files: &[PackageFile]) -> Result<(), Vec<Violation>> {
    let mut wrong = Vec::new();
    for file in files {
        if let Err(refusal) = names::check(&file.path) {
            wrong.push(refusal.into());
        } else if names::is_passed_over(&file.path) {
            let message = "has a name that is passed over; rename it or leave it out";
            wrong.push(Refusal::new(&file.path, "invalid_path", message).into());
        }
    }
    wrong.extend(names::collisions(files.iter().map(|file| Named {
        path: &file.path,
        is_directory: false,
    })));
    let mut tally = Tally::default();
    let mut sizes = files.iter();
    if let Some(exceeded) = sizes.find_map(|file| tally.add(&file.path, file.content.len()).err()) {
        wrong.push(exceeded.into());
    }
    match manifest_directory(files.iter().map(|file| file.path.as_str())) {
        Ok("") => {}
        Ok(directory) => {
            let message = format!(
                "is missing; it is in '{}', whose content is the plugin",
                shown(directory)
            );
            wrong.push(Violation::new(MANIFEST, "manifest_missing", message));
        }
        Err(violations) => wrong.extend(violations),
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(bounded(wrong)),
    }
}

/// Finds the directory of the manifest among the paths of all files: empty for the root, or a name of a top directory
/// with its `/`. Paths that end with `/` are directories, of which empty ones may be anywhere.
///
/// # Errors
/// No manifest, manifests in two places, a manifest that is a directory, or files beside the directory that has it.
pub(crate) fn manifest_directory<'a>(
    paths: impl Iterator<Item = &'a str> + Clone,
) -> Result<&'a str, Vec<Violation>> {
    let refuse = |place: &str, code: &'static str, message: String| {
        Err(Refusal::new(place, code, message).into())
    };
    let mut found: Option<(&str, &str)> = None;
    let mut near = None;
    for path in paths.clone() {
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let second = rest.split('/').next().unwrap_or_default();
        let (place, directory) = if first == MANIFEST {
            (first, "")
        } else if second == MANIFEST {
            let end = first.len() + 1;
            (&path[..end + MANIFEST.len()], &path[..end])
        } else {
            let name = path.rsplit('/').next().unwrap_or_default();
            if near.is_none() && is_near_manifest(name) && path.split('/').count() <= 2 {
                near = Some(path);
            }
            continue;
        };
        if path.len() > place.len() {
            let message = format!("is a directory; {MANIFEST} is a file");
            return refuse(place, "manifest_is_directory", message);
        }
        if let Some((other, _)) = found {
            // The manifest in a directory is the second, whatever their order.
            let (other, place) = match directory {
                "" => (place, other),
                _ => (other, place),
            };
            let message = format!("is a second manifest beside '{}'; keep one", shown(other));
            return refuse(place, "two_manifests", message);
        }
        found = Some((place, directory));
    }
    let Some((_, directory)) = found else {
        let message = match near {
            Some(near) => format!("is missing; rename '{}'", shown(near)),
            None => "is missing, here and in the only directory; add it".to_owned(),
        };
        return refuse(MANIFEST, "manifest_missing", message);
    };
    let is_beside = |path: &&str| !path.ends_with('/') && !path.starts_with(directory);
    let mut beside = paths.filter(is_beside);
    match beside.next() {
        Some(beside) => {
            let message = format!(
                "is beside the plugin's directory '{}'; move it there or leave it out",
                shown(directory)
            );
            refuse(beside, "beside_plugin", message)
        }
        None => Ok(directory),
    }
}

/// Whether a name is one that is written in the place of the manifest's.
fn is_near_manifest(name: &str) -> bool {
    let name = name.to_lowercase();
    ["plugin.yaml", "plugin.yml", "manifest.yaml", "plugin.json"].contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: impl Into<Vec<u8>>) -> PackageFile {
        PackageFile {
            path: path.to_owned(),
            content: content.into(),
        }
    }

    fn codes(files: Vec<PackageFile>) -> Vec<String> {
        let wrong = PluginFiles::new(files).unwrap_err().into_iter();
        wrong
            .map(|each| format!("{} {}", each.code, each.pointer))
            .collect()
    }

    #[test]
    fn r103_the_digest_covers_assets_and_is_that_of_the_package_without_them() {
        let plain = || vec![file("b/c", "1"), file(MANIFEST, "2")];
        let without = PluginFiles::new(plain()).unwrap();
        assert_eq!(without.digest(), Package::new(plain()).digest());
        assert_eq!(without.package().digest(), without.digest());
        let with = |content: &str| {
            let files = [plain(), vec![file("web/app.js", content)]].concat();
            PluginFiles::new(files).unwrap()
        };
        assert_ne!(with("a").digest(), without.digest());
        assert_ne!(with("a"), with("b"));
        assert_eq!(with("a").package().digest(), without.digest());
        assert_eq!(with("a").assets()[0].path, "web/app.js");
        let files = with("a");
        let paths: Vec<&str> = files.all().iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["b/c", MANIFEST, "web/app.js"]);
        assert_eq!(with("abc").bytes(), 5);
    }

    #[test]
    fn all_violations_are_found_at_once() {
        let files = vec![
            file("a\\b", ""),
            file(".git/HEAD", ""),
            file("X", ""),
            file("x", ""),
            file("plugin.yml", ""),
        ];
        let expected = [
            "invalid_path .git/HEAD",
            "invalid_path a\\b",
            "case_twins x",
            "manifest_missing plugin.yaml",
        ];
        assert_eq!(codes(files), expected);
    }

    #[test]
    fn one_manifest_is_found_at_the_root_or_in_the_only_directory() {
        let find = |paths: &[&'static str]| {
            manifest_directory(paths.iter().copied())
                .map_err(|wrong| format!("{} {}", wrong[0].code, wrong[0].pointer))
        };
        assert_eq!(find(&[MANIFEST, "a/b"]), Ok(""));
        assert_eq!(find(&["a/plugin.yaml", "a/b/plugin.yaml"]), Ok("a/"));
        for (paths, expected) in [
            (&["a"][..], "manifest_missing plugin.yaml"),
            (&["a/b/plugin.yaml"], "manifest_missing plugin.yaml"),
            (&[MANIFEST, "a/plugin.yaml"], "two_manifests a/plugin.yaml"),
            (
                &["a/plugin.yaml", "b/plugin.yaml"],
                "two_manifests b/plugin.yaml",
            ),
            (&["plugin.yaml/a"], "manifest_is_directory plugin.yaml"),
            (&["a/plugin.yaml/"], "manifest_is_directory a/plugin.yaml"),
            (&["a/plugin.yaml", "b"], "beside_plugin b"),
        ] {
            assert_eq!(find(paths), Err(expected.to_owned()));
        }
    }

    #[test]
    fn files_and_bytes_are_bounded_for_scripts_and_for_assets() {
        let many = |directory: &str, count: usize| {
            let files = (0..count).map(|index| file(&format!("{directory}/{index}"), ""));
            [vec![file(MANIFEST, "")], files.collect()].concat()
        };
        for (directory, most) in [("data", package::MAX_FILES - 1), ("web", crate::MAX_ASSETS)] {
            assert!(PluginFiles::new(many(directory, most)).is_ok());
            assert!(codes(many(directory, most + 1))[0].starts_with("too_large"));
        }
        for (path, most) in [
            ("data/a", package::MAX_BYTES),
            ("dist/a", crate::MAX_ASSET_BYTES),
            (MANIFEST, 16 << 10),
        ] {
            let sized = |bytes| {
                let manifest = (path != MANIFEST).then(|| file(MANIFEST, ""));
                manifest
                    .into_iter()
                    .chain([file(path, vec![0; bytes])])
                    .collect()
            };
            assert!(PluginFiles::new(sized(most)).is_ok(), "{path}");
            assert_eq!(codes(sized(most + 1)), [format!("too_large {path}")]);
        }
    }
}
