//! The files that people write: settings, profiles, workflows, rules. Editors on Windows put a byte-order mark
//! before a text, and some of them write UTF-16.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The mark before UTF-8.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Reads a text of at most `most` bytes from a file.
///
/// # Errors
/// A file that cannot be read or is larger, and bytes that [`decode`] refuses.
pub fn read(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    // The file may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("it is {size} bytes, but at most {most} are allowed");
        return Err(io::Error::other(problem));
    }
    decode(bytes)
}

/// Returns the text of bytes without its byte-order mark: UTF-8, or UTF-16 with a mark.
///
/// # Errors
/// Bytes that are no such text.
pub fn decode(mut bytes: Vec<u8>) -> io::Result<String> {
    let refuse = || {
        let problem = "it is not UTF-8, nor UTF-16 with a byte-order mark; save it as UTF-8";
        io::Error::new(io::ErrorKind::InvalidData, problem)
    };
    let order = match bytes.get(..2) {
        Some([0xFF, 0xFE]) => u16::from_le_bytes,
        Some([0xFE, 0xFF]) => u16::from_be_bytes,
        _ => {
            if bytes.starts_with(MARK) {
                bytes.drain(..MARK.len());
            }
            return String::from_utf8(bytes).map_err(|_| refuse());
        }
    };
    let (pairs, rest) = bytes[2..].as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| order(*pair)).collect();
    match rest.is_empty() {
        true => String::from_utf16(&units).map_err(|_| refuse()),
        false => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\"name\": \"Zoë 🦉\"}\n";

    fn utf_16(bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let marked = format!("\u{FEFF}{TEXT}");
        marked.encode_utf16().flat_map(bytes_of).collect()
    }

    #[test]
    fn a_text_is_read_as_each_editor_writes_it() {
        for (editor, bytes) in [
            ("any", TEXT.as_bytes().to_vec()),
            ("Notepad", [MARK, TEXT.as_bytes()].concat()),
            ("PowerShell", utf_16(u16::to_le_bytes)),
            ("big-endian", utf_16(u16::to_be_bytes)),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let size = bytes.len() as u64;
            assert_eq!(read(file.path(), size).unwrap(), TEXT, "{editor}");
            let problem = read(file.path(), size - 1).unwrap_err().to_string();
            let expected = format!("it is {size} bytes, but at most {} are allowed", size - 1);
            assert_eq!(problem, expected, "{editor}");
        }
    }

    #[test]
    fn one_mark_is_no_part_of_the_text() {
        for (bytes, text) in [
            (&b""[..], ""),
            (MARK, ""),
            (b"\xFF\xFE", ""),
            (b"\xEF\xBB\xBF\xEF\xBB\xBFa", "\u{FEFF}a"),
        ] {
            assert_eq!(decode(bytes.to_vec()).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_the_remedy() {
        for bytes in [&b"\xFF"[..], b"a\xFF", b"\xFF\xFEa", b"\xFF\xFE\x00\xD8"] {
            let problem = decode(bytes.to_vec()).unwrap_err().to_string();
            assert!(problem.contains("save it as UTF-8"), "{problem}");
        }
    }
}
