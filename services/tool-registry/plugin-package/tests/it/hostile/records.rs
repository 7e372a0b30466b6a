//! Records that disagree, and data that no record covers.

use plugin_package::read_archive;

use super::{check, one, whole};
use crate::build::{Archive, Header, Item, end_record, extra, zip64};

#[test]
fn r102_encryption_and_unknown_methods_are_refused() {
    let flag = |label: &'static str, flag: u16, code: &'static str| {
        one(
            label,
            Item::stored("a", b"x").both(|header| header.flags |= flag),
            code,
            "a",
        )
    };
    let method = |label: &'static str, method: u16| {
        let item = Item::stored("a", b"x").both(|header| header.method = method);
        one(label, item, "unknown_compression", "a")
    };
    check(vec![
        flag("encrypted", 1, "encrypted"),
        flag("strongly encrypted", 1 << 6, "encrypted"),
        flag("masked headers", 1 << 13, "encrypted"),
        flag("patch data", 1 << 5, "unknown_compression"),
        flag("unknown flag", 1 << 9, "unknown_compression"),
        method("imploded", 6),
        method("deflate64", 9),
        method("bzip2", 12),
        method("LZMA", 14),
        method("zstd", 93),
        method("AES", 99),
        method("no method", 0xffff),
        one(
            "AES extra field",
            {
                let field = extra(0x9901, &[2, 0, b'A', b'E', 3, 8, 0]);
                Item::stored("a", b"x").both(|header| header.extra = field.clone())
            },
            "encrypted",
            "a",
        ),
    ]);
}

#[test]
fn r102_local_headers_that_differ_from_the_directory_are_refused() {
    let differs = |label: &'static str, change: fn(&mut Header)| {
        one(
            label,
            Item::deflated("a", b"text text text").local(change),
            "records_differ",
            "a",
        )
    };
    check(vec![
        differs("name", |header| header.name = b"b".to_vec()),
        differs("name in another case", |header| header.name = b"A".to_vec()),
        differs("size", |header| header.size += 1),
        differs("packed size", |header| header.packed += 1),
        differs("method", |header| header.method = 0),
        differs("checksum", |header| header.crc ^= 1),
        differs("flags", |header| header.flags |= 1 << 11),
        differs("zero sizes without descriptor", |header| header.size = 0),
        differs("sizes of 64 bits", |header| {
            header.size = u32::MAX;
            header.extra = zip64(&[15, 15]);
        }),
        differs("second name", |header| {
            header.extra = extra(0x7075, b"\x01\0\0\0\0evil");
        }),
        one(
            "second name in the directory",
            {
                let field = extra(0x7075, b"\x01\0\0\0\0../evil");
                Item::stored("a", b"x").both(|header| header.extra = field.clone())
            },
            "records_differ",
            "a",
        ),
        one(
            "two second names",
            {
                let field = extra(0x7075, b"\x01\0\0\0\0a").repeat(2);
                Item::stored("a", b"x").both(|header| header.extra = field.clone())
            },
            "records_differ",
            "a",
        ),
        one(
            "cut extra field",
            Item::stored("a", b"x").central(|header| header.extra = vec![1, 0, 9, 0, 1]),
            "malformed_record",
            "a",
        ),
        one(
            "other sizes after the data",
            Item::stored("a", b"x").with_descriptor(&[0; 16]),
            "records_differ",
            "a",
        ),
        one(
            "no sizes after the data",
            Item::stored("a", b"x").with_descriptor(b""),
            "records_differ",
            "a",
        ),
    ]);
}

#[test]
fn r102_sizes_of_64_bits_that_disagree_are_refused() {
    let field =
        |label: &'static str, code: &'static str, values: &[u64], change: fn(&mut Header)| {
            let extra = zip64(values);
            let item = Item::stored("a", b"xyz").central(|header| {
                header.extra = extra.clone();
                change(header);
            });
            one(label, item, code, "a")
        };
    let plugin = || Archive::plugin([Item::stored("a", b"x")]);
    check(vec![
        field(
            "another size beside the true one",
            "sizes_differ",
            &[4],
            |_| {},
        ),
        field("another size", "sizes_differ", &[4], |header| {
            header.size = u32::MAX
        }),
        field(
            "a size without end",
            "sizes_differ",
            &[u64::MAX],
            |header| header.size = u32::MAX,
        ),
        field("two sizes for one", "sizes_differ", &[3, 3], |header| {
            header.size = u32::MAX
        }),
        field("no size", "sizes_differ", &[], |header| {
            header.size = u32::MAX
        }),
        field("both sizes", "records_differ", &[4, 4], |header| {
            (header.size, header.packed) = (u32::MAX, u32::MAX);
        }),
        (
            "entries",
            plugin().with_end_64(Some(3), None),
            "records_differ",
            String::new(),
        ),
        (
            "many entries",
            plugin().with_end_64(Some(u64::MAX), None),
            "records_differ",
            String::new(),
        ),
        (
            "start",
            plugin().with_end_64(None, Some(0)),
            "records_differ",
            String::new(),
        ),
        (
            "start without end",
            plugin().with_end_64(None, Some(u64::MAX)),
            "records_differ",
            String::new(),
        ),
    ]);
    let whole = plugin().with_end_64(None, None);
    assert!(read_archive(&whole).is_ok());
    let mut located = whole.clone();
    let locator = located.len() - 22 - 20;
    located[locator + 8] ^= 1;
    check(vec![("locator", located, "records_differ", String::new())]);
}

/// Makes an archive with two entries.
fn two() -> Archive {
    Archive::plugin([Item::stored("a", b"0123456789"), Item::stored("b", b"x")])
}

#[test]
fn r102_data_that_no_record_covers_is_refused() {
    check(vec![
        whole(
            "before the first",
            two().with(|archive| archive.before = b"#!/bin/sh\n".to_vec()),
            "stray_data",
            "plugin.yaml",
        ),
        (
            "before the first, offsets as without",
            [b"MZ", &two().bytes()[..]].concat(),
            "records_differ",
            String::new(),
        ),
        whole(
            "between entries",
            Archive::plugin([
                Item::stored("a", b"x").with(|item| item.after = b"hidden".to_vec()),
                Item::stored("b", b"x"),
            ]),
            "stray_data",
            "a",
        ),
        whole(
            "before the directory",
            two().with(|archive| archive.between = b"hidden".to_vec()),
            "stray_data",
            "b",
        ),
        whole(
            "before the end record",
            two().with(|archive| archive.before_end = b"hidden".to_vec()),
            "records_differ",
            "",
        ),
        whole(
            "after the last",
            two().with(|archive| archive.after = b"hidden".to_vec()),
            "not_an_archive",
            "",
        ),
    ]);
}

#[test]
fn r102_data_that_two_records_cover_is_refused() {
    check(vec![
        whole(
            "overlap",
            Archive::plugin([
                Item::stored("a", b"x").both(|header| (header.size, header.packed) = (40, 40)),
                Item::stored("b", b"x"),
            ]),
            "overlap",
            "a",
        ),
        whole(
            "entry in the place of another",
            Archive::plugin([
                Item::stored("a", b"x"),
                Item::stored("b", b"x").with(|item| item.header_at = Some(0)),
            ]),
            "overlap",
            "plugin.yaml",
        ),
        whole(
            "entry beyond the directory",
            Archive::plugin([Item::stored("a", b"x").with(|item| item.header_at = Some(1 << 30))]),
            "malformed_record",
            "a",
        ),
        whole(
            "entry in the midst of data",
            Archive::plugin([
                Item::stored("a", &Archive::of([Item::stored("b", b"x")]).bytes()),
                Item::stored("b", b"x").with(|item| item.header_at = Some(52 + 31)),
            ]),
            "overlap",
            "a",
        ),
    ]);
}

#[test]
fn r102_two_end_records_are_refused() {
    let other = Archive::plugin([]).bytes();
    let end = end_record(0, 0, 0, 0, b"");
    // A comment that ends with an end record of its own, which ends the archive too.
    let in_comment = two().with(|archive| archive.comment.clone_from(&end));
    // An earlier end record whose comment covers the true one.
    let covering = {
        let mut archive = two();
        let rest = end_record(0, 0, 0, 0, b"");
        archive.before_end = end_record(0, 0, 0, 0, &rest);
        archive.before_end.truncate(22);
        archive
    };
    check(vec![
        whole(
            "end record in the comment",
            in_comment,
            "two_end_records",
            "",
        ),
        whole(
            "end record that covers the other",
            covering,
            "two_end_records",
            "",
        ),
        (
            "two archives",
            [other, two().bytes()].concat(),
            "records_differ",
            String::new(),
        ),
        (
            "an end record after the archive",
            [two().bytes(), end].concat(),
            "records_differ",
            String::new(),
        ),
    ]);
}

#[test]
fn r102_an_end_record_that_does_not_fit_is_refused() {
    check(vec![
        (
            "no archive",
            b"name: demo\n".to_vec(),
            "not_an_archive",
            String::new(),
        ),
        ("nothing", Vec::new(), "not_an_archive", String::new()),
        (
            "gzip",
            b"\x1f\x8b\x08\0\0\0\0\0".to_vec(),
            "not_an_archive",
            String::new(),
        ),
        whole(
            "one of several disks",
            two().with(|archive| archive.disk = 1),
            "malformed_record",
            "",
        ),
        one(
            "entry of another disk",
            Item::stored("a", b"").with(|item| item.disk = 1),
            "malformed_record",
            "a",
        ),
        whole(
            "directory elsewhere",
            two().with(|archive| archive.start = Some(0)),
            "records_differ",
            "",
        ),
        whole(
            "directory without end",
            two().with(|archive| archive.size = Some(u32::MAX)),
            "records_differ",
            "",
        ),
        whole(
            "more entries",
            two().with(|archive| archive.entries = Some(2)),
            "records_differ",
            "",
        ),
        whole(
            "fewer entries",
            two().with(|archive| archive.entries = Some(4)),
            "records_differ",
            "",
        ),
    ]);
}
