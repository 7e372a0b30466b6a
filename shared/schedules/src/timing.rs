//! The times of a schedule.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, SecondsFormat, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use core_types::Timestamp;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

/// The longest gap of a clock: a day, when a zone changed sides of the date line.
const LONGEST_GAP_MINUTES: u32 = 24 * 60;

/// The rule by which a schedule runs.
#[derive(Clone, Debug)]
pub enum Timing {
    /// At the multiples of a duration since the Unix epoch.
    Interval(Duration),
    /// By the wall clock of a time zone.
    Cron(Box<WallClock>),
}

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct WallClock {
    cron: Cron,
    zone: Tz,
    /// Whether the expression names times of day, which must occur once a day, rather than steps.
    fixed: bool,
}

/// The reason for which a timing cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TimingError {
    /// The interval is shorter than a second.
    #[error("the interval is shorter than a second")]
    TooShort,
    /// The cron expression cannot be read.
    #[error("the cron expression cannot be read: {0}")]
    Expression(#[source] croner::errors::CronError),
    /// The cron expression has no time, such as 30 February.
    #[error("the cron expression has no time: no month that it names has a day that it names")]
    Never,
    /// The time zone is unknown.
    #[error("no time zone has the name '{0}'; give one of the IANA list, such as Europe/Berlin")]
    TimeZone(String),
}

impl Timing {
    /// Makes a timing at the multiples of `every` since the Unix epoch.
    ///
    /// # Errors
    /// [`TimingError::TooShort`] below a second.
    pub fn interval(every: Duration) -> Result<Self, TimingError> {
        match every < Duration::from_secs(1) {
            true => Err(TimingError::TooShort),
            false => Ok(Self::Interval(every)),
        }
    }

    /// Makes a timing by a cron expression of five fields in the wall clock of `zone`; empty is
    /// UTC.
    ///
    /// # Errors
    /// A [`TimingError`] for each mistake: one of the expression, which may be valid and have no
    /// time, one of the zone.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, Vec<TimingError>> {
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(expression).map_err(TimingError::Expression);
        let cron = cron.and_then(|cron| match comes(&cron) {
            true => Ok(cron),
            false => Err(TimingError::Never),
        });
        let zone = match zone {
            "" => Ok(Tz::UTC),
            name => name
                .parse()
                .map_err(|_| TimingError::TimeZone(name.to_owned())),
        };
        match (cron, zone) {
            (Ok(cron), Ok(zone)) => Ok(Self::Cron(Box::new(WallClock {
                cron,
                zone,
                fixed: is_fixed(expression),
            }))),
            (cron, zone) => Err(cron.err().into_iter().chain(zone.err()).collect()),
        }
    }

    /// Returns the first time after `after`; `None` if none follows.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Interval(every) => {
                let every = i64::try_from(every.as_nanos()).ok()?;
                let multiple = (after.unix_nanos() / every).checked_add(1)?;
                Some(Timestamp::from_unix_nanos(multiple.checked_mul(every)?))
            }
            Self::Cron(clock) => {
                let after = DateTime::<Utc>::from_timestamp_nanos(after.unix_nanos());
                let after = after.with_timezone(&clock.zone);
                let next = match clock.fixed {
                    true => clock.next_fixed(&after)?,
                    false => clock.cron.find_next_occurrence(&after, false).ok()?,
                };
                next.timestamp_nanos_opt().map(Timestamp::from_unix_nanos)
            }
        }
    }
}

impl WallClock {
    /// Reads the expression as if the clock were never changed, and finds each time on the clock:
    /// the first of two, and the end of the gap for a time that does not exist.
    fn next_fixed(&self, after: &DateTime<Tz>) -> Option<DateTime<Tz>> {
        let mut reading = after.naive_local().and_utc();
        loop {
            reading = self.cron.find_next_occurrence(&reading, false).ok()?;
            let next = self.instant(reading.naive_utc())?;
            if next > *after {
                return Some(next);
            }
        }
    }

    fn instant(&self, mut reading: NaiveDateTime) -> Option<DateTime<Tz>> {
        for _ in 0..=LONGEST_GAP_MINUTES {
            if let Some(instant) = self.zone.from_local_datetime(&reading).earliest() {
                return Some(instant);
            }
            reading = reading
                .with_second(0)?
                .checked_add_signed(TimeDelta::minutes(1))?;
        }
        None
    }
}

/// Whether an expression has any time: the calendar repeats itself, so an expression without a time
/// after one point has none at all.
fn comes(cron: &Cron) -> bool {
    cron.find_next_occurrence(&DateTime::UNIX_EPOCH, false)
        .is_ok()
}

fn is_fixed(expression: &str) -> bool {
    let mut fields = expression.split_whitespace();
    let time_of_day = [fields.next(), fields.next()];
    !expression.trim().eq_ignore_ascii_case("@hourly")
        && !time_of_day
            .iter()
            .flatten()
            .any(|field| field.starts_with('*'))
}

/// Writes a time in UTC, such as `2026-03-29T01:00:00Z`.
pub fn utc(time: Timestamp) -> String {
    DateTime::<Utc>::from_timestamp_nanos(time.unix_nanos())
        .to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests;
