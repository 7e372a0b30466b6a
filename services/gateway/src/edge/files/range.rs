//! The part of a file that a request asks for.

use contracts::tavern::registry::v1::File;
use http::{HeaderMap, header};

use super::served::etag;

/// A part of a file whose size is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// The bytes from the first to the last, which may lie behind the end; without a last one, to the end.
    From(u64, Option<u64>),
    /// So many bytes at the end.
    Last(u64),
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePart {
    pub(super) offset: u64,
    /// At least one byte.
    pub(super) length: u64,
}

impl Range {
    /// Reads the header of a request. Several ranges, other units and a range that cannot be read count for nothing:
    /// the answer then is the whole file.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(header::RANGE).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let (unit, range) = value.to_str().ok()?.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (first.trim(), last.trim()) {
            ("", last) => number(last).map(Self::Last),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Whether the range counts for this version of a file.
    pub(super) fn is_of(headers: &HeaderMap, file: &File) -> bool {
        let named = headers.get(header::IF_RANGE);
        named.is_none_or(|named| named.as_bytes() == etag(file).as_bytes())
    }

    /// Returns the part of a file of `size` bytes; `None` if it has no byte of it.
    pub(super) fn within(self, size: u64) -> Option<FilePart> {
        let (offset, end) = match self {
            Self::From(first, last) => {
                let end = last.map_or(size, |last| last.saturating_add(1).min(size));
                (first, end)
            }
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        let length = end.checked_sub(offset).filter(|length| *length > 0)?;
        Some(FilePart { offset, length })
    }
}

impl FilePart {
    /// Returns the part as a header writes it.
    pub(super) fn of_file(self, size: u64) -> String {
        let last = self.offset + self.length - 1;
        format!("bytes {}-{last}/{size}", self.offset)
    }
}

/// Returns a number of digits only; one that is too large counts as the largest.
fn number(digits: &str) -> Option<u64> {
    let are_digits = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    are_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    /// Returns the part of a file of ten bytes; `Err` where the range counts for nothing.
    fn part(range: &str) -> Result<Option<(u64, u64)>, ()> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_str(range).unwrap());
        let range = Range::of(&headers).ok_or(())?;
        let part = range.within(10);
        Ok(part.map(|part| (part.offset, part.length)))
    }

    #[test]
    fn a_range_is_a_part_of_the_file_or_counts_for_nothing() {
        for (range, expected) in [
            ("bytes=0-0", Ok(Some((0, 1)))),
            ("bytes=2-5", Ok(Some((2, 4)))),
            ("bytes=2-", Ok(Some((2, 8)))),
            ("bytes=9-99", Ok(Some((9, 1)))),
            ("Bytes = 9-99999999999999999999", Ok(Some((9, 1)))),
            ("bytes=-3", Ok(Some((7, 3)))),
            ("bytes=-99", Ok(Some((0, 10)))),
            ("bytes=-0", Ok(None)),
            ("bytes=10-", Ok(None)),
            ("bytes=99999999999999999999-", Ok(None)),
            ("bytes=5-2", Err(())),
            ("bytes=0-1,3-4", Err(())),
            ("bytes=a-b", Err(())),
            ("bytes=+1-2", Err(())),
            ("bytes=-", Err(())),
            ("lines=0-1", Err(())),
            ("0-1", Err(())),
        ] {
            assert_eq!(part(range), expected, "{range}");
        }
    }

    #[test]
    fn no_part_of_an_empty_file_exists() {
        assert_eq!(Range::From(0, None).within(0), None);
        assert_eq!(Range::Last(1).within(0), None);
    }
}
