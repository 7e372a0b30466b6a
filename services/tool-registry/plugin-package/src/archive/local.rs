//! The local headers of an archive, which stand before the data of each entry.

use super::{
    bytes::Cursor,
    extra,
    fields::Fields,
    records::{self, DESCRIPTOR, Directory, ELSEWHERE, Entry},
};
use crate::refusal::Refusal;

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR_SIGNATURE: u32 = 0x0807_4b50;

/// Returns the data of each entry, in the order of the central directory. The headers and the data of all entries cover
/// the archive up to the central directory, without a gap and without a byte that belongs to two.
///
/// # Errors
/// The first entry whose header differs from the central directory, or stands elsewhere.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    directory: &Directory<'_>,
) -> Result<Vec<&'a [u8]>, Refusal> {
    let entries = &directory.entries;
    if let Some(entry) = entries.iter().find(|each| each.header >= directory.start) {
        let message = "has its data in the directory or beyond; pack it again";
        return Err(entry.refuse("malformed_record", message));
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|index| entries[*index].header);
    let bytes = &bytes[..directory.start];
    let mut contents: Vec<&[u8]> = vec![&[]; entries.len()];
    let mut at = 0;
    for (position, index) in order.iter().enumerate() {
        let entry = &entries[*index];
        let next = order.get(position + 1);
        let next = next.map_or(directory.start, |next| entries[*next].header);
        contents[*index] = read_one(bytes, entry, at, next)?;
        at = next;
    }
    match at == directory.start {
        true => Ok(contents),
        false => {
            let message = "has data, and no entry to which it belongs; pack it again";
            Err(Refusal::new("", "stray_data", message))
        }
    }
}

/// Returns the data of an entry that begins at `at`, and ends at `next`.
fn read_one<'a>(
    bytes: &'a [u8],
    entry: &Entry<'_>,
    at: usize,
    next: usize,
) -> Result<&'a [u8], Refusal> {
    if entry.header != at {
        let message = "begins after data to which no entry belongs; pack it again";
        return Err(entry.refuse("stray_data", message));
    }
    let mut cursor = Cursor::new(bytes, at);
    let header = read_header(&mut cursor).ok_or_else(|| {
        let message = "has no header before its data; pack it again";
        entry.refuse("malformed_record", message)
    })?;
    header.compare(entry)?;
    let data = cursor.take(entry.packed);
    let (Some(data), true) = (data, cursor.at() <= next) else {
        let message = "overlaps the next entry or the directory; pack it again";
        return Err(entry.refuse("overlap", message));
    };
    let after = &bytes[cursor.at()..next];
    if entry.flags & DESCRIPTOR == 0 {
        if !after.is_empty() {
            let message = "is followed by data to which no entry belongs; pack it again";
            return Err(entry.refuse("stray_data", message));
        }
    } else if !is_descriptor(after, entry) {
        let message =
            "is followed by sizes that differ from the directory, or by other data; pack it again";
        return Err(entry.refuse("records_differ", message));
    }
    Ok(data)
}

/// Whether bytes are exactly the sizes of an entry as they follow its data, with or without a signature and in either
/// width.
fn is_descriptor(bytes: &[u8], entry: &Entry<'_>) -> bool {
    let mut cursor = Cursor::new(bytes, 0);
    if matches!(bytes.len(), 16 | 24) && !cursor.signature(DESCRIPTOR_SIGNATURE) {
        return false;
    }
    if cursor.u32() != Some(entry.crc) {
        return false;
    }
    let sizes = match bytes.len() {
        12 | 16 => (cursor.u32().map(u64::from), cursor.u32().map(u64::from)),
        20 | 24 => (cursor.u64(), cursor.u64()),
        _ => return false,
    };
    sizes == (Some(entry.packed as u64), Some(entry.size as u64))
}

/// A local header, as it is written.
struct Header<'a> {
    fields: Fields,
    name: &'a [u8],
    extra: &'a [u8],
}

fn read_header<'a>(cursor: &mut Cursor<'a>) -> Option<Header<'a>> {
    if !cursor.signature(LOCAL) {
        return None;
    }
    // The version of the reader that is needed.
    cursor.u16()?;
    let fields = Fields::read(cursor)?;
    let (name, extra) = fields.take_texts(cursor)?;
    Some(Header {
        fields,
        name,
        extra,
    })
}

impl Header<'_> {
    /// Compares the header with the record of the central directory. Sizes that follow the data may be zero here.
    fn compare(&self, entry: &Entry<'_>) -> Result<(), Refusal> {
        let differs = |part: &str| {
            let message = format!(
                "has {part} before its data that differs from the directory, so that readers may see different files; \
                 pack it again"
            );
            entry.refuse("records_differ", message)
        };
        if self.name != entry.name.as_bytes() {
            return Err(differs("a name"));
        }
        if self.fields.flags != entry.flags {
            return Err(differs("a flag"));
        }
        if self.fields.method != entry.method {
            return Err(differs("a method"));
        }
        let extra =
            extra::read(self.extra).map_err(|(code, message)| entry.refuse(code, message))?;
        records::check_second_name(self.name, &extra)
            .map_err(|(code, message)| entry.refuse(code, message))?;
        let is_later = entry.flags & DESCRIPTOR != 0;
        if self.fields.crc != entry.crc && !(is_later && self.fields.crc == 0) {
            return Err(differs("a checksum"));
        }
        let mut long = Cursor::new(extra.zip64.unwrap_or_default(), 0);
        let longs = (long.u64(), long.u64());
        // A header in front of the data has both sizes in the field of 64 bits, and nothing else.
        let is_whole = extra.zip64.is_none_or(|field| field.len() == 16);
        let same = |short: u32, long: Option<u64>, size: usize| {
            let fits = |found: u64| found == size as u64 || (is_later && found == 0);
            let short_fits = fits(u64::from(short)) || (short == ELSEWHERE && long.is_some());
            short_fits && long.is_none_or(fits)
        };
        let sizes = same(self.fields.size, longs.0, entry.size)
            && same(self.fields.packed, longs.1, entry.packed);
        match sizes && is_whole {
            true => Ok(()),
            false => Err(differs("a size")),
        }
    }
}
