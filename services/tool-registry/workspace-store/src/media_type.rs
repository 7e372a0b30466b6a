//! The media types of files.

/// The first bytes of a file that decide about its type.
pub(crate) const HEAD: usize = 8 << 10;

const UNKNOWN: &str = "application/octet-stream";

/// Returns the media type of content by the name of its file and its first bytes.
///
/// A name alone makes nothing but a text: content that has the mark of a format has a type of that format, or none
/// where the name has a different one, and a picture without its mark is no picture.
pub fn media_type(path: &str, head: &[u8]) -> String {
    let named = mime_guess::from_path(path).first();
    let named = named.as_ref().map(mime_guess::mime::Mime::essence_str);
    let marked = infer::get(head).map(|kind| kind.mime_type());
    let media_type = match (named, marked) {
        // Marks of texts are guesses.
        (_, Some(marked)) if marked.starts_with("text/") => text(named, head),
        (Some(named), Some("application/zip")) if is_archive(named) => named,
        (Some(named), Some(marked)) if named != marked => UNKNOWN,
        (_, Some(marked)) => marked,
        (_, None) => text(named, head),
    };
    media_type.to_owned()
}

/// Returns the type of content without a mark, which is a text or unknown.
fn text<'a>(named: Option<&'a str>, head: &[u8]) -> &'a str {
    let is_text = match std::str::from_utf8(head) {
        Ok(text) => !text.contains('\0'),
        // A character may be cut at the end.
        Err(error) => error.error_len().is_none() && head.len() >= HEAD,
    };
    match named {
        _ if !is_text => UNKNOWN,
        None => "text/plain",
        Some(named) if is_written(named) => named,
        Some(_) => UNKNOWN,
    }
}

/// Whether a type is one of texts.
fn is_written(media_type: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "application/javascript",
        "application/json",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/xml",
        "application/yaml",
    ];
    media_type.starts_with("text/")
        || media_type.ends_with("+json")
        || media_type.ends_with("+xml")
        || OTHERS.contains(&media_type)
}

/// Whether files of a type are archives of the format ZIP.
fn is_archive(media_type: &str) -> bool {
    media_type.contains("openxmlformats")
        || media_type.contains("opendocument")
        || matches!(
            media_type,
            "application/epub+zip" | "application/java-archive"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_the_first_bytes_decide_together() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice();
        let page = b"<!DOCTYPE html><script>alert(1)</script>".as_slice();
        for (path, head, expected) in [
            ("chart.png", png, "image/png"),
            ("chart", png, "image/png"),
            ("chart.html", png, UNKNOWN),
            ("chart.png", page, UNKNOWN),
            ("chart.svg", page, "image/svg+xml"),
            ("page.html", page, "text/html"),
            ("page", page, "text/plain"),
            ("a.csv", b"month,sum\n", "text/csv"),
            ("a.md", "# 标题\n".as_bytes(), "text/markdown"),
            ("a.json", b"{}", "application/json"),
            ("a.csv", b"\0\x01\xff", UNKNOWN),
            ("a.pdf", b"%PDF-1.7\n", "application/pdf"),
            ("a.pdf", b"no such thing", UNKNOWN),
            ("empty", b"", "text/plain"),
            ("数据.txt", b"x", "text/plain"),
        ] {
            assert_eq!(media_type(path, head), expected, "{path} {head:?}");
        }
    }

    #[test]
    fn office_files_are_archives_with_a_name() {
        let archive = b"PK\x03\x04\x14\0\0\0".as_slice();
        let sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
        assert_eq!(media_type("a.xlsx", archive), sheet);
        assert_eq!(media_type("a.zip", archive), "application/zip");
        assert_eq!(media_type("a.png", archive), UNKNOWN);
    }
}
