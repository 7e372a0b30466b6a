//! Measured values and their statistics.

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds that something took.
    Seconds,
    /// Repetitions per second.
    PerSecond,
    /// Millions of bytes in a second.
    MegabytesPerSecond,
    /// Memory, in units of 2^20 bytes.
    Mebibytes,
    /// Memory, in units of 2^10 bytes.
    Kibibytes,
}

impl Unit {
    fn more_is_better(self) -> bool {
        matches!(self, Unit::PerSecond | Unit::MegabytesPerSecond)
    }

    /// Returns whether `value` is at least as good as `limit`.
    pub(crate) fn reaches(self, value: f64, limit: f64) -> bool {
        if self.more_is_better() {
            value >= limit
        } else {
            value <= limit
        }
    }

    /// Writes a limit as people do: `≤ 300 µs`, `≥ 20 K/s`.
    pub(crate) fn print_limit(self, limit: f64) -> String {
        let sign = if self.more_is_better() { '≥' } else { '≤' };
        format!("{sign} {}", self.print(limit))
    }

    /// Writes a value with three digits that count.
    pub(crate) fn print(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        let (scaled, unit) = match self {
            Unit::Seconds if value >= 1.0 => (value, "s"),
            Unit::Seconds if value >= 1e-3 => (value * 1e3, "ms"),
            Unit::Seconds if value >= 1e-6 => (value * 1e6, "µs"),
            Unit::Seconds => (value * 1e9, "ns"),
            Unit::PerSecond if value >= 1e6 => (value / 1e6, "M/s"),
            Unit::PerSecond if value >= 1e3 => (value / 1e3, "K/s"),
            Unit::PerSecond => (value, "/s"),
            Unit::MegabytesPerSecond => (value, "MB/s"),
            Unit::Mebibytes => (value, "MiB"),
            Unit::Kibibytes => (value, "KiB"),
        };
        format!("{} {unit}", three_digits(scaled))
    }
}

/// Writes a number with three digits that count.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Values of one unit, from the best to the worst.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    unit: Unit,
    values: Vec<f64>,
}

impl Series {
    /// Creates a series from values in the order of their measurement.
    pub(crate) fn new(unit: Unit, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        if unit.more_is_better() {
            values.reverse();
        }
        Self { unit, values }
    }

    /// Creates a series of times in seconds.
    pub(crate) fn seconds(values: Vec<f64>) -> Self {
        Self::new(Unit::Seconds, values)
    }

    /// Returns the unit of the values.
    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the value in the middle.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    /// Returns the 99th percentile, from the better end; of few values, the worst.
    pub(crate) fn tail(&self) -> f64 {
        self.percentile(0.99)
    }

    /// Divides every value, as when one value covers many equal parts.
    pub(crate) fn divided_by(mut self, parts: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value /= parts);
        self
    }

    /// The value that at least `share` of all values are as good as; NaN if there are none.
    fn percentile(&self, share: f64) -> f64 {
        let rank = (share * self.values.len() as f64).ceil() as usize;
        let at = rank
            .saturating_sub(1)
            .min(self.values.len().saturating_sub(1));
        self.values.get(at).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_look_towards_the_worse_end() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let times = Series::seconds(values.clone());
        assert_eq!((times.median(), times.tail()), (50.0, 99.0));
        let rates = Series::new(Unit::PerSecond, values);
        assert_eq!((rates.median(), rates.tail()), (51.0, 2.0));
        let few = Series::seconds(vec![3.0, 1.0, 2.0]);
        assert_eq!((few.median(), few.tail()), (2.0, 3.0));
        assert!(Series::seconds(Vec::new()).median().is_nan());
    }

    #[test]
    fn values_are_written_with_three_digits_and_a_fitting_unit() {
        for (unit, value, written) in [
            (Unit::Seconds, 1.5, "1.50 s"),
            (Unit::Seconds, 0.012_34, "12.3 ms"),
            (Unit::Seconds, 0.000_3, "300 µs"),
            (Unit::Seconds, 45e-9, "45.0 ns"),
            (Unit::PerSecond, 20_000.0, "20.0 K/s"),
            (Unit::PerSecond, 12.0, "12.0 /s"),
            (Unit::MegabytesPerSecond, 1234.5, "1234 MB/s"),
            (Unit::Mebibytes, 9.999, "10.0 MiB"),
            (Unit::Seconds, f64::NAN, "-"),
        ] {
            assert_eq!(unit.print(value), written);
        }
    }

    #[test]
    fn a_limit_bounds_times_from_above_and_rates_from_below() {
        assert!(Unit::Seconds.reaches(0.9, 1.0) && !Unit::Seconds.reaches(1.1, 1.0));
        assert!(Unit::PerSecond.reaches(1.1, 1.0) && !Unit::PerSecond.reaches(0.9, 1.0));
        assert_eq!(Unit::PerSecond.print_limit(15e3), "≥ 15.0 K/s");
        assert_eq!(Unit::Mebibytes.print_limit(60.0), "≤ 60.0 MiB");
    }
}
