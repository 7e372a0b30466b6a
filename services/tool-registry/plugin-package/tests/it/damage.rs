//! Damaged archives: refused, or read as they were.

use plugin_package::{PluginFiles, read_archive, write_archive};
use tool_domain::package::PackageFile;

use crate::build::{Archive, Item, zip64};

/// Archives that use everything that is accepted.
fn archives() -> Vec<Vec<u8>> {
    let file = |path: &str, content: &[u8]| PackageFile {
        path: path.to_owned(),
        content: content.to_vec(),
    };
    let files = vec![
        file("plugin.yaml", b"name: demo\n"),
        file("a/b.py", &b"print('text')\n".repeat(20)),
        file("web/app.js", b"x"),
    ];
    let content = b"text text text";
    let deflated = Item::deflated("é/b", content);
    let sizes = [deflated.central.packed, deflated.central.size];
    let descriptor = [
        b"PK\x07\x08".as_slice(),
        &deflated.central.crc.to_le_bytes(),
        &sizes[0].to_le_bytes(),
        &sizes[1].to_le_bytes(),
    ];
    let long = zip64(&[content.len() as u64, content.len() as u64]);
    let all = Archive::plugin([
        Item::stored("a/", b"").mode(0o040_755),
        deflated
            .with_descriptor(&descriptor.concat())
            .mode(0o100_644),
        Item::stored("c", content).both(|header| {
            header.extra.clone_from(&long);
            (header.packed, header.size) = (u32::MAX, u32::MAX);
        }),
    ]);
    vec![
        write_archive(&PluginFiles::new(files).unwrap()),
        all.bytes(),
        all.with_end_64(None, None),
    ]
}

#[test]
fn an_archive_that_is_cut_at_any_byte_is_refused() {
    for archive in archives() {
        assert!(read_archive(&archive).is_ok());
        for length in 0..archive.len() {
            assert!(read_archive(&archive[..length]).is_err(), "{length}");
        }
    }
}

#[test]
fn an_archive_with_any_flipped_bit_is_refused_or_equal() {
    for archive in archives() {
        let whole = read_archive(&archive).unwrap();
        for bit in 0..archive.len() * 8 {
            let mut flipped = archive.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match read_archive(&flipped) {
                Ok(files) => assert_eq!(files, whole, "bit {bit}"),
                Err(wrong) => assert!(!wrong.is_empty(), "bit {bit}"),
            }
        }
    }
}

#[test]
fn an_archive_with_random_damage_is_refused_or_equal() {
    let mut random = fastrand::Rng::with_seed(11);
    let archives = archives();
    let whole: Vec<PluginFiles> = archives
        .iter()
        .map(|each| read_archive(each).unwrap())
        .collect();
    for _ in 0..20_000 {
        let chosen = random.usize(..archives.len());
        let mut damaged = archives[chosen].clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..damaged.len());
            match random.u8(..4) {
                0 => damaged[at] = random.u8(..),
                1 => {
                    damaged[at] = *random
                        .choice([0, 1, 0x7f, 0x80, 0xfe, 0xff].iter())
                        .unwrap()
                }
                2 => {
                    let end = random.usize(at..damaged.len().min(at + 64));
                    let moved = damaged[at..end].to_vec();
                    let to = random.usize(..damaged.len());
                    damaged.splice(to..to, moved);
                }
                _ => drop(damaged.drain(at..damaged.len().min(at + random.usize(1..32)))),
            }
            if damaged.is_empty() {
                break;
            }
        }
        match read_archive(&damaged) {
            Ok(files) => assert_eq!(files, whole[chosen]),
            Err(wrong) => assert!(!wrong.is_empty()),
        }
    }
}
