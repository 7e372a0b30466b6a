//! The delimiting of values, and the limit of its changes.

/// The rules by which further values of a block are delimited; set by the values read so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mode {
    /// A value was ended by guess: unknown elements end values from now on.
    pub(super) lenient: bool,
    /// Opening tags inside values are not counted any more.
    pub(super) unbalanced: bool,
    /// The times that the scanner went back.
    pub(super) rewinds: u32,
}

/// The most times that a scanner may go back.
pub(super) const MOST_REWINDS: u32 = 8;
