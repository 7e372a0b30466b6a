//! The parts of the host that scripts see: programs and libraries, no data.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sandbox_protocol::plan::RootPlan;

use crate::domain::limits::Limits;

/// Directories with programs and libraries. A directory that is a link on this host is a link
/// inside.
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

/// The files that the dynamic linker and the alternatives system need.
const CONFIGURATION: [&str; 2] = ["/etc/ld.so.cache", "/etc/alternatives"];

/// The small files of every root, with one user and one home. Names are looked up as on any
/// machine, so that a script's attempt to reach a server is seen; no server answers.
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

/// The parts of this host that scripts see.
#[derive(Debug)]
pub struct HostSystem {
    directories: Vec<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
}

impl HostSystem {
    /// Examines the host.
    pub fn look() -> Self {
        let (mut directories, mut links) = (Vec::new(), Vec::new());
        for path in DIRECTORIES.iter().chain(&CONFIGURATION).map(Path::new) {
            match fs::symlink_metadata(path) {
                Ok(kind) if kind.is_symlink() => {
                    if let Ok(target) = fs::read_link(path) {
                        links.push((path.to_owned(), target));
                    }
                }
                Ok(_) => directories.push(path.to_owned()),
                Err(_) => {}
            }
        }
        Self { directories, links }
    }

    /// The readable paths: the system's parts and `mounts`, none below another.
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

    /// The plan of a script's own root with one more link.
    pub(super) fn root(
        &self,
        mounts: &[PathBuf],
        link: Option<(PathBuf, PathBuf)>,
        limits: &Limits,
    ) -> RootPlan {
        let binds = self.readable(mounts);
        let shown = |link: &Path| binds.iter().any(|above| link.starts_with(above));
        let links = self.links.iter().filter(|(link, _)| !shown(link));
        let file = |&(path, content): &(&str, &str)| (path.into(), content.to_owned());
        RootPlan {
            proc: false,
            moved: Vec::new(),
            links: links.cloned().chain(link).collect(),
            binds,
            files: FILES.iter().map(file).collect(),
            scratch_bytes: limits.disk as u64,
            scratch_files: u64::from(limits.disk_files),
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
