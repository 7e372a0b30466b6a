//! "Did you mean": the nearest known names to a name that is not known.

/// Names longer than this many characters are not compared: the distance is quadratic in length.
const LONGEST_COMPARED: usize = 128;

/// Suggestions in one answer.
const MOST_SUGGESTIONS: usize = 3;

/// Returns the name without case and punctuation, so that `playerId` and `player_id` are equal.
///
/// ```
/// assert_eq!(json_schema::squash("player_Id"), json_schema::squash("PlayerID"));
/// ```
pub fn squash(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns up to three known names that `given` may mean, nearest first.
///
/// A name that is equal after [`squash`] comes first, then the same name in another namespace (`LLM`
/// and `core:LLM`), then names within an edit distance of max(2, length / 3), but never so far that
/// every character would have to change. A namespace, up to the last `:`, is not counted: names of
/// one namespace have it in common, however little else. Ties keep the order of `known`.
pub fn nearest_names<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let known = known.into_iter().filter(|name| *name != given);
    let mut ranked: Vec<(usize, &str)> = known
        .filter_map(|name| Some((distance(given, name)?, name)))
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.dedup_by(|a, b| a.1 == b.1);
    ranked
        .into_iter()
        .take(MOST_SUGGESTIONS)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Whether `given` may mean a known name, as [`nearest_names`] decides.
pub fn is_near(given: &str, name: &str) -> bool {
    distance(given, name).is_some()
}

/// Returns the distance of a name, 0 being equal after squashing, or `None` when it is too far.
fn distance(given: &str, name: &str) -> Option<usize> {
    if is_overlong(given) || is_overlong(name) {
        return None;
    }
    let same = |a: &str, b: &str| {
        let squashed = squash(a);
        !squashed.is_empty() && squashed == squash(b)
    };
    if same(given, name) {
        return Some(0);
    }
    let ((given_namespace, given), (namespace, name)) = (in_namespace(given), in_namespace(name));
    if given_namespace == namespace {
        return edits(given, name);
    }
    if same(given, name) {
        return Some(1);
    }
    let within = given_namespace.is_empty() || namespace.ends_with(given_namespace);
    edits(given, name).filter(|_| within).map(|edits| edits + 1)
}

/// Whether a name is empty or too long to be compared.
fn is_overlong(name: &str) -> bool {
    name.is_empty() || name.chars().count() > LONGEST_COMPARED
}

/// The namespace of a name with its colon, empty where there is none, and the rest.
fn in_namespace(name: &str) -> (&str, &str) {
    let colon = name.rfind(':').filter(|at| at + 1 < name.len());
    name.split_at(colon.map_or(0, |at| at + 1))
}

/// Returns the edits from one name to another, letter case and punctuation aside, or `None` when
/// they are too many.
fn edits(given: &str, name: &str) -> Option<usize> {
    let (length, given_length) = (name.chars().count(), given.chars().count());
    let furthest = (given_length / 3).max(2);
    if length.abs_diff(given_length) > furthest {
        return None;
    }
    // A two-letter name is within two edits of every other: something must remain in common.
    let shorter = length.min(given_length);
    let squashed = strsim::damerau_levenshtein(&squash(given), &squash(name)).max(1);
    let edits = strsim::damerau_levenshtein(given, name).min(squashed);
    (edits <= furthest && edits < shorter).then_some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, known: &[&str], expected: &[&str]) {
        assert_eq!(
            nearest_names(given, known.iter().copied()),
            expected,
            "{given}"
        );
    }

    #[test]
    fn squashed_equality_comes_first() {
        check(
            "playerId",
            &["player", "playerI", "player_id"],
            &["player_id", "playerI", "player"],
        );
    }

    #[test]
    fn only_near_names_are_suggested() {
        check("colour", &["color", "size", "shape"], &["color"]);
        check("ab", &["xy", "cd"], &[]);
        check("id", &["ids", "x", "idx", "identity"], &["ids", "idx"]);
        check("名字", &["名子", "性别"], &["名子"]);
        check("", &["a"], &[]);
        check("count", &[], &[]);
    }

    #[test]
    fn a_namespace_is_no_likeness() {
        let tools = [
            "workflow:greet",
            "workflow:node",
            "core:LLM",
            "node:core:TextMerge",
        ];
        for (given, expected) in [
            ("workflow:nope", &["workflow:node"][..]),
            ("workflow:greets", &["workflow:greet"]),
            ("agent:greet", &["workflow:greet"]),
            ("workflow:absent", &[]),
            ("LLM", &["core:LLM"]),
            ("llm", &["core:LLM"]),
            ("core:TextMerg", &["node:core:TextMerge"]),
            ("TextMerg", &["node:core:TextMerge"]),
            ("core:X", &[]),
        ] {
            check(given, &tools, expected);
        }
    }

    #[test]
    fn at_most_three_are_suggested() {
        check(
            "name",
            &["name1", "name2", "name3", "name4"],
            &["name1", "name2", "name3"],
        );
    }

    #[test]
    fn overlong_names_are_not_compared() {
        let long = "x".repeat(10_000);
        check(&long, &["x"], &[]);
        assert!(nearest_names("x", [long.as_str()]).is_empty());
    }
}
