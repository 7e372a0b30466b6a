//! Untrusted paths, as text that does no harm where it is shown.

/// A path as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathText {
    /// The text.
    pub text: String,
    /// Whether it is written with escapes: `\xNN`, `\u{N}` and `\\`.
    pub escaped: bool,
}

impl PathText {
    /// Writes a path. Plain text is unchanged. In any other path each byte that is no UTF-8, each
    /// character that is not shown as itself and each backslash is escaped, so that escapes are
    /// distinguishable from original text.
    pub fn of(path: &[u8]) -> Self {
        if let Ok(text) = std::str::from_utf8(path)
            && text.chars().all(is_plain)
        {
            return Self {
                text: text.to_owned(),
                escaped: false,
            };
        }
        let mut text = String::new();
        for chunk in path.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => text.push_str("\\\\"),
                    plain if is_plain(plain) => text.push(plain),
                    other if other.is_ascii() => {
                        text.push_str(&format!("\\x{:02x}", u32::from(other)));
                    }
                    other => text.push_str(&format!("\\u{{{:x}}}", u32::from(other))),
                }
            }
            for byte in chunk.invalid() {
                text.push_str(&format!("\\x{byte:02x}"));
            }
        }
        Self {
            text,
            escaped: true,
        }
    }
}

/// Returns whether a character is shown as itself: no control, no separator of lines, and no
/// character that changes the direction of text or is invisible.
fn is_plain(character: char) -> bool {
    !character.is_control()
        && !matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e34_names_are_plain_or_escaped() {
        let table: [(&[u8], &str, bool); 10] = [
            (b"plain.txt", "plain.txt", false),
            ("bücher/図.png".as_bytes(), "bücher/図.png", false),
            (b"-rf", "-rf", false),
            (b"back\\slash", "back\\slash", false),
            (b"a\nb", "a\\x0ab", true),
            (b"a\\\nb", "a\\\\\\x0ab", true),
            (b"\x1b[31mred", "\\x1b[31mred", true),
            (b"\xff\xfe", "\\xff\\xfe", true),
            ("gnp\u{202e}exe".as_bytes(), "gnp\\u{202e}exe", true),
            ("\u{85}".as_bytes(), "\\u{85}", true),
        ];
        for (path, text, escaped) in table {
            let expected = PathText {
                text: text.to_owned(),
                escaped,
            };
            assert_eq!(PathText::of(path), expected);
        }
    }

    #[test]
    fn two_paths_are_never_written_alike() {
        let mut seen = std::collections::BTreeSet::new();
        for first in 0..=255_u8 {
            for second in [b'\\', b'x', b'0', b'\n', 0xff, b'a'] {
                let path = [first, second];
                let written = PathText::of(&path);
                assert!(seen.insert((written.text, written.escaped)), "{path:?}");
            }
        }
    }
}
