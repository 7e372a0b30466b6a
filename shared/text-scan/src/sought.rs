//! The search of a text that grows.

use crate::Feed;

/// A search through text that grows: a part without a find is not searched again.
#[derive(Debug, Default)]
pub struct Sought {
    /// The end of the part that was searched, or the find.
    until: usize,
    /// The find, which lies before `until` or at it.
    found: Option<usize>,
}

impl Sought {
    /// Searches the last bytes again when more text has arrived: a find of more than one byte may have begun in them.
    pub fn search_again(&mut self, bytes: usize) {
        if self.found.is_none() {
            self.until = self.until.saturating_sub(bytes);
        }
    }

    /// The first find at or behind `from` and before `limit`.
    pub fn next(
        &mut self,
        feed: &Feed<'_>,
        from: usize,
        limit: usize,
        find: impl Fn(&[u8]) -> Option<usize>,
    ) -> Option<usize> {
        let known = self.found.filter(|found| *found >= from);
        if known.is_none() {
            self.found = None;
            let start = self.until.max(from);
            if start < limit {
                self.found = find(&feed.bytes()[start..limit]).map(|at| start + at);
                self.until = self.found.map_or(limit, |at| at + 1);
                feed.count(self.until - start);
            }
        }
        self.found.filter(|found| *found < limit)
    }
}
