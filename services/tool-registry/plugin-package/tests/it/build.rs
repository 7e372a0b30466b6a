//! Archives byte by byte, so that each field can be wrong.

use std::io::Write as _;

use flate2::{Compression, write::DeflateEncoder};

/// The manifest of every plugin here.
pub(crate) const MANIFEST: &[u8] = b"name: demo\n";

/// The fields that a header before the data and a record of the directory share.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) crc: u32,
    pub(crate) packed: u32,
    pub(crate) size: u32,
    pub(crate) extra: Vec<u8>,
}

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) local: Header,
    pub(crate) central: Header,
    pub(crate) data: Vec<u8>,
    /// Bytes between the data and the next entry.
    pub(crate) after: Vec<u8>,
    pub(crate) attributes: u32,
    pub(crate) disk: u16,
    /// The place that the directory states, if it is not the true one.
    pub(crate) header_at: Option<u32>,
}

impl Item {
    pub(crate) fn stored(name: impl AsRef<[u8]>, content: &[u8]) -> Self {
        Self::packed(name.as_ref(), 0, content, content.to_vec())
    }

    pub(crate) fn deflated(name: impl AsRef<[u8]>, content: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        Self::packed(name.as_ref(), 8, content, encoder.finish().unwrap())
    }

    fn packed(name: &[u8], method: u16, content: &[u8], data: Vec<u8>) -> Self {
        let header = Header {
            name: name.to_vec(),
            flags: if name.is_ascii() { 0 } else { 1 << 11 },
            method,
            crc: crc32fast::hash(content),
            packed: data.len() as u32,
            size: content.len() as u32,
            extra: Vec::new(),
        };
        Self {
            local: header.clone(),
            central: header,
            data,
            after: Vec::new(),
            attributes: 0,
            disk: 0,
            header_at: None,
        }
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.attributes |= mode << 16;
        self
    }

    /// Changes both headers.
    pub(crate) fn both(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    pub(crate) fn local(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        self
    }

    pub(crate) fn central(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.central);
        self
    }

    pub(crate) fn with(mut self, change: impl Fn(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Moves the sizes behind the data.
    pub(crate) fn with_descriptor(self, descriptor: &[u8]) -> Self {
        let descriptor = descriptor.to_vec();
        self.both(|header| header.flags |= 1 << 3)
            .local(|header| (header.crc, header.packed, header.size) = (0, 0, 0))
            .with(|item| item.after = descriptor.clone())
    }
}

/// An archive of a plugin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Archive {
    pub(crate) before: Vec<u8>,
    pub(crate) items: Vec<Item>,
    /// Bytes between the data and the directory.
    pub(crate) between: Vec<u8>,
    /// Bytes between the directory and the end record.
    pub(crate) before_end: Vec<u8>,
    pub(crate) comment: Vec<u8>,
    pub(crate) after: Vec<u8>,
    /// The number of entries that the end record states.
    pub(crate) entries: Option<u16>,
    /// The place of the directory that the end record states.
    pub(crate) start: Option<u32>,
    /// The size of the directory that the end record states.
    pub(crate) size: Option<u32>,
    pub(crate) disk: u16,
}

impl Archive {
    /// Makes an archive with a manifest before the items.
    pub(crate) fn plugin(items: impl IntoIterator<Item = Item>) -> Self {
        Self::of(
            [Item::stored("plugin.yaml", MANIFEST)]
                .into_iter()
                .chain(items),
        )
    }

    pub(crate) fn of(items: impl IntoIterator<Item = Item>) -> Self {
        Self {
            items: items.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(crate) fn with(mut self, change: impl Fn(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.before.clone();
        let mut directory = Vec::new();
        for item in &self.items {
            let at = item.header_at.unwrap_or(bytes.len() as u32);
            bytes.extend(b"PK\x03\x04\x14\0");
            shared_fields(&mut bytes, &item.local);
            bytes.extend(&item.local.name);
            bytes.extend(&item.local.extra);
            bytes.extend(&item.data);
            bytes.extend(&item.after);
            directory.extend(b"PK\x01\x02\x14\x03\x14\0");
            shared_fields(&mut directory, &item.central);
            directory.extend([0, 0]);
            directory.extend(item.disk.to_le_bytes());
            directory.extend([0, 0]);
            directory.extend(item.attributes.to_le_bytes());
            directory.extend(at.to_le_bytes());
            directory.extend(&item.central.name);
            directory.extend(&item.central.extra);
        }
        bytes.extend(&self.between);
        let start = self.start.unwrap_or(bytes.len() as u32);
        let size = self.size.unwrap_or(directory.len() as u32);
        bytes.extend(directory);
        bytes.extend(&self.before_end);
        let entries = self.entries.unwrap_or(self.items.len() as u16);
        bytes.extend(end_record(self.disk, entries, size, start, &self.comment));
        bytes.extend(&self.after);
        bytes
    }

    /// Makes an archive whose end record refers to one of 64 bits with these values, wrong where they are given.
    pub(crate) fn with_end_64(mut self, entries: Option<u64>, start: Option<u64>) -> Vec<u8> {
        let whole = self.bytes();
        let end = whole.len() - 22;
        let field = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
        let (size, true_start) = (field(end + 12), field(end + 16));
        let entries = entries.unwrap_or(self.items.len() as u64).to_le_bytes();
        let mut record = b"PK\x06\x06".to_vec();
        record.extend(44u64.to_le_bytes());
        record.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        record.extend(entries);
        record.extend(entries);
        record.extend(u64::from(size).to_le_bytes());
        record.extend(start.unwrap_or(u64::from(true_start)).to_le_bytes());
        record.extend(b"PK\x06\x07\0\0\0\0");
        record.extend((end as u64).to_le_bytes());
        record.extend(1u32.to_le_bytes());
        self.before_end = record;
        self.start = Some(true_start);
        self.size = Some(size);
        self.bytes()
    }
}

pub(crate) fn end_record(
    disk: u16,
    entries: u16,
    size: u32,
    start: u32,
    comment: &[u8],
) -> Vec<u8> {
    let mut bytes = b"PK\x05\x06".to_vec();
    for short in [disk, 0, entries, entries] {
        bytes.extend(short.to_le_bytes());
    }
    bytes.extend(size.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend((comment.len() as u16).to_le_bytes());
    bytes.extend(comment);
    bytes
}

/// Makes an extra field.
pub(crate) fn extra(kind: u16, content: &[u8]) -> Vec<u8> {
    let size = content.len() as u16;
    [&kind.to_le_bytes()[..], &size.to_le_bytes(), content].concat()
}

/// Makes the extra field of 64 bits.
pub(crate) fn zip64(values: &[u64]) -> Vec<u8> {
    let content: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    extra(1, &content)
}

fn shared_fields(bytes: &mut Vec<u8>, header: &Header) {
    bytes.extend(header.flags.to_le_bytes());
    bytes.extend(header.method.to_le_bytes());
    // Midnight of the first of January 1980.
    bytes.extend([0, 0, 0x21, 0]);
    for long in [header.crc, header.packed, header.size] {
        bytes.extend(long.to_le_bytes());
    }
    bytes.extend((header.name.len() as u16).to_le_bytes());
    bytes.extend((header.extra.len() as u16).to_le_bytes());
}
