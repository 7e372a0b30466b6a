//! The parts of the host that scripts are shown: programs and libraries, nothing with data.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sandbox_launcher::plan::{
    Bind, Confinement, INPUT_DIRECTORY, Link, RootFile, RootPlan, WORK_DIRECTORY,
};

use super::{Place, PlaceSpec};

/// Directories with programs and libraries. Those that are links on this host are linked inside.
const DIRECTORIES: [&str; 10] = [
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/usr/local/lib",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
];

/// What the dynamic linker and the alternatives system need.
const CONFIGURATION: [&str; 2] = ["/etc/ld.so.cache", "/etc/alternatives"];

/// The small files of every root. There is one user with one home. Names are looked up as on any
/// machine, so that a script that wants to reach one is seen to try; no server answers.
const FILES: [(&str, &str); 4] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/:/usr/sbin/nologin\nscript:x:1000:1000:script:/work:/bin/sh\n",
    ),
    ("/etc/group", "root:x:0:\nscript:x:1000:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
];

/// What of this host is shown to scripts.
#[derive(Debug)]
pub struct HostSystem {
    directories: Vec<PathBuf>,
    links: Vec<Link>,
}

impl HostSystem {
    /// Looks at the host.
    pub fn look() -> Self {
        let (mut directories, mut links) = (Vec::new(), Vec::new());
        for path in DIRECTORIES.iter().chain(&CONFIGURATION).map(Path::new) {
            match fs::symlink_metadata(path) {
                Ok(kind) if kind.is_symlink() => {
                    if let Ok(target) = fs::read_link(path) {
                        links.push(Link {
                            path: path.to_owned(),
                            target,
                        });
                    }
                }
                Ok(_) => directories.push(path.to_owned()),
                Err(_) => {}
            }
        }
        Self { directories, links }
    }

    /// Everything that may be read: the system's parts and `mounts`, none below another.
    pub fn readable(&self, mounts: &[PathBuf]) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.directories.iter().chain(mounts).cloned().collect();
        all.sort();
        let mut kept: Vec<PathBuf> = Vec::new();
        for path in all {
            if !kept.iter().any(|above| path.starts_with(above)) {
                kept.push(path);
            }
        }
        kept
    }

    /// A place with a root of its own.
    pub(super) fn place_with_own_root(&self, wanted: &PlaceSpec<'_>, proc: bool) -> Place {
        let readable = self.readable(wanted.mounts);
        let shown = |path: &Path| readable.iter().any(|above| path.starts_with(above));
        let plan = RootPlan {
            proc,
            links: self
                .links
                .iter()
                .filter(|link| !shown(&link.path))
                .cloned()
                .collect(),
            binds: readable
                .iter()
                .map(|path| Bind {
                    source: path.clone(),
                    target: path.clone(),
                })
                .collect(),
            files: FILES
                .iter()
                .map(|&(path, content)| RootFile {
                    path: path.into(),
                    content: content.to_owned(),
                })
                .collect(),
            scratch_bytes: wanted.limits.disk as u64,
            scratch_files: u64::from(wanted.limits.disk_files),
        };
        Place {
            confinement: Confinement::Namespaces(plan),
            work: WORK_DIRECTORY.into(),
            input: INPUT_DIRECTORY.into(),
            temporary: "/tmp".into(),
            scratch: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_below_another_is_not_bound_twice() {
        let host = HostSystem {
            directories: vec!["/usr/lib".into(), "/usr/bin".into()],
            links: vec![],
        };
        let readable = host.readable(&[
            "/usr/lib/python3".into(),
            "/opt/x".into(),
            "/opt/x/y".into(),
        ]);
        assert_eq!(
            readable,
            ["/opt/x", "/usr/bin", "/usr/lib"].map(PathBuf::from)
        );
        let readable = host.readable(&["/usr".into()]);
        assert_eq!(readable, [PathBuf::from("/usr")]);
    }
}
