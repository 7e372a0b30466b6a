//! Durations in settings (rule W2).

use std::time::Duration;

use serde_json::Value;

/// The longest time of any setting.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Reads seconds as a number, or a whole or broken number with the unit ms, s, m, h or d.
pub fn read_duration(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => {
            let at = text.find(|character: char| character.is_ascii_alphabetic())?;
            let (number, unit) = text.split_at(at);
            let unit = match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                "d" => 86_400.0,
                _ => return None,
            };
            number.parse::<f64>().ok()? * unit
        }
        _ => return None,
    };
    let read = Duration::try_from_secs_f64(seconds).ok()?;
    (Duration::ZERO < read && read <= LONGEST).then_some(read)
}
