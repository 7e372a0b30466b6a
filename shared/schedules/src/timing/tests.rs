//! Times as people read them.

use chrono::DateTime;
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    let time = DateTime::parse_from_rfc3339(text).expect("the case has a time");
    Timestamp::from_unix_nanos(time.timestamp_nanos_opt().expect("the time is in range"))
}

/// Compares the first times after `after` with the expected ones.
fn check(expression: &str, zone: &str, after: &str, expected: &[&str]) {
    let timing = Timing::cron(expression, zone).expect("the case has a timing");
    let mut times = Vec::new();
    let mut last = at(after);
    while times.len() < expected.len() {
        last = timing.next_after(last).expect("another time follows");
        times.push(utc(last));
    }
    assert_eq!(times, expected, "{expression} in {zone} after {after}");
}

#[test]
fn cron_follows_the_wall_clock_of_its_zone() {
    check(
        "0 9 * * MON-FRI",
        "Europe/Berlin",
        "2026-03-27T12:00:00Z",
        &["2026-03-30T07:00:00Z", "2026-03-31T07:00:00Z"],
    );
    check(
        "30 0 29 2 *",
        "",
        "2026-01-01T00:00:00Z",
        &["2028-02-29T00:30:00Z", "2032-02-29T00:30:00Z"],
    );
    check(
        "0 12 13 * FRI",
        "UTC",
        "2026-11-01T00:00:00Z",
        &[
            "2026-11-06T12:00:00Z",
            "2026-11-13T12:00:00Z",
            "2026-11-20T12:00:00Z",
        ],
    );
    check(
        "@daily",
        "Asia/Kathmandu",
        "2026-01-01T00:00:00Z",
        &["2026-01-01T18:15:00Z"],
    );
}

#[test]
fn a_fixed_time_in_a_gap_comes_right_after_it_once() {
    check(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    );
    check(
        "15,45 2 * * *",
        "America/New_York",
        "2026-03-08T05:00:00Z",
        &[
            "2026-03-08T07:00:00Z",
            "2026-03-09T06:15:00Z",
            "2026-03-09T06:45:00Z",
        ],
    );
}

#[test]
fn a_fixed_time_in_a_fold_comes_once() {
    check(
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
    );
    check(
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
    );
}

#[test]
fn other_expressions_follow_the_clock_through_gap_and_fold() {
    check(
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:15:00Z",
        &[
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z",
        ],
    );
    check(
        "0 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:30:00Z",
        &[
            "2026-10-25T00:00:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T02:00:00Z",
        ],
    );
}

#[test]
fn every_mistake_of_a_timing_is_named() {
    let mistakes = Timing::cron("61 * * * *", "Europe/Atlantis").unwrap_err();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
    assert!(
        Timing::cron("* * * * * *", "").is_err(),
        "seconds are refused"
    );
    assert!(Timing::interval(Duration::from_millis(999)).is_err());
}

#[test]
fn an_expression_without_any_time_is_refused() {
    for never in [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "* * 30-31 FEB *",
        "*/5 3 31 4 *",
    ] {
        let mistakes = Timing::cron(never, "Europe/Berlin").unwrap_err();
        assert!(matches!(mistakes[..], [TimingError::Never]), "{never}");
    }
    for rare in ["0 0 29 2 *", "0 0 30 2 MON", "0 0 31 * *", "0 0 29 2 *"] {
        let timing = Timing::cron(rare, "").expect(rare);
        let after = timing.next_after(at("2096-03-01T00:00:00Z"));
        assert!(after.is_some(), "{rare}");
    }
}

proptest! {
    #[test]
    fn times_only_grow(
        minute in 0..60_u32,
        hour in 0..24_u32,
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
        seconds in 1_500_000_000_i64..2_000_000_000,
        every in 1_u64..100_000,
    ) {
        let start = Timestamp::from_unix_nanos(seconds * 1_000_000_000);
        let fixed = Timing::cron(&format!("{minute} {hour} * * *"), zone).expect("the fields are in range");
        for timing in [fixed, Timing::Interval(Duration::from_secs(every))] {
            let mut last = start;
            for _ in 0..10 {
                let next = timing.next_after(last).expect("another time follows");
                prop_assert!(next > last);
                last = next;
            }
            let ten_days = Duration::from_secs(11 * 24 * 60 * 60);
            let longest = Duration::from_secs(every * 10).max(ten_days);
            prop_assert!(last.since(start) <= longest);
        }
    }
}
