//! The headers of an answer that describe a file.

use contracts::tavern::registry::v1::File;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The characters that a header and an address write in another form.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The types that a browser shows in place, beside text.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "application/pdf"];

/// Returns a name, or a part of an address, as headers and addresses write it.
pub(in crate::edge) fn encoded(part: &str) -> PercentEncode<'_> {
    utf8_percent_encode(part, ENCODED)
}

/// Returns the headers that every answer has.
pub(super) fn inert() -> HeaderMap {
    let fields = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "sandbox; default-src 'none'",
        ),
        (RESOURCE_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "private, no-cache"),
    ];
    let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
    HeaderMap::from_iter(fields)
}

/// Returns the headers that describe a file.
pub(super) fn describe(file: &File) -> HeaderMap {
    let (kind, is_shown) = kind(&file.media_type);
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let name = encoded(name);
    let shown = if is_shown { "inline" } else { "attachment" };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let values = [
        (header::ETAG, etag(file)),
        (
            header::CONTENT_DISPOSITION,
            format!("{shown}; filename*=UTF-8''{name}"),
        ),
    ];
    for (name, value) in values {
        // Both values are ASCII without control characters.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns the version of a file as a header writes it.
pub(super) fn etag(file: &File) -> String {
    format!("\"{}\"", file.sha256)
}

/// Returns the type under which a file is served, and whether a browser shows it in place. A page, and everything
/// that a browser could take for one, is served as mere bytes.
fn kind(media_type: &str) -> (&'static str, bool) {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let shown = SHOWN.into_iter().find(|shown| *shown == essence);
    match (shown, essence) {
        (Some(shown), _) => (shown, true),
        (None, "text/html" | "text/xml") => ("application/octet-stream", false),
        (None, text) if text.starts_with("text/") => ("text/plain; charset=utf-8", true),
        (None, _) => ("application/octet-stream", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_pictures_and_pdf_are_shown_in_place() {
        const BYTES: &str = "application/octet-stream";
        const TEXT: &str = "text/plain; charset=utf-8";
        for (media_type, kind, shown) in [
            ("image/png", "image/png", "inline"),
            ("application/pdf", "application/pdf", "inline"),
            ("text/csv", TEXT, "inline"),
            ("text/javascript; charset=x", TEXT, "inline"),
            ("text/html", BYTES, "attachment"),
            ("text/html; charset=utf-8", BYTES, "attachment"),
            ("image/svg+xml", BYTES, "attachment"),
            ("application/xhtml+xml", BYTES, "attachment"),
            ("application/json", BYTES, "attachment"),
            ("", BYTES, "attachment"),
        ] {
            let file = File {
                path: "out/Übung 1.bin".to_owned(),
                media_type: media_type.to_owned(),
                sha256: "ab".to_owned(),
                ..File::default()
            };
            let headers = describe(&file);
            assert_eq!(headers[header::CONTENT_TYPE], kind, "{media_type}");
            assert_eq!(headers[header::ETAG], "\"ab\"");
            let expected = format!("{shown}; filename*=UTF-8''%C3%9Cbung%201.bin");
            assert_eq!(headers[header::CONTENT_DISPOSITION], expected);
        }
    }
}
