//! How values are delimited, and how often that may change.

/// How the values of a block are delimited from now on; set by what was met so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mode {
    /// A value was ended by guess: unknown elements end values from now on.
    pub(super) lenient: bool,
    /// Opening tags inside values are not counted any more.
    pub(super) unbalanced: bool,
    /// How often the scanner went back.
    pub(super) rewinds: u32,
}

/// How often a scanner may go back.
pub(super) const MOST_REWINDS: u32 = 8;
