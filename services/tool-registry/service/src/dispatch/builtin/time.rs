//! `system:get_current_time`.

use call_outcome::{CallOutcome, Category, Failure};
use core_types::Timestamp;
use serde_json::{Value, json};

/// Returns the time, shifted by the `utc_offset` that the arguments give.
pub(super) fn current(now: Timestamp, arguments: &Value) -> CallOutcome {
    let written = arguments
        .get("utc_offset")
        .and_then(Value::as_str)
        .unwrap_or("+00:00");
    let Some(offset) = offset_seconds(written) else {
        let message = format!("'{written}' is not an offset from UTC; write it like +08:00");
        return CallOutcome::Failed(Failure::new(
            Category::Validation,
            "invalid_offset",
            message,
        ));
    };
    let (seconds, _) = now.seconds_and_nanos();
    let shown = if offset == 0 { "Z" } else { written };
    CallOutcome::Succeeded(json!({
        "time": format!("{}{shown}", civil(seconds + offset)),
        "unix_seconds": seconds,
    }))
}

/// Reads `+08:00`, `-05:30` or `Z`.
fn offset_seconds(written: &str) -> Option<i64> {
    if written == "Z" {
        return Some(0);
    }
    let sign = match written.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = written.get(1..)?.split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hours) || !digits(minutes) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours <= 18 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Writes seconds since 1970 as `2026-01-31T12:00:00`, by the proleptic Gregorian calendar.
pub(super) fn civil(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Counting from 1 March of the year 0 puts the leap day at the end of a year, and every 400
    // years have the same 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, arguments: Value) -> CallOutcome {
        current(
            Timestamp::from_unix_nanos(seconds * 1_000_000_000),
            &arguments,
        )
    }

    #[test]
    fn the_time_is_reported_in_utc_and_shifted() {
        for (seconds, offset, time) in [
            (0, "+00:00", "1970-01-01T00:00:00Z"),
            (951_782_400, "+00:00", "2000-02-29T00:00:00Z"),
            (1_767_225_599, "+00:00", "2025-12-31T23:59:59Z"),
            (1_767_225_599, "+08:00", "2026-01-01T07:59:59+08:00"),
            (0, "-00:30", "1969-12-31T23:30:00-00:30"),
            (4_102_444_800, "Z", "2100-01-01T00:00:00Z"),
        ] {
            let CallOutcome::Succeeded(output) = at(seconds, json!({"utc_offset": offset})) else {
                unreachable!("{offset} is an offset");
            };
            assert_eq!(output["time"], time);
            assert_eq!(output["unix_seconds"], seconds);
        }
    }

    #[test]
    fn what_is_no_offset_is_refused() {
        for offset in [
            "", "8", "+8:00", "+08", "+99:00", "+08:60", "Berlin", "+€8:00",
        ] {
            assert!(
                matches!(at(0, json!({"utc_offset": offset})), CallOutcome::Failed(_)),
                "{offset}"
            );
        }
    }
}
