//! Watching the plugin directory for changes, by inotify, so that a quiet directory need not be read.

use std::{fs::File, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{
        fstatfs,
        inotify::{self, CreateFlags, Reader, WatchFlags},
    },
    io::Errno,
};

/// File systems whose every change the kernel reports: ext4, XFS, Btrfs, tmpfs, overlayfs (statfs(2)). Those of a
/// network change unreported.
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

/// A watch on directories.
#[derive(Debug)]
pub(super) struct Watcher {
    events: OwnedFd,
    /// Whether each directory could be added.
    is_whole: bool,
}

impl Watcher {
    /// Begins to watch a directory itself; `None` where the kernel does not report all changes.
    pub(super) fn of(root: &Path) -> Option<Self> {
        let file_system = fstatfs(File::open(root).ok()?).ok()?.f_type;
        if !LOCAL.contains(&file_system) {
            return None;
        }
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let mut watcher = Self {
            events,
            is_whole: true,
        };
        watcher.add(root);
        Some(watcher)
    }

    /// Watches a directory below it too. To be called before the directory is read.
    pub(super) fn add(&mut self, directory: &Path) {
        self.is_whole &= inotify::add_watch(&self.events, directory, CHANGES).is_ok();
    }

    /// Whether nothing has changed since. Consumes the events that there are.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.events, &mut buffer);
        self.is_whole && reader.next().is_err_and(|error| error == Errno::AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_kind_of_change_is_reported_and_reading_is_none() {
        // Every change of a tmpfs is reported.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::write(path("a/file"), "1").unwrap();
        let watched = || {
            let mut watcher = Watcher::of(place.path()).unwrap();
            watcher.add(&path("a"));
            watcher
        };
        let mut quiet = watched();
        fs::read(path("a/file")).unwrap();
        fs::read_dir(path("a")).unwrap().for_each(drop);
        assert!(quiet.is_quiet());
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(path("a/file"), "2").unwrap(),
            &|| fs::write(path("a/new"), "").unwrap(),
            &|| fs::rename(path("a/new"), path("b")).unwrap(),
            &|| fs::remove_file(path("b")).unwrap(),
            &|| fs::hard_link(path("a/file"), path("a/link")).unwrap(),
            &|| fs::remove_dir_all(path("a")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut watcher = watched();
            change();
            assert!(!watcher.is_quiet(), "change {number}");
        }
        let mut missing = Watcher::of(place.path()).unwrap();
        missing.add(&path("missing"));
        assert!(!missing.is_quiet());
    }
}
