//! Placeholders for values in examples, which no call can carry.

/// The beginning and the end of a placeholder.
pub const PLACEHOLDER: (&str, &str) = ("‹your ", "›");

/// Whether a text is a placeholder.
pub fn is_placeholder(text: &str) -> bool {
    let (open, close) = PLACEHOLDER;
    let inner = text.trim_start().strip_prefix(open);
    let inner = inner.and_then(|text| text.trim_end().strip_suffix(close));
    inner.is_some_and(|inner| !inner.contains(['‹', '›', '\n']))
}
