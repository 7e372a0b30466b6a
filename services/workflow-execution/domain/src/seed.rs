//! The seeds of a run's random numbers.

/// Returns the seed of a run or of a node in it: 0 and the id of the run, or the seed of the run and
/// the id of the node.
///
/// It is the hash FNV-1a, written down here because it must never change.
pub fn seed(start: u64, id: &str) -> u64 {
    let begin = start ^ 0xcbf2_9ce4_8422_2325;
    id.bytes().fold(begin, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
