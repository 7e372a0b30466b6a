//! White space and comments between structural parts, skipped without searching twice.

use super::{Feed, Look};

/// The part of a gap that was skipped already.
#[derive(Debug, Clone, Copy, Default)]
pub struct GapMemo {
    from: usize,
    at: usize,
}

/// The position of the next comment end, as far as known.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommentMemo {
    from: usize,
    searched: usize,
    found: Option<usize>,
}

impl CommentMemo {
    /// First position after the `-->` that ends a comment whose body starts at `from`.
    pub fn end(&mut self, feed: &Feed<'_>, from: usize) -> Look<usize> {
        let known = self.searched >= self.from && from >= self.from && self.searched > 0;
        if known && let Some(found) = self.found.filter(|found| *found >= from) {
            return Look::Yes(found + 3);
        }
        if !(known && self.found.is_none() && from <= self.searched) {
            *self = Self {
                from,
                searched: from,
                found: None,
            };
        }
        self.found = feed.find("-->", self.searched);
        match self.found {
            Some(found) => {
                self.searched = found;
                Look::Yes(found + 3)
            }
            None => {
                // The end mark may be cut by the end of the text.
                self.searched = feed.len().saturating_sub(2).max(self.searched);
                feed.ended()
            }
        }
    }
}

/// First position after white space and comments; *no* if a comment never ends.
pub fn skip(
    feed: &Feed<'_>,
    from: usize,
    memo: &mut GapMemo,
    comments: &mut CommentMemo,
) -> Look<usize> {
    if memo.from != from || memo.at < from {
        *memo = GapMemo { from, at: from };
    }
    loop {
        memo.at = feed.skip_space(memo.at);
        match feed.literal(memo.at, "<!--") {
            Look::Yes(body) => match comments.end(feed, body) {
                Look::Yes(end) => memo.at = end,
                Look::No => return Look::No,
                Look::More => return Look::More,
            },
            Look::No if memo.at == feed.len() => {
                return if feed.eof {
                    Look::Yes(memo.at)
                } else {
                    Look::More
                };
            }
            Look::No => return Look::Yes(memo.at),
            Look::More => return Look::More,
        }
    }
}
