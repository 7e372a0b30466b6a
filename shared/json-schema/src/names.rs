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

/// Returns up to three of the known names that `given` may stand for, nearest first.
///
/// A name that is equal after [`squash`] comes first; then names within an edit distance of
/// max(2, length / 3), but never so far that every character would have to change. Ties keep the
/// order of `known`.
pub fn nearest_names<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let given_length = given.chars().count();
    if given_length == 0 || given_length > LONGEST_COMPARED {
        return Vec::new();
    }
    let squashed = squash(given);
    let furthest = (given_length / 3).max(2);
    let mut ranked: Vec<(usize, &str)> = known
        .into_iter()
        .filter(|name| *name != given)
        .filter_map(|name| {
            distance(given, given_length, &squashed, name, furthest).map(|rank| (rank, name))
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.dedup_by(|a, b| a.1 == b.1);
    ranked
        .into_iter()
        .take(MOST_SUGGESTIONS)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Returns how far `name` is, 0 being equal after squashing, or nothing when it is too far.
fn distance(
    given: &str,
    given_length: usize,
    squashed: &str,
    name: &str,
    furthest: usize,
) -> Option<usize> {
    let length = name.chars().count();
    if length > LONGEST_COMPARED {
        return None;
    }
    let squashed_name = squash(name);
    if !squashed.is_empty() && squashed == squashed_name {
        return Some(0);
    }
    if length.abs_diff(given_length) > furthest {
        return None;
    }
    // A two-letter name is within two edits of every other: something must remain in common.
    let shorter = length.min(given_length);
    let edits = strsim::damerau_levenshtein(given, name)
        .min(strsim::damerau_levenshtein(squashed, &squashed_name).max(1));
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
