//! The end record and the central directory of an archive.

use call_outcome::Violation;

use super::{
    bytes::Cursor,
    extra::{self, Extra},
    fields::Fields,
};
use crate::{
    limits::{MAX_ENTRIES, MAX_VIOLATIONS},
    names,
    refusal::Refusal,
};

const END: u32 = 0x0605_4b50;
const END_BYTES: usize = 22;
const END64: u32 = 0x0606_4b50;
/// The size that an end record of 64 bits states: without its first two fields.
const END64_STATED: u64 = 44;
const END64_BYTES: usize = 56;
const LOCATOR: u32 = 0x0706_4b50;
const LOCATOR_BYTES: usize = 20;
const CENTRAL: u32 = 0x0201_4b50;

/// The value of a field of 16 bits whose true value is in a record of 64 bits.
const ELSEWHERE_16: u16 = u16::MAX;
/// The value of a field of 32 bits whose true value is in a record of 64 bits.
pub(super) const ELSEWHERE: u32 = u32::MAX;

const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// The flag of sizes that follow the data.
pub(super) const DESCRIPTOR: u16 = 1 << 3;
const UTF_8: u16 = 1 << 11;
/// The flags that change nothing else: two for the effort of the compression, and the two above.
const KNOWN_FLAGS: u16 = 1 << 1 | 1 << 2 | DESCRIPTOR | UTF_8;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

const MODE_KINDS: u32 = 0o170_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_DIRECTORY: u32 = 0o040_000;
/// The attribute of a directory on DOS.
const DOS_DIRECTORY: u32 = 0x10;

/// An entry as the central directory has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The name, with a `/` at the end for a directory.
    pub(super) name: &'a str,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    /// The bytes of its data in the archive.
    pub(super) packed: usize,
    /// The bytes of its content.
    pub(super) size: usize,
    /// The place of its local header.
    pub(super) header: usize,
}

impl<'a> Entry<'a> {
    pub(super) fn is_directory(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Returns the name without the `/` of a directory.
    pub(super) fn path(&self) -> &'a str {
        self.name.strip_suffix('/').unwrap_or(self.name)
    }

    pub(super) fn is_deflated(&self) -> bool {
        self.method == DEFLATED
    }

    pub(super) fn refuse(&self, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::new(self.name, code, message)
    }
}

/// The central directory.
#[derive(Debug)]
pub(super) struct Directory<'a> {
    /// The entries, in its order.
    pub(super) entries: Vec<Entry<'a>>,
    /// Its place, where the data of all entries has ended.
    pub(super) start: usize,
}

/// The end record: the place and the number of entries of the central directory, which ends where the end records
/// begin.
#[derive(Clone, Copy, Debug)]
struct End {
    start: usize,
    end: usize,
    entries: usize,
}

/// Reads the central directory.
///
/// # Errors
/// The first fault of its structure, or all faults of its entries.
pub(super) fn read(bytes: &[u8]) -> Result<Directory<'_>, Vec<Violation>> {
    let end = end_record(bytes)?;
    let mut cursor = Cursor::new(&bytes[..end.end], end.start);
    let mut entries = Vec::with_capacity(end.entries);
    let mut wrong = Vec::new();
    for _ in 0..end.entries {
        let raw = raw_entry(&mut cursor).ok_or_else(|| {
            let message = "has fewer entries than its end record states; pack it again";
            Refusal::new("", "records_differ", message)
        })?;
        match raw.check() {
            Ok(entry) => entries.push(entry),
            Err(refusal) if wrong.len() < MAX_VIOLATIONS => wrong.push(refusal.into()),
            Err(_) => {}
        }
    }
    if cursor.at() != end.end {
        let message = "has more entries than its end record states; pack it again";
        return Err(Refusal::new("", "records_differ", message).into());
    }
    match wrong.is_empty() {
        true => Ok(Directory {
            entries,
            start: end.start,
        }),
        false => Err(wrong),
    }
}

/// Finds the one end record, which ends the archive.
fn end_record(bytes: &[u8]) -> Result<End, Refusal> {
    let refuse = |code: &'static str, message: String| Refusal::new("", code, message);
    let longest = END_BYTES + usize::from(u16::MAX);
    let tail = bytes.len().saturating_sub(longest);
    let signature = END.to_le_bytes();
    let places = (tail..bytes.len()).filter(|at| bytes[*at..].starts_with(&signature));
    let mut ends = places.clone().filter(|at| ends_archive(bytes, *at));
    let Some(at) = ends.next() else {
        let message = match places.count() {
            0 => "is no zip archive, or is cut off; pack it again",
            _ => "has data after its last record, or is cut off; pack it again",
        };
        return Err(refuse("not_an_archive", message.to_owned()));
    };
    if ends.next().is_some() || places.max() != Some(at) {
        let message = "has two end records, of which each reader may take another; pack it again without a comment";
        return Err(refuse("two_end_records", message.to_owned()));
    }
    let malformed = || {
        refuse(
            "malformed_record",
            "has an end record that is cut off".to_owned(),
        )
    };
    let mut cursor = Cursor::new(bytes, at + 4);
    let disks = (cursor.u16(), cursor.u16());
    let on_disk = cursor.u16().ok_or_else(malformed)?;
    let entries = cursor.u16().ok_or_else(malformed)?;
    let size = cursor.u32().ok_or_else(malformed)?;
    let start = cursor.u32().ok_or_else(malformed)?;
    if disks != (Some(0), Some(0)) || on_disk != entries {
        let message = "is one of several parts; pack it into one file";
        return Err(refuse("malformed_record", message.to_owned()));
    }
    let end = match end_record_64(bytes, at, entries, size, start)? {
        Some(end) => end,
        None => End {
            start: start as usize,
            end: at,
            entries: usize::from(entries),
        },
    };
    if end.entries > MAX_ENTRIES {
        let message = format!(
            "has {} entries, at most {MAX_ENTRIES} are accepted; leave out those that the plugin does not need",
            end.entries
        );
        return Err(refuse("too_many_entries", message));
    }
    Ok(end)
}

/// Whether the end record at a place ends the archive with its comment.
fn ends_archive(bytes: &[u8], at: usize) -> bool {
    let mut cursor = Cursor::new(bytes, at + END_BYTES - 2);
    let comment = cursor.u16();
    comment.is_some_and(|comment| cursor.at() + usize::from(comment) == bytes.len())
}

/// Reads the end record of 64 bits before the one at a place, whose values it must repeat; nothing without one.
/// Compares the place of the central directory with its size.
fn end_record_64(
    bytes: &[u8],
    at: usize,
    entries: u16,
    size: u32,
    start: u32,
) -> Result<Option<End>, Refusal> {
    let refuse = |message: &str| Refusal::new("", "records_differ", message);
    let misplaced = "has a central directory that does not end at the end record; pack it again";
    let locator = at.checked_sub(LOCATOR_BYTES);
    let mut cursor = Cursor::new(bytes, locator.unwrap_or(at));
    if locator.is_none() || !cursor.signature(LOCATOR) {
        return match (start as usize).checked_add(size as usize) {
            Some(end) if end == at => Ok(None),
            _ => Err(refuse(misplaced)),
        };
    }
    let differ = "has two end records that disagree; pack it again without zip64";
    let record_at = locator.and_then(|locator| locator.checked_sub(END64_BYTES));
    let record_at = record_at.ok_or_else(|| refuse(differ))?;
    let located = (cursor.u32(), cursor.u64(), cursor.u32());
    if located != (Some(0), Some(record_at as u64), Some(1)) {
        return Err(refuse(differ));
    }
    let mut cursor = Cursor::new(bytes, record_at);
    let is_record = cursor.signature(END64) && cursor.u64() == Some(END64_STATED);
    // The versions, which mean nothing here.
    let _ = cursor.u32();
    let disks = (cursor.u32(), cursor.u32());
    let mut next = || cursor.u64().ok_or_else(|| refuse(differ));
    let (on_disk, entries_64, size_64, start_64) = (next()?, next()?, next()?, next()?);
    let repeats =
        |short: u32, elsewhere: u32, long: u64| short == elsewhere || u64::from(short) == long;
    let same = is_record
        && disks == (Some(0), Some(0))
        && on_disk == entries_64
        && repeats(u32::from(entries), u32::from(ELSEWHERE_16), entries_64)
        && repeats(size, ELSEWHERE, size_64)
        && repeats(start, ELSEWHERE, start_64);
    if !same {
        return Err(refuse(differ));
    }
    if start_64.checked_add(size_64) != Some(record_at as u64) {
        return Err(refuse(misplaced));
    }
    let whole = |value: u64| usize::try_from(value).map_err(|_| refuse(differ));
    Ok(Some(End {
        start: whole(start_64)?,
        end: record_at,
        entries: whole(entries_64)?,
    }))
}

/// A record of the central directory, as it is written.
struct Raw<'a> {
    fields: Fields,
    name: &'a [u8],
    extra: &'a [u8],
    disk: u16,
    attributes: u32,
    header: u32,
}

fn raw_entry<'a>(cursor: &mut Cursor<'a>) -> Option<Raw<'a>> {
    if !cursor.signature(CENTRAL) {
        return None;
    }
    // The versions of the writer and of the reader that is needed.
    cursor.u32()?;
    let fields = Fields::read(cursor)?;
    let comment = cursor.u16()?;
    let disk = cursor.u16()?;
    // The guess whether it is a text.
    cursor.u16()?;
    let attributes = cursor.u32()?;
    let header = cursor.u32()?;
    let (name, extra) = fields.take_texts(cursor)?;
    cursor.take(usize::from(comment))?;
    Some(Raw {
        fields,
        name,
        extra,
        disk,
        attributes,
        header,
    })
}

impl<'a> Raw<'a> {
    /// Returns the entry, if it is a plain file or directory with a plain name that this reader can unpack.
    fn check(&self) -> Result<Entry<'a>, Refusal> {
        let place = String::from_utf8_lossy(self.name);
        let refuse = |code: &'static str, message: &str| Refusal::new(&place, code, message);
        let Ok(name) = std::str::from_utf8(self.name) else {
            let message = "has a name that is not UTF-8; pack it with names in UTF-8";
            return Err(refuse("invalid_path", message));
        };
        names::check_entry(name.strip_suffix('/').unwrap_or(name))
            .map_err(|refusal| refusal.at(&place))?;
        let extra = extra::read(self.extra).map_err(|(code, message)| refuse(code, message))?;
        check_second_name(self.name, &extra).map_err(|(code, message)| refuse(code, message))?;
        if self.fields.flags & ENCRYPTED != 0 {
            return Err(refuse(
                "encrypted",
                "is encrypted; pack it without a password",
            ));
        }
        if self.fields.flags & !KNOWN_FLAGS != 0 || !matches!(self.fields.method, STORED | DEFLATED)
        {
            let message = "is packed in a way other than stored and deflated; pack it with deflate";
            return Err(refuse("unknown_compression", message));
        }
        if self.disk != 0 {
            return Err(refuse(
                "malformed_record",
                "is in another part of the archive",
            ));
        }
        self.check_kind(name)
            .map_err(|(code, message)| refuse(code, message))?;
        let (size, packed, header) = self.sizes(&extra).ok_or_else(|| {
            let message = "has sizes of 32 and 64 bits that disagree; pack it without zip64";
            refuse("sizes_differ", message)
        })?;
        if name.ends_with('/') && size != 0 {
            return Err(refuse("malformed_record", "is a directory with content"));
        }
        if self.fields.method == STORED && size != packed {
            let message = "is stored, and has two sizes; pack it again";
            return Err(refuse("sizes_differ", message));
        }
        Ok(Entry {
            name,
            flags: self.fields.flags,
            method: self.fields.method,
            crc: self.fields.crc,
            packed,
            size,
            header,
        })
    }

    /// Refuses everything that is no plain file or directory, whichever system has written the attributes.
    fn check_kind(&self, name: &str) -> Result<(), (&'static str, &'static str)> {
        let is_directory = name.ends_with('/');
        let kind = (self.attributes >> 16) & MODE_KINDS;
        let expected = match is_directory {
            true => MODE_DIRECTORY,
            false => MODE_FILE,
        };
        let differs = "is a directory by its name or by its attributes only; pack it again";
        match kind {
            0 | MODE_FILE | MODE_DIRECTORY if kind != 0 && kind != expected => {
                Err(("malformed_record", differs))
            }
            0 | MODE_FILE | MODE_DIRECTORY => match self.attributes & DOS_DIRECTORY {
                DOS_DIRECTORY if !is_directory => Err(("malformed_record", differs)),
                _ => Ok(()),
            },
            _ => Err((
                "link",
                "is a link or a special file; put a plain file in its place",
            )),
        }
    }

    /// Returns size, packed size and place of the header. A field of 64 bits holds exactly those that are elsewhere.
    fn sizes(&self, extra: &Extra<'_>) -> Option<(usize, usize, usize)> {
        let long = extra.zip64.unwrap_or_default();
        let mut cursor = Cursor::new(long, 0);
        let mut field = |short: u32| match short {
            ELSEWHERE if extra.zip64.is_some() => usize::try_from(cursor.u64()?).ok(),
            short => usize::try_from(short).ok(),
        };
        let sizes = (
            field(self.fields.size)?,
            field(self.fields.packed)?,
            field(self.header)?,
        );
        (cursor.at() == long.len()).then_some(sizes)
    }
}

/// Refuses a name that an extra field replaces by another.
pub(super) fn check_second_name(
    name: &[u8],
    extra: &Extra<'_>,
) -> Result<(), (&'static str, &'static str)> {
    match extra.unicode_path.is_none_or(|replaced| replaced == name) {
        true => Ok(()),
        false => {
            let message = "has a second name in an extra field; pack it with names in UTF-8";
            Err(("records_differ", message))
        }
    }
}
