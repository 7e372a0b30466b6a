//! Patterns of paths: `*` and `?` within a name, `**` for any number of directories.
//!
//! A walk goes down a tree and at each step tracks the parts of each pattern that may come next, so
//! that no directory is entered that cannot hold a match.

/// The longest pattern, in bytes.
const MAX_BYTES: usize = 256;

/// A pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Any number of directories, also none.
    AnyDepth,
    /// One name.
    Name(Vec<u8>),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_BYTES {
            return Err("must be at most 256 bytes");
        }
        let sound = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if !text.split('/').all(sound) {
            return Err("must be relative, without `.`, `..`, empty names or NUL");
        }
        let part = |part: &str| match part {
            "**" => Part::AnyDepth,
            name => Part::Name(name.as_bytes().to_vec()),
        };
        let mut parts: Vec<Part> = text.split('/').map(part).collect();
        // Several in a row mean no more than one.
        parts.dedup_by(|one, other| *one == Part::AnyDepth && *other == Part::AnyDepth);
        if parts.last() == Some(&Part::AnyDepth) {
            parts.push(Part::Name(b"*".to_vec()));
        }
        Ok(Self { parts })
    }

    /// The names of the one path that it matches; `None` if it may match several.
    pub fn literal(&self) -> Option<Vec<&[u8]>> {
        let mut names = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match part {
                Part::Name(name) if !name.iter().any(|byte| b"*?".contains(byte)) => {
                    names.push(name.as_slice());
                }
                _ => return None,
            }
        }
        Some(names)
    }
}

/// The positions of a walk in each of several patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions(Vec<Vec<usize>>);

impl Positions {
    /// The positions at the top.
    pub fn top(patterns: &[Pattern]) -> Self {
        Self(patterns.iter().map(|each| settle(each, vec![0])).collect())
    }

    /// Returns whether a file of this name is wanted. Without any pattern all files are.
    pub fn wants(&self, patterns: &[Pattern], name: &[u8]) -> bool {
        patterns.is_empty()
            || patterns.iter().zip(&self.0).any(|(pattern, positions)| {
                positions.iter().any(|&position| {
                position + 1 == pattern.parts.len()
                    && matches!(&pattern.parts[position], Part::Name(part) if matches(part, name))
            })
            })
    }

    /// The positions within a directory of this name; `None` if it can hold no wanted file.
    pub fn enter(&self, patterns: &[Pattern], name: &[u8]) -> Option<Self> {
        if patterns.is_empty() {
            return Some(self.clone());
        }
        let next = |(pattern, positions): (&Pattern, &Vec<usize>)| {
            let mut next = Vec::new();
            for &position in positions {
                match pattern.parts.get(position) {
                    Some(Part::AnyDepth) => next.push(position),
                    Some(Part::Name(part)) if matches(part, name) => next.push(position + 1),
                    _ => {}
                }
            }
            settle(pattern, next)
        };
        let all: Vec<Vec<usize>> = patterns.iter().zip(&self.0).map(next).collect();
        all.iter().any(|each| !each.is_empty()).then_some(Self(all))
    }
}

/// Adds the positions behind each `**`, which may match no directory, and drops the position behind
/// the end: a directory that a pattern names has no match in it.
fn settle(pattern: &Pattern, mut positions: Vec<usize>) -> Vec<usize> {
    let behind: Vec<usize> = positions
        .iter()
        .filter(|&&position| pattern.parts.get(position) == Some(&Part::AnyDepth))
        .map(|position| position + 1)
        .collect();
    positions.extend(behind);
    positions.retain(|position| *position < pattern.parts.len());
    positions.sort_unstable();
    positions.dedup();
    positions
}

/// Returns whether a name matches a part. The time is at most the product of the two lengths.
fn matches(part: &[u8], name: &[u8]) -> bool {
    let (mut at_part, mut at_name) = (0, 0);
    // The last star, and the length of its match so far.
    let mut star: Option<(usize, usize)> = None;
    while at_name < name.len() {
        match part.get(at_part) {
            Some(b'*') => {
                star = Some((at_part, at_name));
                at_part += 1;
            }
            Some(b'?') => {
                at_part += 1;
                at_name += character_at(name, at_name);
            }
            Some(byte) if *byte == name[at_name] => {
                at_part += 1;
                at_name += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at_part, at_name) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    part[at_part..].iter().all(|byte| *byte == b'*')
}

/// The length in bytes of the character at a position; a byte that is no UTF-8 counts by itself.
fn character_at(name: &[u8], at: usize) -> usize {
    let rest = &name[at..];
    let chunk = rest.utf8_chunks().next();
    let first = chunk.and_then(|chunk| chunk.valid().chars().next());
    first.map_or(1, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks down as a collection does.
    fn check(pattern: &str, path: &str, expected: bool) {
        let patterns = [Pattern::read(pattern).unwrap()];
        let mut positions = Positions::top(&patterns);
        let mut parts: Vec<&str> = path.split('/').collect();
        let name = parts.pop().unwrap();
        for directory in parts {
            match positions.enter(&patterns, directory.as_bytes()) {
                Some(below) => positions = below,
                None => return assert!(!expected, "{pattern} {path}"),
            }
        }
        let wanted = positions.wants(&patterns, name.as_bytes());
        assert_eq!(wanted, expected, "{pattern} {path}");
    }

    #[test]
    fn patterns_match_as_they_say() {
        for (pattern, yes, no) in [
            (
                "out.csv",
                &["out.csv"][..],
                &["out.csv2", "a/out.csv", "out"][..],
            ),
            ("*.csv", &["a.csv", ".csv"], &["a.cs", "d/a.csv"]),
            ("a/*/c", &["a/b/c"], &["a/c", "a/b/b/c"]),
            ("**/c", &["c", "a/c", "a/b/c"], &["a/b", "cc"]),
            ("a/**", &["a/b", "a/b/c"], &["a", "b/a"]),
            ("**", &["a", "a/b/c"], &[]),
            ("**/**/x*y", &["xy", "a/xzy"], &["x"]),
            (
                "a/**/b/**/c",
                &["a/b/c", "a/x/b/y/z/c", "a/b/b/c"],
                &["a/c", "b/c"],
            ),
            ("?.txt", &["a.txt", "é.txt"], &[".txt", "ab.txt"]),
            ("*a*b*", &["ab", "xaybz", "aab"], &["ba", "b"]),
        ] {
            yes.iter().for_each(|path| check(pattern, path, true));
            no.iter().for_each(|path| check(pattern, path, false));
        }
    }

    #[test]
    fn a_directory_without_a_possible_match_is_not_entered() {
        let patterns = ["out/*.csv", "log.txt"].map(|text| Pattern::read(text).unwrap());
        let top = Positions::top(&patterns);
        assert!(top.enter(&patterns, b"node_modules").is_none());
        let out = top.enter(&patterns, b"out").unwrap();
        assert!(out.enter(&patterns, b"deeper").is_none());
        assert!(out.wants(&patterns, b"a.csv") && !out.wants(&patterns, b"log.txt"));
    }

    #[test]
    fn what_leads_elsewhere_is_no_pattern() {
        for text in [
            "",
            "/etc/passwd",
            "../x",
            "a//b",
            "a/",
            "./a",
            "a\0",
            &"x".repeat(257),
        ] {
            assert!(Pattern::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_long_time() {
        let pattern = [Pattern::read(&"*a".repeat(128)).unwrap()];
        assert!(!Positions::top(&pattern).wants(&pattern, &[b'a'; 100]));
        let deep = [Pattern::read(&format!("{}x", "**/a/".repeat(40))).unwrap()];
        let mut positions = Positions::top(&deep);
        for _ in 0..1000 {
            positions = positions.enter(&deep, b"a").unwrap();
        }
        assert!(positions.wants(&deep, b"x"));
    }
}
