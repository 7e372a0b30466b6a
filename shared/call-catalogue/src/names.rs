//! Comparing names: cleaning, squashing and near misses.

use std::borrow::Cow;

/// Letters, digits and the signs that most names are made of.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let sign = byte as u8;
        plain[byte] = sign.is_ascii_alphanumeric() || matches!(sign, b'_' | b'-' | b'.' | b':');
        byte += 1;
    }
    plain
};

// The inlined functions below are called by the scanners of `call-text` at every mark.

/// Whether a byte is common in names.
#[inline]
pub fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// Whether a name is made only of bytes that are common in names.
#[inline]
pub fn is_all_plain(name: &str) -> bool {
    name.bytes().all(is_plain)
}

/// Removes the marks round a name that do not belong to it: white space, backticks, quotes,
/// byte order marks and zero-width characters (N7, V11).
#[inline]
pub fn clean(name: &str) -> Cow<'_, str> {
    let stays = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_graphic() && byte != b'`');
    if name.is_ascii() && stays(name.bytes().next()) && stays(name.bytes().next_back()) {
        return Cow::Borrowed(name);
    }
    let trimmed = name.trim_matches(|c: char| c.is_whitespace() || c == '`' || is_invisible(c));
    if trimmed.contains(is_invisible) {
        Cow::Owned(trimmed.chars().filter(|c| !is_invisible(*c)).collect())
    } else {
        Cow::Borrowed(trimmed)
    }
}

/// Whether a character takes no room and belongs to no name.
#[inline]
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{00ad}' | '\u{202a}'..='\u{202e}')
}

/// Lower case, letters and digits only (N1). Works for every script.
pub fn squash(name: &str) -> String {
    if !name.is_ascii() {
        return squashed(name).collect();
    }
    let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
    let mut out = Vec::with_capacity(name.len());
    out.extend(letters.map(|letter| letter.to_ascii_lowercase()));
    String::from_utf8(out).unwrap_or_default()
}

/// Hands the squashed form of a name on; names of usual length need no memory for it.
pub fn with_squashed<T>(name: &str, read: impl FnOnce(&str) -> T) -> T {
    let mut short = [0; 48];
    if name.len() > short.len() || !name.is_ascii() {
        return read(&squash(name));
    }
    let mut length = 0;
    for byte in name.bytes() {
        short[length] = byte.to_ascii_lowercase();
        length += usize::from(byte.is_ascii_alphanumeric());
    }
    read(std::str::from_utf8(&short[..length]).unwrap_or_default())
}

/// The characters of the squashed form.
fn squashed(name: &str) -> impl Iterator<Item = char> {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
}

/// Removes and returns the next letter or digit of an ASCII name, in lower case.
fn next_letter(name: &mut &[u8]) -> Option<u8> {
    while let [first, rest @ ..] = *name {
        *name = rest;
        if first.is_ascii_alphanumeric() {
            return Some(first.to_ascii_lowercase());
        }
    }
    None
}

/// The last byte of a name's squashed form, where it is plain to see.
pub(crate) fn last_letter(name: &str) -> Option<u8> {
    let last = name.bytes().next_back()?;
    let plain = last.is_ascii_alphanumeric() && name.is_ascii();
    plain.then(|| last.to_ascii_lowercase())
}

/// Whether a name has this squashed form.
pub fn squashes_to(name: &str, form: &str) -> bool {
    if name.is_ascii() {
        if form.len() > name.len() {
            return false;
        }
        let (mut name, mut form) = (name.as_bytes(), form.as_bytes());
        while let Some(letter) = next_letter(&mut name) {
            match form {
                [first, rest @ ..] if *first == letter => form = rest,
                _ => return false,
            }
        }
        return form.is_empty();
    }
    squashed(name).eq(form.chars())
}

/// Whether two names have the same squashed form.
pub fn same_squashed(a: &str, b: &str) -> bool {
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

/// The name of a tool without its namespace, path, file ending and the prefix of skills.
fn stem(id: &str) -> &str {
    let id = id.strip_suffix(".json").unwrap_or(id);
    let last = id.rsplit([':', '/', '.']).next().unwrap_or(id);
    last.strip_prefix("skill_").unwrap_or(last)
}

/// Tools by their distance from a written name, nearest first, and whether each is near enough to
/// have been meant. Names that differ in their namespace only are nearer than misspelt ones.
pub(crate) fn rank_tools<'c>(
    written: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Vec<(usize, bool, &'c str)> {
    let written: String = written.chars().take(LONGEST_COMPARED).collect();
    let (lowered, length) = (written.to_lowercase(), written.chars().count());
    let (squashed, own_stem) = (squash(&written), squash(stem(&written)));
    let allowed = (length / 3).max(2);
    let mut ranked: Vec<(usize, bool, &str)> = candidates
        .map(|candidate| {
            let width = candidate.chars().count();
            if squash(candidate) == squashed {
                return (0, true, candidate);
            }
            if !own_stem.is_empty() && squash(stem(candidate)) == own_stem {
                return (1, true, candidate);
            }
            let apart = width.abs_diff(length);
            let distance = match apart > allowed {
                // Far in any case: the length is enough for the order.
                true => apart + allowed,
                false => strsim::damerau_levenshtein(&lowered, &candidate.to_lowercase()),
            };
            let near = json_schema::is_near(&written, candidate);
            (distance + 1, near, candidate)
        })
        .collect();
    ranked.sort_by_key(|(distance, _, _)| *distance);
    ranked
}

/// Edit distance costs the product of both lengths; no real name is longer.
const LONGEST_COMPARED: usize = 128;

/// The most names in one observation.
const MOST_NAMES: usize = 20;

/// Names as a list; beyond the bound only their number.
pub fn listed<'n>(mut names: impl Iterator<Item = &'n str>) -> String {
    let first: Vec<&str> = names.by_ref().take(MOST_NAMES).collect();
    match names.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
