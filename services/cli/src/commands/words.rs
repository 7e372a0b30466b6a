//! Values of enums of the contract, as words of the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::timeline;

/// The most values of an enum.
const MOST_VALUES: i32 = 64;

/// Reads a value by its word: the end of its name in lower case, so `running` is
/// `RUN_STATE_RUNNING`. A hyphen may stand for each underscore. `name` returns the name of a value.
pub(super) fn parser<E>(name: fn(&E) -> &'static str) -> impl TypedValueParser<Value = E>
where
    E: TryFrom<i32> + Default + Clone + Send + Sync + 'static,
{
    let unspecified = name(&E::default());
    let prefix = unspecified.trim_end_matches("UNSPECIFIED");
    let values = (1..MOST_VALUES).filter_map(|number| E::try_from(number).ok());
    let values: Vec<(String, E)> = values
        .map(|value| (timeline::name(name(&value), prefix), value))
        .collect();
    let words = values.iter().map(|(word, _)| {
        let word = PossibleValue::new(word.clone());
        let hyphenated = word.get_name().replace('_', "-");
        word.alias(hyphenated)
    });
    PossibleValuesParser::new(words.collect::<Vec<_>>()).try_map(move |written| {
        let written = written.replace('-', "_");
        let value = values.iter().find(|(word, _)| *word == written);
        value.map(|(_, value)| value.clone()).ok_or("unknown")
    })
}
