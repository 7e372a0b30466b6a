//! Notices of the system about changes below the plugin directory, so that a quiet directory need not be read.

use std::{fs::File, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{
        fstatfs,
        inotify::{self, CreateFlags, Reader, WatchFlags},
    },
    io::Errno,
};

/// File systems of which the kernel sees every change: ext4, XFS, Btrfs, tmpfs, overlayfs (statfs(2)). Those of a
/// network change without a notice.
const LOCAL: [i64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630];

/// The changes of a directory that count.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// The notices about watched directories.
#[derive(Debug)]
pub(super) struct Notices {
    queue: OwnedFd,
    is_whole: bool,
}

impl Notices {
    /// Begins to collect notices about a directory itself; `None` if the system cannot see all its changes.
    pub(super) fn about(root: &Path) -> Option<Self> {
        let file_system = fstatfs(File::open(root).ok()?).ok()?.f_type;
        if !LOCAL.contains(&file_system) {
            return None;
        }
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let mut notices = Self {
            queue,
            is_whole: true,
        };
        notices.add(root);
        Some(notices)
    }

    /// Collects notices about a directory below it too. To be called before the directory is read.
    pub(super) fn add(&mut self, directory: &Path) {
        self.is_whole &= inotify::add_watch(&self.queue, directory, CHANGES).is_ok();
    }

    /// Whether nothing has changed. Takes the notices that there are.
    pub(super) fn are_quiet(&mut self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.queue, &mut buffer);
        self.is_whole && reader.next().is_err_and(|error| error == Errno::AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_kind_of_change_is_noticed_and_reading_is_none() {
        // Of a file system in memory the kernel has notices.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::write(path("a/file"), "1").unwrap();
        let watched = || {
            let mut notices = Notices::about(place.path()).unwrap();
            notices.add(&path("a"));
            notices
        };
        let mut quiet = watched();
        fs::read(path("a/file")).unwrap();
        fs::read_dir(path("a")).unwrap().for_each(drop);
        assert!(quiet.are_quiet());
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(path("a/file"), "2").unwrap(),
            &|| fs::write(path("a/new"), "").unwrap(),
            &|| fs::rename(path("a/new"), path("b")).unwrap(),
            &|| fs::remove_file(path("b")).unwrap(),
            &|| fs::hard_link(path("a/file"), path("a/link")).unwrap(),
            &|| fs::remove_dir_all(path("a")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut notices = watched();
            change();
            assert!(!notices.are_quiet(), "change {number}");
        }
        let mut missing = Notices::about(place.path()).unwrap();
        missing.add(&path("missing"));
        assert!(!missing.are_quiet());
    }
}
