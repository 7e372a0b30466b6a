//! Code in prose: fences and inline code (A7, A8).

use crate::scan::{Feed, Look};

/// An opened code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: u8,
    pub(super) width: usize,
    pub(super) start: usize,
    pub(super) body: usize,
}

/// The longest run of marks that means something; a longer one is looked at in parts.
pub(super) const LONGEST_RUN: usize = 256;

/// The length of a run of one byte, up to the longest.
pub(super) fn run(feed: &Feed<'_>, at: usize) -> usize {
    let bytes = feed.bytes();
    let mark = bytes[at];
    let run = bytes[at..].iter().take(LONGEST_RUN);
    let width = run.take_while(|byte| **byte == mark).count();
    feed.count(width);
    width
}

/// The fence that opens at a run of marks at the start of a line.
pub(super) fn opening(feed: &Feed<'_>, at: usize, width: usize) -> Look<Fence> {
    if width < 3 {
        return Look::No;
    }
    let mark = feed.bytes()[at];
    const LONGEST_INFO: usize = 256;
    let info = &feed.bytes()[at + width..];
    let window = &info[..info.len().min(LONGEST_INFO)];
    feed.count(window.len().min(16));
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if info.len() > LONGEST_INFO || (mark == b'`' && window.contains(&b'`')) {
            Look::No
        } else {
            feed.ended()
        };
    };
    if mark == b'`' && window[..end].contains(&b'`') {
        return Look::No;
    }
    Look::Yes(Fence {
        mark,
        width,
        start: at,
        body: at + width + end + 1,
    })
}

/// Whether the line that starts at `line` closes the fence; returns the place after the marks.
pub(super) fn closes(feed: &Feed<'_>, fence: &Fence, line: usize) -> Look<usize> {
    let bytes = feed.bytes();
    let at = feed.skip_blank(line);
    if at == bytes.len() {
        return feed.ended();
    }
    if bytes[at] != fence.mark {
        return Look::No;
    }
    let width = run(feed, at);
    let after = at + width;
    if after == bytes.len() && !feed.eof {
        return Look::More;
    }
    if width < fence.width {
        return Look::No;
    }
    let rest = feed.skip_blank(after);
    match bytes.get(rest) {
        None if !feed.eof => Look::More,
        None | Some(b'\n') => Look::Yes(after),
        Some(_) => Look::No,
    }
}

/// A search for the end of inline code.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InlineSearch {
    start: usize,
    searched: usize,
    last_was_break: bool,
}

impl InlineSearch {
    /// The place after the run that closes the inline code opened by `width` marks at `at`.
    /// Inline code ends with its line, unless a tag follows its opening mark directly: then it ends
    /// with its paragraph.
    pub(super) fn end(&mut self, feed: &Feed<'_>, at: usize, width: usize) -> Look<usize> {
        if self.start != at || self.searched < at + width {
            *self = Self {
                start: at,
                searched: at + width,
                last_was_break: false,
            };
        }
        let follows_tag = match feed.char_at(at + width) {
            Some(c) => matches!(c, '<' | '＜' | '「'),
            None => return feed.ended(),
        };
        loop {
            let Some(found) = feed.find2(b'`', b'\n', self.searched) else {
                if feed.text[self.searched..].contains(|c: char| !c.is_whitespace()) {
                    self.last_was_break = false;
                }
                self.searched = feed.len();
                return feed.ended();
            };
            if !feed.text[self.searched..found].trim().is_empty() {
                self.last_was_break = false;
            }
            if feed.bytes()[found] == b'\n' {
                if !follows_tag || self.last_was_break {
                    return Look::No;
                }
                self.last_was_break = true;
                self.searched = found + 1;
                continue;
            }
            let closing = run(feed, found);
            if found + closing == feed.len() && !feed.eof {
                self.searched = found;
                return Look::More;
            }
            self.last_was_break = false;
            self.searched = found + closing;
            if closing == width {
                return Look::Yes(self.searched);
            }
        }
    }
}
