//! Comparing names: cleaning, squashing and near misses.

use std::borrow::Cow;

/// Takes off what may stand round a name without belonging to it: white space, backticks, quotes,
/// byte order marks and zero-width characters (N7, V11).
pub(crate) fn clean(name: &str) -> Cow<'_, str> {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':'))
    {
        return Cow::Borrowed(name);
    }
    let trimmed = name.trim_matches(|c: char| c.is_whitespace() || c == '`' || is_invisible(c));
    if trimmed.contains(is_invisible) {
        Cow::Owned(trimmed.chars().filter(|c| !is_invisible(*c)).collect())
    } else {
        Cow::Borrowed(trimmed)
    }
}

/// Characters that take no room and belong to no name.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{00ad}' | '\u{202a}'..='\u{202e}')
}

/// Lower case, letters and digits only (N1). Works for every script.
pub(crate) fn squash(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    if name.is_ascii() {
        let mut rest = name.as_bytes();
        while let Some(letter) = next_letter(&mut rest) {
            out.push(char::from(letter));
        }
    } else {
        out.extend(squashed(name));
    }
    out
}

/// The characters of the squashed form.
fn squashed(name: &str) -> impl Iterator<Item = char> {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
}

/// Takes the next letter or digit off an ASCII name, in lower case.
fn next_letter(name: &mut &[u8]) -> Option<u8> {
    while let [first, rest @ ..] = *name {
        *name = rest;
        if first.is_ascii_alphanumeric() {
            return Some(first.to_ascii_lowercase());
        }
    }
    None
}

/// Whether two names have the same squashed form.
pub(crate) fn same_squashed(a: &str, b: &str) -> bool {
    if a.is_ascii() && b.is_ascii() {
        let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
        loop {
            match (next_letter(&mut a), next_letter(&mut b)) {
                (None, None) => return true,
                (x, y) if x == y => {}
                _ => return false,
            }
        }
    }
    squashed(a).eq(squashed(b))
}

/// The candidates whose squashed form equals that of the written name.
pub(crate) fn squashed_matches<'c>(
    written: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Vec<&'c str> {
    if squashed(written).next().is_none() {
        return Vec::new();
    }
    candidates
        .filter(|candidate| same_squashed(candidate, written))
        .collect()
}

/// Up to three candidates within an edit distance of max(2, length / 3), nearest first; ties keep
/// the candidates' order (N3).
pub(crate) fn nearest<'c>(written: &str, candidates: impl Iterator<Item = &'c str>) -> Vec<String> {
    // Edit distance costs the product of both lengths; no real name is longer.
    let written: String = written.chars().take(128).collect();
    let lowered = written.to_lowercase();
    let allowed = (written.chars().count() / 3).max(2);
    let mut found: Vec<(usize, &str)> = candidates
        .filter_map(|candidate| {
            let distance = if squash(candidate) == squash(&written) {
                0
            } else {
                strsim::damerau_levenshtein(&lowered, &candidate.to_lowercase())
            };
            (distance <= allowed && distance < candidate.chars().count())
                .then_some((distance, candidate))
        })
        .collect();
    found.sort_by_key(|(distance, _)| *distance);
    found
        .into_iter()
        .take(3)
        .map(|(_, candidate)| candidate.to_owned())
        .collect()
}
