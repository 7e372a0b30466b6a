use std::{
    fs::{self, File, Permissions},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    time::Duration,
};

use blob_store::BlobSettings;

use super::*;
use crate::domain::collect::{Caps, pattern::Pattern};

fn inline_bytes(collected: &Collected) -> usize {
    let contents = collected
        .files
        .iter()
        .filter_map(|file| file.content.as_ref());
    contents.map(Vec::len).sum()
}

struct ScriptRoot {
    work: tempfile::TempDir,
    collection: Collection,
}

impl ScriptRoot {
    fn new() -> Self {
        let wanted = CollectSpec {
            patterns: Vec::new(),
            caps: Caps::DEFAULT,
            as_blobs: false,
        };
        Self {
            work: tempfile::tempdir().unwrap(),
            collection: Collection {
                wanted,
                placed: Placed::new(),
                blobs: BlobStore::open(&BlobSettings::default()).unwrap(),
                caller: Caller::named(core_types::Tenant::DEFAULT, "alice"),
            },
        }
    }

    fn path(&self) -> &Path {
        self.work.path()
    }

    fn put(&self, path: &str, content: &[u8]) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn patterns(&mut self, patterns: &[&str]) {
        let read = |text: &&str| Pattern::read(text).unwrap();
        self.collection.wanted.patterns = patterns.iter().map(read).collect();
    }

    fn collect(&self) -> Collected {
        let work = File::open(self.path()).unwrap();
        self.collection.collect(work.as_fd())
    }

    /// Collects; returns the paths of the collected files.
    fn taken(&self) -> Vec<String> {
        paths(&self.collect())
    }
}

fn paths(collected: &Collected) -> Vec<String> {
    let text = |file: &OutputFile| file.path.text.clone();
    collected.files.iter().map(text).collect()
}

fn refusals(collected: &Collected) -> Vec<(&str, RefusedReason)> {
    let refused = collected.refused.iter();
    refused
        .map(|file| (file.path.text.as_str(), file.reason))
        .collect()
}

#[test]
fn files_are_reported_with_size_digest_and_whether_they_can_be_executed() {
    let place = ScriptRoot::new();
    place.put("b/tool", b"#!/bin/sh\n");
    place.put("a.txt", b"text");
    let tool = place.path().join("b/tool");
    fs::set_permissions(tool, Permissions::from_mode(0o6755)).unwrap();
    let collected = place.collect();
    assert_eq!(paths(&collected), ["a.txt", "b/tool"]);
    let [text, tool] = &collected.files[..] else {
        panic!("{collected:?}")
    };
    assert_eq!((text.size, text.digest), (4, BlobDigest::of(b"text")));
    assert_eq!(text.content.as_deref(), Some(&b"text"[..]));
    assert!(!text.executable && tool.executable);
    assert!(!collected.partial && collected.refused.is_empty());
}

#[test]
fn what_was_placed_and_is_still_so_is_not_new() {
    let mut place = ScriptRoot::new();
    for name in ["same", "other", "switched"] {
        place.put(name, b"placed");
        let placed = PlacedFile {
            size: 6,
            digest: BlobDigest::of(b"placed"),
            executable: name == "switched",
        };
        place.collection.placed.insert(name.into(), placed);
    }
    place.put("other", b"PLACED");
    place.put("new", b"placed");
    assert_eq!(place.taken(), ["new", "other", "switched"]);
    place.patterns(&["same"]);
    assert_eq!(place.taken(), ["same"]);
}

#[test]
fn patterns_choose_and_say_nothing_of_the_rest() {
    let mut place = ScriptRoot::new();
    for path in ["out/a.csv", "out/b.txt", "log.txt", "deep/er/x.csv"] {
        place.put(path, b"x");
    }
    symlink("/etc/passwd", place.path().join("out/l.txt")).unwrap();
    place.patterns(&["out/*.csv", "log.txt"]);
    let collected = place.collect();
    assert_eq!(paths(&collected), ["log.txt", "out/a.csv"]);
    assert!(!collected.partial);
    place.patterns(&["out/*"]);
    let collected = place.collect();
    let expected = [("out/l.txt", RefusedReason::SymbolicLink)];
    assert_eq!(refusals(&collected), expected);
}

#[test]
fn declared_files_come_first_and_each_that_is_not_taken_is_named() {
    let mut place = ScriptRoot::new();
    for number in 0..MAX_ENTRIES + 50 {
        place.put(&format!("aaa/{number}"), b"x");
    }
    for path in ["result.json", "out/deep.csv", "directory/x"] {
        place.put(path, b"{}");
    }
    symlink("out", place.path().join("link")).unwrap();
    symlink("result.json", place.path().join("alias")).unwrap();
    let missing = [
        ("absent", RefusedReason::NotFound),
        ("aaa/absent", RefusedReason::NotFound),
        ("directory", RefusedReason::NotFound),
        ("result.json/x", RefusedReason::NotFound),
        ("link/deep.csv", RefusedReason::SymbolicLink),
        ("alias", RefusedReason::SymbolicLink),
    ];
    let declared = ["out/deep.csv", "result.json"];
    let mut patterns: Vec<&str> = vec!["aaa/**", "*.json", "result.json"];
    patterns.extend(missing.map(|(path, _)| path));
    patterns.extend(declared);
    place.patterns(&patterns);
    let collected = place.collect();
    for path in declared {
        let times = paths(&collected).iter().filter(|it| *it == path).count();
        assert_eq!(times, 1, "{path}");
    }
    assert_eq!(refusals(&collected)[..missing.len()], missing);
    assert!(collected.partial);
    // When only named files are wanted, no other entry is examined.
    place.patterns(&declared);
    let collected = place.collect();
    assert_eq!(paths(&collected), declared);
    assert!(!collected.partial);
}

#[test]
fn e29_e32_e33_only_regular_files_are_taken() {
    let place = ScriptRoot::new();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "canary").unwrap();
    symlink(&secret, place.path().join("absolute")).unwrap();
    symlink(
        "../../../../../../etc/passwd",
        place.path().join("relative"),
    )
    .unwrap();
    symlink(outside.path(), place.path().join("up")).unwrap();
    symlink("loop", place.path().join("loop")).unwrap();
    place.put("twin", b"x");
    fs::hard_link(place.path().join("twin"), place.path().join("twin2")).unwrap();
    let cwd = File::open(place.path()).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(&cwd, "pipe", FileType::Fifo, mode, 0).unwrap();
    let _listener = UnixListener::bind(place.path().join("socket")).unwrap();
    let device = rustix::fs::makedev(1, 5);
    let made = rustix::fs::mknodat(&cwd, "zero", FileType::CharacterDevice, mode, device);
    let collected = place.collect();
    assert_eq!(paths(&collected), [""; 0]);
    let mut expected = vec![
        ("absolute", RefusedReason::SymbolicLink),
        ("loop", RefusedReason::SymbolicLink),
        ("pipe", RefusedReason::Fifo),
        ("relative", RefusedReason::SymbolicLink),
        ("socket", RefusedReason::Socket),
        ("twin", RefusedReason::HardLink),
        ("twin2", RefusedReason::HardLink),
        ("up", RefusedReason::SymbolicLink),
    ];
    if made.is_ok() {
        expected.push(("zero", RefusedReason::Device));
    }
    assert_eq!(refusals(&collected), expected);
    assert!(collected.partial);
}

#[test]
fn e12_a_huge_hole_is_refused_by_its_apparent_size_and_never_read() {
    let mut place = ScriptRoot::new();
    let hole = File::create(place.path().join("hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    place.put("real", b"x");
    let collected = place.collect();
    assert_eq!(paths(&collected), ["real"]);
    assert_eq!(refusals(&collected), [("hole", RefusedReason::TooLarge)]);
    assert_eq!(collected.refused[0].size, 1 << 40);
    // Two of them that fit one by one do not fit together.
    place.collection.wanted.caps.file_bytes = 1000;
    place.collection.wanted.caps.total_bytes = 1500;
    for name in ["hole", "hole2"] {
        let hole = File::create(place.path().join(name)).unwrap();
        hole.set_len(1000).unwrap();
    }
    let collected = place.collect();
    assert_eq!(paths(&collected), ["hole", "real"]);
    assert_eq!(
        refusals(&collected),
        [("hole2", RefusedReason::TotalTooLarge)]
    );
}

#[test]
fn large_files_become_blobs_and_so_does_what_is_too_much_for_an_answer() {
    let place = ScriptRoot::new();
    place.put("large", &vec![7; (64 << 10) + 1]);
    for number in 10..20 {
        place.put(&format!("part{number}"), &vec![number; 64 << 10]);
    }
    let collected = place.collect();
    assert_eq!(collected.files.len(), 11);
    assert_eq!(inline_bytes(&collected), 512 << 10);
    for file in collected.files.iter().filter(|file| file.content.is_none()) {
        let Collection { blobs, caller, .. } = &place.collection;
        assert_eq!(blobs.hold(caller, file.digest).unwrap().size(), file.size);
    }
}

#[test]
fn small_files_become_blobs_where_that_is_wanted() {
    let mut place = ScriptRoot::new();
    place.collection.wanted.as_blobs = true;
    place.put("small", b"text");
    place.put("empty", b"");
    let collected = place.collect();
    assert_eq!((collected.files.len(), inline_bytes(&collected)), (2, 0));
    for file in &collected.files {
        let Collection { blobs, caller, .. } = &place.collection;
        assert_eq!(blobs.stat(caller, file.digest).unwrap().size, file.size);
    }
}

#[test]
fn e35_many_files_are_capped_counted_and_reported_in_part() {
    let mut place = ScriptRoot::new();
    for number in 0..10_000 {
        let path = place.path().join(format!("d{}", number / 1000));
        fs::create_dir_all(&path).unwrap();
        File::create(path.join(format!("{number:05}"))).unwrap();
    }
    let collected = place.collect();
    assert_eq!((collected.files.len(), collected.refused.len()), (256, 100));
    assert_eq!(collected.refused_count, 10_000 - 256);
    assert!(collected.partial);
    place.patterns(&["d7/070?0"]);
    let collected = place.collect();
    assert_eq!((collected.files.len(), collected.partial), (10, false));
}

#[test]
fn e35_names_cannot_fill_the_answer() {
    let mut place = ScriptRoot::new();
    place.collection.wanted.caps.files = 1024;
    for number in 0..1000 {
        place.put(&format!("{number:04}{}", "\u{1}".repeat(240)), b"");
    }
    let collected = place.collect();
    let listing: usize = collected
        .files
        .iter()
        .map(|file| file.path.text.len())
        .sum();
    assert!(listing <= 128 << 10, "{listing}");
    assert!(!collected.files.is_empty() && collected.partial);
}

#[test]
fn e39_deep_and_locked_trees_end_the_walk_and_not_the_walker() {
    let place = ScriptRoot::new();
    let mut directory = OwnedFd::from(File::open(place.path()).unwrap());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW;
    for _ in 0..4000 {
        rustix::fs::mkdirat(&directory, "d", Mode::from_raw_mode(0o700)).unwrap();
        directory = rustix::fs::openat(&directory, "d", flags, Mode::empty()).unwrap();
    }
    fs::create_dir(place.path().join("locked")).unwrap();
    place.put("locked/file", b"x");
    place.put("secret", b"x");
    for name in ["locked", "secret"] {
        let path = place.path().join(name);
        fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
    }
    let collected = place.collect();
    let deep = "d/".repeat(17);
    let expected = [
        (deep.trim_end_matches('/'), RefusedReason::TooDeep),
        ("locked", RefusedReason::Unreadable),
        ("secret", RefusedReason::Unreadable),
    ];
    assert_eq!(refusals(&collected), expected);
    let locked = place.path().join("locked");
    fs::set_permissions(locked, Permissions::from_mode(0o700)).unwrap();
    // The standard library's removal does not reach so deep.
    let status = std::process::Command::new("rm")
        .arg("-rf")
        .arg(place.path().join("d"))
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn e34_odd_names_come_escaped_and_too_long_paths_not_at_all() {
    use std::os::unix::ffi::OsStrExt;
    let place = ScriptRoot::new();
    for name in [&b"\xff"[..], b"a\nb", b"-rf", b"Twin", b"twin"] {
        let path = place.path().join(std::ffi::OsStr::from_bytes(name));
        fs::write(path, "x").unwrap();
    }
    let long = ["x".repeat(250), "y".repeat(250)].join("/");
    place.put(&format!("{long}/{long}/{}", "z".repeat(250)), b"x");
    let collected = place.collect();
    let expected = ["-rf", "Twin", "\\xff", "a\\x0ab", "twin"];
    assert_eq!(paths(&collected), expected);
    assert_eq!(collected.refused_count, 1);
    assert_eq!(collected.refused[0].reason, RefusedReason::Name);
}

#[test]
fn the_time_bounds_a_collection() {
    let mut place = ScriptRoot::new();
    place.put("a", b"x");
    place.collection.wanted.caps.time = Duration::ZERO;
    let collected = place.collect();
    assert!(collected.files.is_empty() && collected.partial);
    assert!(
        refusals(&collected)
            .iter()
            .all(|(_, reason)| *reason == RefusedReason::Time)
    );
}

#[test]
fn a_full_store_refuses_large_files_and_takes_small_ones() {
    let mut place = ScriptRoot::new();
    let settings = BlobSettings {
        total: 64 << 10,
        per_caller: 64 << 10,
        largest: 64 << 10,
        ..BlobSettings::default()
    };
    place.collection.blobs = BlobStore::open(&settings).unwrap();
    place.put("large", &vec![1; 100 << 10]);
    place.put("small", b"x");
    let collected = place.collect();
    assert_eq!(paths(&collected), ["small"]);
    assert_eq!(refusals(&collected), [("large", RefusedReason::NoRoom)]);
}
