//! The memory that hostile archives take.

use std::fs;

use plugin_package::read_archive;

use crate::build::{Archive, Item};

/// The most bytes beyond the archive itself.
const MOST_KIB: u64 = 32 << 10;

/// Returns the most memory that the process had since [`forget_peak`], in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

#[test]
fn r102_no_archive_takes_32_mib_beyond_its_own_bytes() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut noise = |bytes: usize| -> Vec<u8> {
        std::iter::repeat_with(|| random.u8(..))
            .take(bytes)
            .collect()
    };
    let zeros = |bytes: usize| vec![0; bytes];
    let many = (0..100_000).map(|index| Item::stored(format!("data/{index}"), b""));
    let long = (0..2_000).map(|index| Item::stored(format!("data\\{index:0>9000}"), b""));
    let cases = [
        // The largest that is accepted up to its last checksum.
        Archive::plugin([
            Item::stored("a", &noise((3 << 20) - 2_000)),
            Item::deflated("web/a", &noise((16 << 20) - 10)),
            Item::stored("b", b"x").both(|header| header.crc ^= 1),
        ]),
        Archive::plugin([
            Item::stored("web/a", &noise(1 << 20)),
            Item::deflated("web/b", &zeros(15 << 20)).both(|header| header.size += 1),
        ]),
        Archive::plugin([
            Item::deflated("web/a", &zeros(64 << 20)).both(|header| header.size = 1 << 20)
        ]),
        Archive::plugin(many),
        Archive::plugin(long),
    ];
    for (number, archive) in cases.into_iter().enumerate() {
        let bytes = archive.bytes();
        drop(archive);
        let before = {
            forget_peak();
            peak()
        };
        assert!(read_archive(&bytes).is_err(), "{number}");
        let taken = peak().saturating_sub(before);
        assert!(taken < MOST_KIB, "{number}: {taken} KiB");
    }
}
