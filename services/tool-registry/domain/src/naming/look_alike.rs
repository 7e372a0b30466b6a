//! Names that look alike: the form in which two ids are compared for conflicts (rule R108).

use unicode_normalization::UnicodeNormalization;

/// Letters of other scripts that look like a Latin letter, each with that letter.
const CONFUSABLES: [(&str, char); 22] = [
    ("аα", 'a'),
    ("вβ", 'b'),
    ("сϲ", 'c'),
    ("ԁ", 'd'),
    ("еєε", 'e'),
    ("ɡ", 'g'),
    ("нһη", 'h'),
    ("іιıї", 'i'),
    ("јϳ", 'j'),
    ("кκ", 'k'),
    ("ӏ", 'l'),
    ("м", 'm'),
    ("ոп", 'n'),
    ("оοօσ", 'o'),
    ("рρ", 'p'),
    ("ԛ", 'q'),
    ("г", 'r'),
    ("ѕ", 's'),
    ("тτ", 't'),
    ("υս", 'u'),
    ("хχ", 'x'),
    ("уγү", 'y'),
];

/// Returns a name with compatible forms made plain, in lower case, and with letters that look like
/// a Latin one replaced by it.
pub fn fold_confusables(name: &str) -> String {
    let lower = name.nfkc().flat_map(char::to_lowercase);
    lower.map(folded).collect()
}

/// Returns the form in which ids are compared: folded, without punctuation; a name of nothing else
/// keeps it.
pub fn skeleton(name: &str) -> String {
    let folded = fold_confusables(name);
    match json_schema::squash(&folded) {
        squashed if squashed.is_empty() => folded,
        squashed => squashed,
    }
}

fn folded(letter: char) -> char {
    if letter.is_ascii() {
        return letter;
    }
    CONFUSABLES
        .iter()
        .find(|(alike, _)| alike.contains(letter))
        .map_or(letter, |(_, latin)| *latin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confusables_and_punctuation_are_folded_and_other_names_stay_apart() {
        for (first, second) in [
            ("city-weather:forecast", "CityWeather_Forecast"),
            ("city-weather:forecast", "city-weather:fоrecаst"),
            ("read_file", "ｒｅａｄ＿ｆｉｌｅ"),
        ] {
            assert_eq!(skeleton(first), skeleton(second), "{second}");
        }
        for (first, second) in [
            ("a", "b"),
            ("工具", "工其"),
            ("forecast", "forecasts"),
            ("☂", "☀"),
        ] {
            assert_ne!(skeleton(first), skeleton(second), "{second}");
        }
        assert_eq!(fold_confusables("ѕуѕtem:now"), "system:now");
    }
}
