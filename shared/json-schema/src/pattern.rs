//! The demands of a pattern on the engine, read from its text before it is compiled.

use crate::compile_error::CompileCode;
use crate::limits::Limits;

/// Returns the code and the reason of a refusal; `None` accepts the pattern.
pub(crate) fn refuse(pattern: &str, limits: &Limits) -> Option<(CompileCode, String)> {
    if pattern.len() > limits.pattern_bytes {
        let message = format!(
            "the pattern has {} bytes, more than {}; shorten it",
            pattern.len(),
            limits.pattern_bytes
        );
        return Some((CompileCode::PatternTooLong, message));
    }
    let found = scan(pattern);
    if let Some(construct) = found.backtracking {
        let message = format!(
            "the pattern uses {construct}, which cannot run in linear time; \
             write it without, for example as several patterns under `allOf` and `not`"
        );
        return Some((CompileCode::LookAround, message));
    }
    if found.repetitions > limits.pattern_repetitions {
        let message = format!(
            "counted repetitions multiply to {}, more than {}; use `*` or `+`, and `maxLength` for the length",
            found.repetitions, limits.pattern_repetitions
        );
        return Some((CompileCode::PatternTooComplex, message));
    }
    None
}

struct Found {
    backtracking: Option<&'static str>,
    /// The largest product of nested counts.
    repetitions: u64,
}

/// One open group: the largest product of counts inside it so far.
struct Scan<'a> {
    rest: &'a [u8],
    at: usize,
    groups: Vec<u64>,
    /// The product inside the element that was just closed, to which a count would apply.
    last: u64,
    backtracking: Option<&'static str>,
}

fn scan(pattern: &str) -> Found {
    let mut scan = Scan {
        rest: pattern.as_bytes(),
        at: 0,
        groups: vec![1],
        last: 1,
        backtracking: None,
    };
    while scan.at < scan.rest.len() {
        scan.step();
    }
    let repetitions = scan.groups.iter().copied().fold(1, u64::max);
    Found {
        backtracking: scan.backtracking,
        repetitions,
    }
}

impl Scan<'_> {
    fn step(&mut self) {
        match self.rest[self.at] {
            b'\\' => {
                let next = self.rest.get(self.at + 1).copied();
                if matches!(next, Some(b'1'..=b'9'))
                    || (next == Some(b'k') && self.rest.get(self.at + 2) == Some(&b'<'))
                {
                    self.backtracking = Some("a back-reference");
                }
                self.at += 2;
                self.last = 1;
            }
            b'[' => self.skip_class(),
            b'(' => {
                let group = &self.rest[self.at..];
                if group.starts_with(b"(?=") || group.starts_with(b"(?!") {
                    self.backtracking = Some("look-ahead");
                } else if group.starts_with(b"(?<=") || group.starts_with(b"(?<!") {
                    self.backtracking = Some("look-behind");
                } else if group.starts_with(b"(?>") {
                    self.backtracking = Some("an atomic group");
                }
                self.groups.push(1);
                self.at += 1;
            }
            b')' => {
                self.last = if self.groups.len() > 1 {
                    self.groups.pop().unwrap_or(1)
                } else {
                    1
                };
                self.note(self.last);
                self.at += 1;
            }
            b'{' => self.count(),
            _ => {
                self.last = 1;
                self.at += 1;
            }
        }
    }

    /// Notes a product in the innermost open group.
    fn note(&mut self, product: u64) {
        if let Some(group) = self.groups.last_mut() {
            *group = product.max(*group);
        }
    }

    /// Passes over a class; a leading `]` is one of its characters.
    fn skip_class(&mut self) {
        self.at += 1;
        for first in [b'^', b']'] {
            self.at += usize::from(self.rest.get(self.at) == Some(&first));
        }
        while let Some(byte) = self.rest.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b']' => break,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.last = 1;
    }

    /// Reads `{n}`, `{n,}` or `{n,m}`; anything else is text.
    fn count(&mut self) {
        let body: Vec<u8> = self.rest[self.at + 1..]
            .iter()
            .copied()
            .take_while(|byte| *byte != b'}')
            .collect();
        let text = String::from_utf8_lossy(&body).into_owned();
        let numbers: Vec<&str> = text.split(',').collect();
        let largest = numbers
            .iter()
            .filter(|number| !number.is_empty())
            .map(|number| {
                if number.bytes().all(|b| b.is_ascii_digit()) {
                    Some(number.parse::<u64>().unwrap_or(u64::MAX))
                } else {
                    None
                }
            })
            .collect::<Option<Vec<u64>>>()
            .and_then(|counts| counts.into_iter().max());
        if let Some(largest) = largest {
            self.last = self.last.saturating_mul(largest.max(1));
            self.note(self.last);
            self.at += body.len() + 2;
        } else {
            self.last = 1;
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expected: Option<CompileCode>) {
        assert_eq!(
            refuse(pattern, &Limits::default()).map(|(code, _)| code),
            expected,
            "{pattern}"
        );
    }

    #[test]
    fn linear_patterns_pass() {
        for pattern in [
            "^[a-z]+$",
            "(?:a|b){3}",
            "(?<name>x)",
            "[(?=]",
            r"\(\?=",
            "{",
            "a{x}",
            "^(a+)+$",
            "",
            r"[\]{9999}]",
            "[](?=]",
            "[^](?!x)]+",
            "[]{9999}]",
            "[]a(]{2}",
            ")(",
        ] {
            check(pattern, None);
        }
    }

    #[test]
    fn look_around_and_back_references_are_refused() {
        for pattern in [
            "(?=a)",
            "^(?!x)",
            "(?<=a)b",
            "(?<!a)b",
            r"(a)\1",
            r"(?<n>a)\k<n>",
            "(?>a)",
            "[]a](?=b)",
            "[^]](?=b)",
        ] {
            check(pattern, Some(CompileCode::LookAround));
        }
    }

    #[test]
    fn multiplied_counts_are_refused() {
        check("(a{10}){20}", None);
        check("(a{100}){20}", Some(CompileCode::PatternTooComplex));
        check("((a{11}){11}){11}", Some(CompileCode::PatternTooComplex));
        check("a{1001}", Some(CompileCode::PatternTooComplex));
        check(
            "a{99999999999999999999999}",
            Some(CompileCode::PatternTooComplex),
        );
        check("a{500}b{500}", None);
        check("([]]{100}){20}", Some(CompileCode::PatternTooComplex));
        check("([^](]{100}){20}", Some(CompileCode::PatternTooComplex));
        check("(a{1,2000}|b)", Some(CompileCode::PatternTooComplex));
        check(&"a".repeat(1_025), Some(CompileCode::PatternTooLong));
    }
}
