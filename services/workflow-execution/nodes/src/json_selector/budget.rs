//! Keeps a path from costing more than its value is worth.
//!
//! A JSONPath of a few characters can visit every value many times: `$..*..*..*`, repeated
//! selectors, or filters that search the whole document again. The work is estimated from the text
//! of the path and the size of the value, upwards, before anything is visited.

use call_outcome::Failure;
use serde_json::Value;

/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 2_048;

/// The deepest nesting of brackets and parentheses in a path, for the parser's stack.
const MAX_NESTING: usize = 16;

/// The most visits that a query may cost, by the estimate: well under a second.
const MAX_VISITS: u64 = 20_000_000;

/// The traits of a path that make it costly.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traits {
    /// The number of descents to all depths, filters included.
    descents: u32,
    /// The factor by which repeated selectors multiply.
    fan_out: u64,
    /// The number of filters.
    filters: u32,
    /// Whether a filter visits more than one value per test.
    searching_filter: bool,
    /// Whether a filter matches patterns.
    patterns: bool,
    /// The nesting of its brackets and parentheses.
    nesting: usize,
}

/// Checks the text of a path alone.
pub(super) fn check_path(text: &str) -> Result<(), Failure> {
    if text.len() > MAX_PATH_BYTES {
        let message = format!(
            "the path has {} bytes; at most {MAX_PATH_BYTES} are accepted",
            text.len()
        );
        return Err(Failure::limit("path_too_long", message));
    }
    if traits(text).nesting > MAX_NESTING {
        let message = format!("the path is nested deeper than {MAX_NESTING} levels");
        return Err(Failure::limit("path_too_deep", message));
    }
    Ok(())
}

/// Checks a path together with the value that it is to be applied to.
pub(super) fn check(text: &str, value: &Value) -> Result<(), Failure> {
    let (nodes, depth) = measure(value);
    let traits = traits(text);
    let mut visits = nodes.saturating_mul(traits.fan_out);
    for _ in 1..traits.descents {
        visits = visits.saturating_mul(depth + 1);
    }
    if traits.searching_filter {
        visits = visits.saturating_mul(nodes.saturating_pow(traits.filters.max(1)));
    }
    if traits.patterns {
        visits = visits.saturating_mul(200);
    }
    if visits > MAX_VISITS {
        let message =
            format!("`{text}` would visit the {nodes} values too often; use a more exact path");
        return Err(Failure::limit("path_too_costly", message));
    }
    Ok(())
}

/// Counts the values in a value, and their depth.
fn measure(value: &Value) -> (u64, u64) {
    let below = |children: &mut dyn Iterator<Item = &Value>| {
        children.fold((1, 1), |(nodes, depth): (u64, u64), child| {
            let (more, deeper) = measure(child);
            (nodes + more, depth.max(deeper + 1))
        })
    };
    match value {
        Value::Array(items) => below(&mut items.iter()),
        Value::Object(map) => below(&mut map.values()),
        _ => (1, 1),
    }
}

fn traits(text: &str) -> Traits {
    let mut traits = Traits {
        fan_out: 1,
        ..Traits::default()
    };
    let bytes = text.as_bytes();
    // The commas of each open bracket, and whether a filter is open at all.
    let mut commas: Vec<u64> = Vec::new();
    let mut quote = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        match (quote, byte) {
            (Some(_), b'\\') => at += 1,
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'[' | b'(') => {
                commas.push(0);
                traits.nesting = traits.nesting.max(commas.len());
            }
            (None, b']' | b')') => {
                traits.fan_out = traits.fan_out.saturating_mul(commas.pop().unwrap_or(0) + 1)
            }
            (None, b',') => {
                if let Some(last) = commas.last_mut() {
                    *last += 1;
                }
            }
            (None, b'.') if next == Some(&b'.') => {
                traits.descents += 1;
                traits.searching_filter |= traits.filters > 0;
                at += 1;
            }
            (None, b'?') => traits.filters += 1,
            (None, b'*' | b':' | b'$') if traits.filters > 0 => traits.searching_filter = true,
            _ => {}
        }
        at += 1;
    }
    traits.patterns = text.contains("match") || text.contains("search");
    traits
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_makes_a_path_costly_is_seen() {
        for (text, descents, fan_out, filters, searching) in [
            ("$.a.b", 0, 1, 0, false),
            ("$..a", 1, 1, 0, false),
            ("$..*..*", 2, 1, 0, false),
            ("$[0,1][0,1,2]", 0, 6, 0, false),
            ("$['..,?']", 0, 1, 0, false),
            ("$[?@.a > 1]", 0, 1, 1, false),
            ("$[?@..a]", 1, 1, 1, true),
            ("$[?@.a == $.b]", 0, 1, 1, true),
        ] {
            let found = traits(text);
            let expected = (descents, fan_out, filters, searching);
            assert_eq!(
                (
                    found.descents,
                    found.fan_out,
                    found.filters,
                    found.searching_filter
                ),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn a_costly_path_is_refused_only_where_the_value_is_large() {
        let small = json!([1, 2, 3]);
        let large = json!((0..5_000).map(|n| json!({"a": n})).collect::<Vec<_>>());
        for path in ["$..*..*", "$[?@.a == $[0].a]", "$[0,0,0,0][0,0,0,0]"] {
            assert!(check(path, &small).is_ok(), "{path}");
        }
        assert!(check("$[?@.a == $[0].a]", &large).is_err());
        assert!(check("$[?@.a == 7]", &large).is_ok());
        assert!(check_path(&format!("$[?{}1{}]", "(".repeat(40), ")".repeat(40))).is_err());
        assert!(check_path(&"$".repeat(5_000)).is_err());
    }
}
