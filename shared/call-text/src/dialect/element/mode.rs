//! The delimiting of values, and the limit of its changes.

/// The rules by which further values of a block are delimited; set by the values read so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mode {
    /// Whether a value was ended by guess: unknown elements end values from then on.
    pub(super) lenient: bool,
    /// Whether opening tags inside values are no longer counted.
    pub(super) unbalanced: bool,
    /// The times that the scanner went back.
    pub(super) rewinds: u32,
}

/// The most times that a scanner may go back.
pub(super) const MOST_REWINDS: u32 = 8;
