//! The policy for reading a text, from the wire.

use call_catalogue::{Dialect, TrainedFormat};
use call_text::{FencePolicy, MultiBlock, NameMatch, Policy, Repair};
use contracts::tavern::gateway::v1 as wire;

use super::problems::Problems;

/// Reads the switches of a request. The rules of the contract refuse unknown numbers before.
pub(super) fn read_policy(
    given: Option<wire::ParsePolicy>,
    dialect: Option<Dialect>,
    problems: &mut Problems,
) -> Policy {
    let given = given.unwrap_or_default();
    let mut policy = Policy {
        dialect,
        ..Policy::default()
    };
    policy.multi_block = match given.multi_block() {
        wire::MultiBlock::First => MultiBlock::First,
        wire::MultiBlock::All => MultiBlock::All,
        wire::MultiBlock::Adjacent | wire::MultiBlock::Unspecified => policy.multi_block,
    };
    policy.fence = match given.fence() {
        wire::FencePolicy::Never => FencePolicy::Never,
        wire::FencePolicy::Always => FencePolicy::Always,
        wire::FencePolicy::Lone | wire::FencePolicy::Unspecified => policy.fence,
    };
    let names = match given.name_match() {
        wire::NameMatch::Exact => Some(NameMatch::Exact),
        wire::NameMatch::Normalized => Some(NameMatch::Normalized),
        wire::NameMatch::Unspecified => None,
    };
    policy.action_names = names.unwrap_or(policy.action_names);
    policy.tam_names = names.unwrap_or(policy.tam_names);
    policy.strict = given.strict;
    if given.never_repair {
        policy.repair = Repair::Never;
    }
    policy.bare_tools = given.bare_tools;
    policy.vcp_last_wins = given.vcp_last_wins;
    policy.formats = read_formats(&given.formats, problems);
    policy.nonce = read_nonce("policy.nonce", given.nonce, problems);
    policy
}

/// Reads the formats of trained models; all of them if none is named.
fn read_formats(words: &[String], problems: &mut Problems) -> Option<Vec<TrainedFormat>> {
    const NONE: &str = "none";
    let named = words.iter().filter(|word| words.len() > 1 || *word != NONE);
    let formats = named.filter_map(|word| {
        let format = TrainedFormat::from_word(word);
        if format.is_none() {
            let known: Vec<&str> = TrainedFormat::ALL
                .iter()
                .map(|format| format.as_str())
                .collect();
            let known = known.join(", ");
            problems.add(
                "policy.formats",
                format!("'{word}' is none of {known}, or {NONE} alone"),
            );
        }
        format
    });
    let formats = formats.collect();
    (!words.is_empty()).then_some(formats)
}

/// Reads a nonce; none if it is empty.
pub(super) fn read_nonce(field: &str, nonce: String, problems: &mut Problems) -> Option<String> {
    if !nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        problems.add(field, "may hold ASCII letters and digits only");
    }
    Some(nonce).filter(|nonce| !nonce.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_says_nothing_is_the_default() {
        for given in [None, Some(wire::ParsePolicy::default())] {
            let read = read_policy(given, None, &mut Problems::new());
            assert_eq!(read, Policy::default());
        }
    }

    #[test]
    fn formats_are_named_by_words() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let mut problems = Problems::new();
            let formats = read_formats(&words, &mut problems);
            (formats, problems.is_empty())
        };
        assert_eq!(read(&[]), (None, true));
        assert_eq!(read(&["none"]), (Some(Vec::new()), true));
        assert_eq!(read(&["json"]), (Some(vec![TrainedFormat::Json]), true));
        for wrong in [&["none", "json"][..], &["JSON"], &[""]] {
            assert!(!read(wrong).1, "{wrong:?}");
        }
    }

    #[test]
    fn every_switch_reaches_the_parser() {
        let given = wire::ParsePolicy {
            formats: vec!["kimi".to_owned(), "glm".to_owned()],
            multi_block: wire::MultiBlock::First.into(),
            fence: wire::FencePolicy::Never.into(),
            name_match: wire::NameMatch::Normalized.into(),
            strict: true,
            never_repair: true,
            bare_tools: true,
            vcp_last_wins: true,
            nonce: "k7m2q9xd".to_owned(),
        };
        let policy = read_policy(Some(given), Some(Dialect::Vcp), &mut Problems::new());
        assert_eq!(policy.dialect, Some(Dialect::Vcp));
        let formats = vec![TrainedFormat::Kimi, TrainedFormat::Glm];
        assert_eq!(policy.formats, Some(formats));
        assert_eq!(policy.multi_block, MultiBlock::First);
        assert_eq!(policy.fence, FencePolicy::Never);
        assert_eq!(policy.action_names, NameMatch::Normalized);
        assert_eq!(policy.nonce.as_deref(), Some("k7m2q9xd"));
        assert!(policy.strict && policy.bare_tools && policy.vcp_last_wins);
        assert_eq!(policy.repair, Repair::Never);
    }
}
