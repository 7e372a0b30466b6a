//! Settings of the operator for how long runs are kept.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_650 * 24 * 60 * 60);

/// Times for which runs are kept after their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RetentionSettings {
    /// The time for which a succeeded run is kept after its end, from `1s` to `3650d`; `0s` keeps
    /// it for ever. Default `30d`.
    #[serde(with = "settings::DurationText")]
    pub succeeded: Duration,
    /// The time for which a run that failed, was cancelled or ended in doubt is kept after its end,
    /// from `1s` to `3650d`; `0s` keeps it for ever. Default `30d`.
    #[serde(with = "settings::DurationText")]
    pub failed: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        let days = Duration::from_secs(30 * 24 * 60 * 60);
        Self {
            succeeded: days,
            failed: days,
        }
    }
}

impl RetentionSettings {
    /// Returns the time for which a succeeded run is kept; none for ever.
    pub fn succeeded(&self) -> Option<Duration> {
        Some(self.succeeded).filter(|age| !age.is_zero())
    }

    /// Returns the time for which a run that ended otherwise is kept; none for ever.
    pub fn failed(&self) -> Option<Duration> {
        Some(self.failed).filter(|age| !age.is_zero())
    }

    /// Adds the problems of these settings, with keys below `key`.
    pub fn check(&self, key: &str, problems: &mut Problems) {
        for (name, age) in [("succeeded", self.succeeded), ("failed", self.failed)] {
            check_age(&format!("{key}.{name}"), age, problems);
        }
    }
}

/// Adds a problem if an age is neither zero nor within its bounds.
pub fn check_age(key: &str, age: Duration, problems: &mut Problems) {
    if !age.is_zero() && !(SHORTEST..=LONGEST).contains(&age) {
        let remedy = "give a time from 1s to 3650d, or 0s to keep everything";
        problems.add(key, "is out of range", remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_keeps_for_ever_and_other_ages_have_bounds() {
        let kept = RetentionSettings {
            succeeded: Duration::ZERO,
            failed: SHORTEST,
        };
        assert_eq!((kept.succeeded(), kept.failed()), (None, Some(SHORTEST)));
        for (age, is_accepted) in [
            (Duration::ZERO, true),
            (Duration::from_millis(1), false),
            (SHORTEST, true),
            (RetentionSettings::default().failed, true),
            (LONGEST, true),
            (LONGEST + SHORTEST, false),
        ] {
            let mut problems = Problems::default();
            let settings = RetentionSettings {
                succeeded: age,
                failed: age,
            };
            settings.check("retention", &mut problems);
            assert_eq!(problems.is_empty(), is_accepted, "{age:?}");
        }
    }
}
