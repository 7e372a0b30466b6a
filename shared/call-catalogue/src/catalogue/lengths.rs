//! A first look at a name: most words of code name no tool, and their length shows it.

/// The lengths of names by the letter that they begin with.
#[derive(Debug, Default)]
pub(super) struct Lengths([u64; 32]);

impl Lengths {
    pub(super) fn add(&mut self, name: &str) {
        let (letter, length) = place(name);
        self.0[letter] |= length;
    }

    /// Whether a name may be among the added names, in any letter case.
    pub(super) fn may_hold(&self, name: &str) -> bool {
        let (letter, length) = place(name);
        self.0[letter] & length != 0
    }
}

/// The row of a name and its bit in there. Letters differ from their other case in no bit that
/// chooses the row.
fn place(name: &str) -> (usize, u64) {
    let letter = name.bytes().next().unwrap_or_default() % 32;
    (usize::from(letter), 1 << name.len().min(63))
}
