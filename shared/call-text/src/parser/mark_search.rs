//! The search for marks in the text between blocks.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::dialect::trained;
use crate::scan::Feed;
use crate::scan::sought::Sought;

static WIDE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("＜"));
static TRIANGLE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("◁"));
static ACTION: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(trained::ACTION));

/// The most white space before the first mark of a line.
pub(super) const WIDEST_INDENT: usize = 64;

/// The next marks of each kind, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct MarkSearch {
    ascii: Sought,
    /// Square brackets and braces.
    square: Sought,
    /// Full-width brackets.
    wide: Sought,
    triangle: Sought,
    /// The word before a call of ReAct.
    action: Sought,
}

impl MarkSearch {
    /// The next byte that may mean something. The text is searched in windows that stay in the processor's nearest
    /// cache, for one mark after the other.
    pub(super) fn next(&mut self, feed: &Feed<'_>, mut from: usize) -> Option<usize> {
        loop {
            let limit = window(feed, from);
            let found = self.next_before(feed, from, limit);
            if found.is_some() || limit == feed.len() {
                return found;
            }
            from = limit;
        }
    }

    fn next_before(&mut self, feed: &Feed<'_>, from: usize, end: usize) -> Option<usize> {
        let ascii = |text: &[u8]| memchr::memchr3(b'<', b'`', b'~', text);
        let wide = |text: &[u8]| WIDE.find(text);
        let triangle = |text: &[u8]| TRIANGLE.find(text);
        let action = |text: &[u8]| ACTION.find(text);
        let mut next = self.ascii.next(feed, from, end, ascii);
        for (sought, find) in [
            (
                &mut self.square,
                &list_or_object as &dyn Fn(&[u8]) -> Option<usize>,
            ),
            (&mut self.wide, &wide),
            (&mut self.triangle, &triangle),
        ] {
            next = sought.next(feed, from, next.unwrap_or(end), find).or(next);
        }
        self.action
            .next(feed, from, next.unwrap_or(end), action)
            .or(next)
    }

    /// Searches the end of the text again when more has arrived: a word may be cut there.
    pub(super) fn search_end_again(&mut self) {
        self.action.search_again(trained::ACTION.len() - 1);
    }
}

/// The end of the part that is searched at once. No mark reaches over it: it is behind white space,
/// or in text without any.
fn window(feed: &Feed<'_>, from: usize) -> usize {
    const SIZE: usize = 8 << 10;
    const WORD: usize = 64;
    let end = from + SIZE;
    if end >= feed.len() {
        return feed.len();
    }
    let last = &feed.bytes()[end - WORD..end];
    let space = last.iter().rposition(u8::is_ascii_whitespace);
    space.map_or_else(|| feed.floor(end), |at| end - WORD + at + 1)
}

/// The first square bracket or brace that may begin a mark, a list or an object: a letter of a mark
/// follows it, or it begins a line.
fn list_or_object(text: &[u8]) -> Option<usize> {
    const LAST_OF_WORD: u8 = b's';
    memchr::memchr2_iter(b'[', b'{', text).find(|at| {
        let is_list = text[*at] == b'[';
        let marks = is_list
            && text
                .get(at + 1)
                .is_none_or(|next| matches!(next, b'T' | b'A' | b'/' | b'{'));
        let before = text[..*at].iter().rev().take(WIDEST_INDENT);
        let mut before = before.skip_while(|byte| matches!(byte, b' ' | b'\t'));
        marks
            || before
                .next()
                .is_none_or(|byte| *byte == b'\n' || is_list && *byte == LAST_OF_WORD)
    })
}
