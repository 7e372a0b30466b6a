//! Contents that differ from their records, that grow, or that are no plugin.

use plugin_package::read_archive;

use super::{check, one, whole};
use crate::build::{Archive, Item, MANIFEST};

#[test]
fn r102_data_that_differs_from_its_record_is_refused() {
    let text = b"text text text text";
    let deflated = || Item::deflated("a", text);
    check(vec![
        one(
            "more than stated",
            deflated().both(|header| header.size -= 1),
            "size_exceeded",
            "a",
        ),
        one(
            "more than nothing",
            deflated().both(|header| header.size = 0),
            "size_exceeded",
            "a",
        ),
        one(
            "less than stated",
            deflated().both(|header| header.size += 1),
            "sizes_differ",
            "a",
        ),
        one(
            "another checksum",
            deflated().both(|header| header.crc ^= 1),
            "damaged",
            "a",
        ),
        one(
            "stored, another checksum",
            Item::stored("a", text).both(|header| header.crc ^= 1),
            "damaged",
            "a",
        ),
        one(
            "stored, two sizes",
            Item::stored("a", text).both(|header| header.size += 1),
            "sizes_differ",
            "a",
        ),
        one(
            "no deflate",
            Item::stored("a", b"\xff\xff").both(|header| header.method = 8),
            "damaged",
            "a",
        ),
        one(
            "data after the content",
            {
                let item = deflated().both(|header| header.packed += 4);
                item.with(|item| item.data.extend(b"evil"))
            },
            "stray_data",
            "a",
        ),
        one(
            "cut off",
            {
                let item = deflated().both(|header| header.packed -= 2);
                item.with(|item| item.data.truncate(item.central.packed as usize))
            },
            "sizes_differ",
            "a",
        ),
    ]);
}

#[test]
fn r102_bombs_are_refused_before_they_are_inflated() {
    let zeros = |count: usize| vec![0; count];
    // Noise that does not deflate, so that the ratio over all stays low.
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(2 << 20)
        .collect();
    let many: Vec<Item> = (0..100_000)
        .map(|index| Item::stored(format!("data/{index}"), b""))
        .collect();
    // One kernel of data that every entry claims.
    let kernel = Item::deflated("web/0", &zeros(1 << 20));
    let overlapping = (1..200).map(|index| {
        Item::stored(format!("web/{index}"), b"").central(|header| {
            let name = std::mem::take(&mut header.name);
            *header = kernel.central.clone();
            header.name = name;
        })
    });
    let overlapping: Vec<Item> = std::iter::once(kernel.clone()).chain(overlapping).collect();
    let at = 30 + 11 + MANIFEST.len() as u32;
    let overlapping = overlapping
        .into_iter()
        .map(|item| item.with(|item| item.header_at = Some(at)));
    let claims =
        |size: u32| Item::deflated("web/a", &zeros(3 << 20)).both(|header| header.size = size);
    check(vec![
        one("1 GiB of zeros", claims(1 << 30), "ratio", "web/a"),
        one(
            "1 GiB of zeros, beyond the size",
            claims(1 << 30),
            "too_large",
            "web/a",
        ),
        one("3 MiB of zeros", claims(3 << 20), "ratio", "web/a"),
        one("4 GiB", claims(u32::MAX), "too_large", "web/a"),
        whole(
            "over all",
            Archive::plugin([Item::deflated("web/a", &zeros(1 << 20))]),
            "ratio",
            "web/a",
        ),
        whole(
            "one entry of a low ratio over all",
            Archive::plugin([
                Item::stored("web/noise", &noise),
                Item::deflated("web/a", &zeros(2 << 20)),
            ]),
            "ratio",
            "web/a",
        ),
        whole(
            "overlapping entries",
            Archive::plugin(overlapping),
            "overlap",
            "web/0",
        ),
        whole(
            "100,000 entries",
            Archive::plugin(many.clone()),
            "too_many_entries",
            "",
        ),
        whole(
            "100,000 entries, one stated",
            Archive::plugin(many).with(|archive| archive.entries = Some(1)),
            "records_differ",
            "",
        ),
        whole(
            "scripts of more than 3 MiB",
            Archive::plugin([Item::stored("a", &noise), Item::stored("b", &noise)]),
            "too_large",
            "b",
        ),
        (
            "more than 20 MiB",
            zeros((20 << 20) + 1),
            "too_large",
            String::new(),
        ),
    ]);
}

#[test]
fn r102_more_files_than_a_plugin_has_are_refused() {
    let files = |directory: &str, count: usize| {
        let files = (0..count).map(|index| Item::stored(format!("{directory}/{index:03}"), b"x"));
        files.collect::<Vec<_>>()
    };
    check(vec![
        whole(
            "scripts",
            Archive::plugin(files("data", 256)),
            "too_large",
            "data/255",
        ),
        whole(
            "assets",
            Archive::plugin(files("web", 501)),
            "too_large",
            "web/500",
        ),
    ]);
    let most = [files("data", 255), files("web", 250), files("dist", 250)].concat();
    assert!(read_archive(&Archive::plugin(most).bytes()).is_ok());
}

#[test]
fn r102_a_manifest_that_is_missing_or_ambiguous_is_refused() {
    let of = |label: &'static str, names: &[&str], code: &'static str, place: &str| {
        let items = names.iter().map(|name| Item::stored(name, b""));
        whole(label, Archive::of(items), code, place)
    };
    check(vec![
        of("none", &["a"], "manifest_missing", "plugin.yaml"),
        of("no entries", &[], "manifest_missing", "plugin.yaml"),
        of(
            "too deep",
            &["a/b/plugin.yaml"],
            "manifest_missing",
            "plugin.yaml",
        ),
        of(
            "another ending",
            &["plugin.yml"],
            "manifest_missing",
            "plugin.yaml",
        ),
        of(
            "root and directory",
            &["plugin.yaml", "a/plugin.yaml"],
            "two_manifests",
            "a/plugin.yaml",
        ),
        of(
            "two directories",
            &["a/plugin.yaml", "b/plugin.yaml"],
            "two_manifests",
            "b/plugin.yaml",
        ),
        of(
            "second one inside",
            &["a/plugin.yaml", "a/b/plugin.yaml"],
            "two_manifests",
            "b/plugin.yaml",
        ),
        of(
            "file beside the directory",
            &["a/plugin.yaml", "evil"],
            "beside_plugin",
            "evil",
        ),
        of(
            "directory",
            &["plugin.yaml/"],
            "manifest_is_directory",
            "plugin.yaml",
        ),
        of(
            "directory with a file",
            &["plugin.yaml/a"],
            "manifest_is_directory",
            "plugin.yaml",
        ),
        of(
            "directory in a directory",
            &["a/plugin.yaml/"],
            "manifest_is_directory",
            "a/plugin.yaml",
        ),
        whole(
            "of 16 KiB and a byte",
            Archive::of([Item::stored("plugin.yaml", &[b'#'; (16 << 10) + 1])]),
            "too_large",
            "plugin.yaml",
        ),
    ]);
}
