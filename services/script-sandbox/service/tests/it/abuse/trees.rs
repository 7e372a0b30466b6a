//! Hosts whose scripts see a directory that a test has planted.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use sandbox_engine::domain::isolation::MemoryEnforcement;
use script_sandbox::SandboxSettings;

use crate::support::{Host, reduced_settings};

/// Makes a directory that any user may enter, outside the directories that scripts have of their
/// own.
pub(super) fn planted() -> tempfile::TempDir {
    let tree = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
    tree
}

/// A host of each kind, whose Python sees a directory.
pub(super) async fn hosts_that_show(tree: &Path) -> Vec<Host> {
    let profiles = tempfile::tempdir().unwrap();
    let mounts = format!("mounts = [\"{}\"]\nproof =", tree.display());
    let profile =
        include_str!("../../../../engine/profiles/python3.toml").replacen("proof =", &mounts, 1);
    fs::write(profiles.path().join("python3.toml"), profile).unwrap();
    let sampled = SandboxSettings {
        use_cgroups: false,
        lowest_memory_enforcement: MemoryEnforcement::Sampled,
        ..SandboxSettings::default()
    };
    let mut hosts = Vec::new();
    for settings in [SandboxSettings::default(), sampled, reduced_settings()] {
        let settings = SandboxSettings {
            profiles_directory: profiles.path().to_owned(),
            ..settings
        };
        hosts.push(Host::with(settings).await);
    }
    hosts
}
