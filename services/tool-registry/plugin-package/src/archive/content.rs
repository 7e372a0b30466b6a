//! The content of an entry.

use flate2::{Decompress, FlushDecompress, Status};

use super::records::Entry;
use crate::refusal::Refusal;

/// Unpacks the data of an entry. Memory and time are bounded by the size that the entry states, which the caller has
/// bounded.
///
/// # Errors
/// Data that is damaged, that becomes more or fewer bytes than the entry states, or that continues after its end, and
/// content with another checksum.
pub(super) fn unpack(entry: &Entry<'_>, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let content = match entry.is_deflated() {
        true => inflate(entry, data)?,
        false => data.to_vec(),
    };
    match crc32fast::hash(&content) == entry.crc {
        true => Ok(content),
        false => {
            let message = "has content that differs from its checksum; pack it again";
            Err(entry.refuse("damaged", message))
        }
    }
}

/// Inflates data up to the byte after the stated size, which must not exist.
fn inflate(entry: &Entry<'_>, data: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut content = vec![0; entry.size + 1];
    let mut inflater = Decompress::new(false);
    let (mut read, mut written) = (0, 0);
    let ended = loop {
        let status = inflater.decompress(
            &data[read..],
            &mut content[written..],
            FlushDecompress::None,
        );
        let status = status.map_err(|_| {
            let message = "is damaged, and cannot be inflated; pack it again";
            entry.refuse("damaged", message)
        })?;
        let before = (read, written);
        read = usize::try_from(inflater.total_in()).unwrap_or(data.len());
        written = usize::try_from(inflater.total_out()).unwrap_or(content.len());
        match status {
            Status::StreamEnd => break true,
            _ if written > entry.size || before == (read, written) => break false,
            _ => {}
        }
    };
    if written > entry.size {
        let message = format!(
            "becomes more than the {} bytes that it states; pack it again",
            entry.size
        );
        return Err(entry.refuse("size_exceeded", message));
    }
    if !ended || written < entry.size {
        let message = format!(
            "becomes {written} bytes, and states {}; pack it again",
            entry.size
        );
        return Err(entry.refuse("sizes_differ", message));
    }
    if read < data.len() {
        let message = "has data after the end of its content; pack it again";
        return Err(entry.refuse("stray_data", message));
    }
    content.truncate(written);
    Ok(content)
}
