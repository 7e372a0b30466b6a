//! The results of a cell, from the driver's message to the event.
//!
//! The driver keeps to the bounds by itself, but code of a cell may have written the message: everything is checked here
//! again. A result that is no bundle, or is beyond the bounds, is dropped and counted; it ends nothing.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use blob_store::{BlobDigest, BlobError, BlobStore, Caller};
use sandbox_engine::domain::owner::Owner;

use super::frames::{Origin, ShownResult, json};

/// The most results of a cell.
const MAX_RESULTS: u32 = 32;

/// The most bytes of one result, and of all results of a cell.
const MAX_RESULT_BYTES: usize = 8 << 20;
const MAX_CELL_BYTES: usize = 32 << 20;

/// The most bytes of a representation that an event has itself; a longer one is a blob.
const MAX_INLINE_BYTES: usize = 32 << 10;

/// The most bytes of metadata; a result with more has none.
const MAX_METADATA_BYTES: usize = 32 << 10;

/// The most bytes of HTML.
const MAX_HTML_BYTES: usize = 1 << 20;

/// The longest media type.
const MAX_TYPE_BYTES: usize = 127;

/// A result of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellResult {
    /// Its place among the results of the cell, from 0.
    pub index: u32,
    /// Its origin. The value of the last expression is the main result.
    pub origin: Origin,
    /// Its representations, by media type.
    pub data: Vec<Representation>,
    /// A JSON object about the representations; empty for none.
    pub metadata: String,
}

/// A result in one media type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Representation {
    /// The type, in lower case.
    pub media_type: String,
    /// The content.
    pub content: Shown,
    /// The size of the content in bytes.
    pub size: usize,
}

/// The content of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A text, or the text of a JSON value.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
    /// Content that is too large for an event.
    Blob(BlobDigest),
}

/// The place of the large results of a session.
#[derive(Clone, Debug)]
pub(crate) struct ResultStore {
    blobs: BlobStore,
    caller: Caller,
}

impl ResultStore {
    pub(crate) fn new(blobs: BlobStore, owner: &Owner) -> Self {
        let caller = Caller::named(owner.principal().tenant(), &owner.name());
        Self { blobs, caller }
    }

    fn put(&self, content: &[u8]) -> Result<BlobDigest, BlobError> {
        let mut incoming = self.blobs.take(&self.caller)?;
        incoming.write(content)?;
        Ok(incoming.finish(None)?.digest)
    }
}

/// The results of a cell so far.
#[derive(Debug)]
pub(super) struct Results {
    store: ResultStore,
    taken: u32,
    sent: u32,
    bytes: usize,
    dropped: u32,
}

/// A result that keeps to the bounds, and is not stored yet.
#[derive(Debug)]
pub(super) struct Taken {
    origin: Origin,
    data: Vec<Representation>,
    metadata: String,
}

impl Results {
    pub(super) fn new(store: ResultStore) -> Self {
        Self {
            store,
            taken: 0,
            sent: 0,
            bytes: 0,
            dropped: 0,
        }
    }

    /// Counts results that are not sent.
    pub(super) fn drop_results(&mut self, number: u32) {
        self.dropped = self.dropped.saturating_add(number);
    }

    /// The number of results that are not sent.
    pub(super) fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Reads a result of a cell; `None` if it is dropped.
    pub(super) fn take(&mut self, cell: u64, shown: ShownResult) -> Option<Taken> {
        let read = match shown.cell == cell && self.taken < MAX_RESULTS {
            true => read(shown.data.parts),
            false => None,
        };
        let size = |parts: &[Representation]| parts.iter().map(|part| part.size).sum::<usize>();
        let fits = |parts: &Vec<Representation>| {
            let size = size(parts);
            size <= MAX_RESULT_BYTES && self.bytes + size <= MAX_CELL_BYTES
        };
        let Some(data) = read.filter(fits) else {
            self.drop_results(1);
            return None;
        };
        self.bytes += size(&data);
        self.taken += 1;
        Some(Taken {
            origin: shown.origin,
            data,
            metadata: object(shown.metadata),
        })
    }

    /// Stores the large representations of a result; `None` if there is room for none.
    pub(super) async fn keep(&mut self, taken: Taken) -> Option<CellResult> {
        let mut data = taken.data;
        if data.iter().any(|part| part.size > MAX_INLINE_BYTES) {
            let store = self.store.clone();
            let stored = tokio::task::spawn_blocking(move || stored(&store, data)).await;
            let lost;
            (data, lost) = stored.unwrap_or_default();
            self.drop_results(lost);
        }
        if data.is_empty() {
            return None;
        }
        self.sent += 1;
        Some(CellResult {
            index: self.sent - 1,
            origin: taken.origin,
            data,
            metadata: taken.metadata,
        })
    }
}

/// Reads the representations of a result; `None` if one of them is not of its type, or none is left.
fn read(parts: Vec<(String, String)>) -> Option<Vec<Representation>> {
    let mut data: Vec<Representation> = Vec::new();
    for (media_type, text) in parts {
        let media_type = media_type.to_ascii_lowercase();
        if !is_media_type(&media_type) || is_script(&media_type) {
            continue;
        }
        let content = match media_type.as_str() {
            "text/html" if text.len() > MAX_HTML_BYTES => continue,
            json if is_json(json) => Shown::Text(json::is_value(&text).then_some(text)?),
            other if is_text(other) => Shown::Text(text),
            _ => Shown::Bytes(BASE64_STANDARD.decode(text).ok()?),
        };
        let size = match &content {
            Shown::Text(text) => text.len(),
            Shown::Bytes(bytes) => bytes.len(),
            Shown::Blob(_) => 0,
        };
        data.retain(|other| other.media_type != media_type);
        data.push(Representation {
            media_type,
            content,
            size,
        });
    }
    data.sort_by(|one, other| one.media_type.cmp(&other.media_type));
    (!data.is_empty()).then_some(data)
}

/// Stores large representations as blobs. Returns all that there is room for, and the number of the others.
fn stored(store: &ResultStore, data: Vec<Representation>) -> (Vec<Representation>, u32) {
    let before = data.len();
    let keep = |mut part: Representation| {
        let content = match &part.content {
            Shown::Text(text) => text.as_bytes(),
            Shown::Bytes(bytes) => bytes,
            Shown::Blob(_) => return Some(part),
        };
        if content.len() > MAX_INLINE_BYTES {
            let digest = store.put(content).inspect_err(|error| {
                tracing::info!(%error, "a result of a cell could not be stored");
            });
            part.content = Shown::Blob(digest.ok()?);
        }
        Some(part)
    };
    let kept: Vec<Representation> = data.into_iter().filter_map(keep).collect();
    let lost = u32::try_from(before - kept.len()).unwrap_or(u32::MAX);
    (kept, lost)
}

/// Metadata that is a JSON object of a bounded size; empty otherwise.
fn object(metadata: String) -> String {
    let is_object = metadata.starts_with('{') && metadata.len() <= MAX_METADATA_BYTES;
    match is_object && json::is_value(&metadata) {
        true => metadata,
        false => String::new(),
    }
}

/// Whether a text has the form `a/b`.
fn is_media_type(text: &str) -> bool {
    let is_name = |name: &str| {
        let marks = b"!#$&^_.+-";
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte))
    };
    let names = text.split_once('/');
    text.len() <= MAX_TYPE_BYTES && names.is_some_and(|(one, other)| is_name(one) && is_name(other))
}

fn is_script(media_type: &str) -> bool {
    let name = media_type.split_once('/').map_or("", |(_, name)| name);
    matches!(
        name,
        "javascript" | "x-javascript" | "ecmascript" | "x-ecmascript"
    )
}

fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type.ends_with("+json")
}

fn is_text(media_type: &str) -> bool {
    let is_markup = media_type.ends_with("+xml") || media_type == "application/xml";
    media_type.starts_with("text/") || is_markup
}

#[cfg(test)]
mod tests;
