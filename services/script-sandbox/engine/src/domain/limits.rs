//! The limits of a script.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{stream::Stream, violation::Violation};

/// Limits with every value stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Time from the start of the interpreter to the end.
    #[serde(with = "settings::DurationText")]
    pub wall_time: Duration,
    /// Processor time of all processes together.
    #[serde(with = "settings::DurationText")]
    pub cpu_time: Duration,
    /// Memory of all processes together.
    #[serde(with = "settings::SizeText")]
    pub memory: usize,
    /// Processes and threads at once.
    pub processes: u32,
    /// Size of one file.
    #[serde(with = "settings::SizeText")]
    pub file: usize,
    /// All scratch files together.
    #[serde(with = "settings::SizeText")]
    pub disk: usize,
    /// Number of scratch files and directories.
    pub disk_files: u32,
    /// Open files of each process.
    pub open_files: u32,
    /// Bytes that are kept of each output stream. A script that writes 64 times as many is ended.
    #[serde(with = "settings::SizeText")]
    pub output: usize,
    /// Bytes of the result channel.
    #[serde(with = "settings::SizeText")]
    pub result: usize,
}

/// The unit in which a file system allocates space, in bytes; quotas count whole blocks.
pub(crate) const BLOCK: u64 = 4096;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

impl Limits {
    /// The limits of a request that names none.
    pub const DEFAULT: Limits = Limits {
        wall_time: Duration::from_secs(30),
        cpu_time: Duration::from_secs(20),
        memory: 512 * MIB,
        processes: 64,
        file: 64 * MIB,
        disk: 64 * MIB,
        disk_files: 10_000,
        // Node.js opens all modules of a package at once.
        open_files: 1024,
        output: MIB,
        result: 256 * KIB,
    };

    /// The greatest limits that a request can choose.
    pub const MAXIMUM: Limits = Limits {
        wall_time: Duration::from_secs(600),
        cpu_time: Duration::from_secs(600),
        memory: 2 * GIB,
        processes: 512,
        file: GIB,
        disk: GIB,
        disk_files: 200_000,
        open_files: 4096,
        output: MIB,
        result: MIB,
    };

    /// The greatest limits that any operator can allow: the service itself does not support more.
    /// Two streams and a result must fit into one message of 4 MiB.
    pub const CEILING: Limits = Limits {
        wall_time: Duration::from_secs(24 * 3600),
        cpu_time: Duration::from_secs(24 * 3600),
        memory: 1024 * GIB,
        processes: 32_768,
        file: 1024 * GIB,
        disk: 1024 * GIB,
        disk_files: 10_000_000,
        open_files: 65_536,
        output: MIB,
        result: MIB,
    };

    /// Returns the number of bytes of a stream that are kept. Further bytes are counted; only the
    /// last are held.
    pub fn kept(&self, stream: Stream) -> usize {
        match stream {
            Stream::Stdout | Stream::Stderr => self.output,
            Stream::Result => self.result,
        }
    }

    /// Returns the number of bytes of a stream above which a script is ended: of a result, which is
    /// useless if it is cut, its limit; of output, 64 times the kept bytes.
    pub fn flood(&self, stream: Stream) -> u64 {
        const FLOOD: u64 = 64;
        match stream {
            Stream::Stdout | Stream::Stderr => (self.output as u64).saturating_mul(FLOOD),
            Stream::Result => self.result as u64,
        }
    }

    /// Returns every value that is zero, below the need of an interpreter, or above `maximum`.
    pub fn problems(&self, maximum: &Limits) -> Vec<Violation> {
        let asked = RequestedLimits {
            wall_time: Some(Span::from(self.wall_time)),
            cpu_time: Some(Span::from(self.cpu_time)),
            memory: Some(self.memory as u64),
            processes: Some(self.processes),
            file: Some(self.file as u64),
            disk: Some(self.disk as u64),
            disk_files: Some(self.disk_files),
            open_files: Some(self.open_files),
            output: Some(self.output as u64),
            result: Some(self.result as u64),
        };
        asked.resolve(self, maximum).err().unwrap_or_default()
    }
}

/// A duration as it arrives over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whole seconds, possibly negative.
    pub seconds: i64,
    /// Nanoseconds, possibly out of range.
    pub nanos: i32,
}

impl Span {
    /// The duration; `None` if it is negative or malformed.
    pub fn duration(self) -> Option<Duration> {
        let seconds = u64::try_from(self.seconds).ok()?;
        let nanos = u32::try_from(self.nanos).ok()?;
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self {
            seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
        }
    }
}

/// Limits as a request states them; a missing one takes the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedLimits {
    /// Time from the start of the interpreter to the end.
    pub wall_time: Option<Span>,
    /// Processor time.
    pub cpu_time: Option<Span>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Bytes of one file.
    pub file: Option<u64>,
    /// Bytes of all scratch files.
    pub disk: Option<u64>,
    /// Number of scratch files.
    pub disk_files: Option<u32>,
    /// Open files of each process.
    pub open_files: Option<u32>,
    /// Bytes of each output stream.
    pub output: Option<u64>,
    /// Bytes of the result channel.
    pub result: Option<u64>,
}

/// The least values that an interpreter needs; below them the verdict would only blame the limit.
const LEAST_TIME: Duration = Duration::from_millis(1);
const LEAST_MEMORY: u64 = 16 << 20;
const LEAST_OPEN_FILES: u64 = 16;
const LEAST_DISK: u64 = 64 << 10;
const LEAST_DISK_FILES: u64 = 16;

impl RequestedLimits {
    /// Fills in the defaults and compares every value with the maximum.
    ///
    /// # Errors
    /// Every value that is zero, negative, too small to run anything, or above the maximum.
    pub fn resolve(&self, default: &Limits, maximum: &Limits) -> Result<Limits, Vec<Violation>> {
        let mut check = Check {
            default,
            maximum,
            violations: Vec::new(),
        };
        let limits = Limits {
            wall_time: check.time("wall_time", self.wall_time, |all| all.wall_time),
            cpu_time: check.time("cpu_time", self.cpu_time, |all| all.cpu_time),
            memory: check.size("memory_bytes", self.memory, LEAST_MEMORY, |all| all.memory),
            processes: check.count("processes", self.processes, 1, |all| all.processes),
            file: check.size("file_bytes", self.file, 1, |all| all.file),
            disk: check.size("disk_bytes", self.disk, LEAST_DISK, |all| all.disk),
            disk_files: check.count("disk_files", self.disk_files, LEAST_DISK_FILES, |all| {
                all.disk_files
            }),
            open_files: check.count("open_files", self.open_files, LEAST_OPEN_FILES, |all| {
                all.open_files
            }),
            output: check.size("output_bytes", self.output, 1, |all| all.output),
            result: check.size("result_bytes", self.result, 1, |all| all.result),
        };
        if check.violations.is_empty() {
            Ok(limits)
        } else {
            Err(check.violations)
        }
    }
}

struct Check<'a> {
    default: &'a Limits,
    maximum: &'a Limits,
    violations: Vec<Violation>,
}

impl Check<'_> {
    fn time(
        &mut self,
        field: &str,
        asked: Option<Span>,
        of: impl Fn(&Limits) -> Duration,
    ) -> Duration {
        let (default, maximum) = (of(self.default), of(self.maximum));
        let field = format!("limits.{field}");
        time_within(&field, asked, default, maximum, &mut self.violations)
    }

    fn size(
        &mut self,
        field: &str,
        asked: Option<u64>,
        least: u64,
        of: impl Fn(&Limits) -> usize,
    ) -> usize {
        let Some(asked) = asked else {
            return of(self.default).min(of(self.maximum));
        };
        self.within(field, asked, least, of(self.maximum) as u64, " bytes");
        usize::try_from(asked).unwrap_or(usize::MAX)
    }

    fn count(
        &mut self,
        field: &str,
        asked: Option<u32>,
        least: u64,
        of: impl Fn(&Limits) -> u32,
    ) -> u32 {
        let Some(asked) = asked else {
            return of(self.default).min(of(self.maximum));
        };
        self.within(field, asked.into(), least, of(self.maximum).into(), "");
        asked
    }

    fn within(&mut self, field: &str, value: u64, least: u64, most: u64, unit: &str) {
        if !(least..=most).contains(&value) {
            let problem = format!("must be from {least} to {most}{unit}");
            let field = format!("limits.{field}");
            self.violations.push(Violation::new(field, problem));
        }
    }
}

/// Reads a time that a request may leave out.
pub fn time_within(
    field: &str,
    asked: Option<Span>,
    default: Duration,
    most: Duration,
    problems: &mut Vec<Violation>,
) -> Duration {
    let Some(span) = asked else {
        return default.min(most);
    };
    let time = span.duration();
    let time = time.filter(|time| (LEAST_TIME..=most).contains(time));
    time.unwrap_or_else(|| {
        let print = settings::duration::print;
        let problem = format!("must be from {} to {}", print(LEAST_TIME), print(most));
        problems.push(Violation::new(field, problem));
        default
    })
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(asked: RequestedLimits) -> Vec<String> {
        let outcome = asked.resolve(&Limits::DEFAULT, &Limits::MAXIMUM);
        outcome
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|violation| violation.field)
            .collect()
    }

    #[test]
    fn what_is_not_asked_takes_the_default() {
        let limits = RequestedLimits::default()
            .resolve(&Limits::DEFAULT, &Limits::MAXIMUM)
            .unwrap();
        assert_eq!(limits, Limits::DEFAULT);
    }

    #[test]
    fn e25_zero_negative_and_huge_limits_are_refused() {
        let span = |seconds, nanos| Some(Span { seconds, nanos });
        for wrong in [
            span(0, 0),
            span(-1, 0),
            span(0, -1),
            span(i64::MAX, 0),
            span(1, i32::MAX),
            span(601, 0),
        ] {
            assert_eq!(
                refused(RequestedLimits {
                    wall_time: wrong,
                    ..RequestedLimits::default()
                }),
                ["limits.wall_time"]
            );
            assert_eq!(
                refused(RequestedLimits {
                    cpu_time: wrong,
                    ..RequestedLimits::default()
                }),
                ["limits.cpu_time"]
            );
        }
        for wrong in [Some(0), Some(1 << 63), Some(u64::MAX)] {
            let asked = RequestedLimits {
                memory: wrong,
                file: wrong,
                disk: wrong,
                output: wrong,
                result: wrong,
                ..RequestedLimits::default()
            };
            let fields = [
                "memory_bytes",
                "file_bytes",
                "disk_bytes",
                "output_bytes",
                "result_bytes",
            ];
            assert_eq!(
                refused(asked),
                fields.map(|field| format!("limits.{field}"))
            );
        }
        for wrong in [Some(0), Some(u32::MAX)] {
            let asked = RequestedLimits {
                processes: wrong,
                disk_files: wrong,
                open_files: wrong,
                ..RequestedLimits::default()
            };
            let fields = ["processes", "disk_files", "open_files"];
            assert_eq!(
                refused(asked),
                fields.map(|field| format!("limits.{field}"))
            );
        }
    }

    #[test]
    fn e25_times_that_mean_nothing_are_refused() {
        let (default, most) = (Duration::from_secs(1), Duration::from_secs(60));
        let mut problems = Vec::new();
        let mut read = |asked| time_within("t", asked, default, most, &mut problems);
        assert_eq!(read(None), default);
        let ten = Duration::from_secs(10);
        assert_eq!(read(Some(Span::from(ten))), ten);
        for (seconds, nanos) in [
            (0, 0),
            (-1, 0),
            (0, -1),
            (61, 0),
            (i64::MAX, 0),
            (1, i32::MAX),
        ] {
            read(Some(Span { seconds, nanos }));
        }
        assert!(problems.iter().all(|problem| problem.field == "t"));
        assert_eq!(problems.len(), 6);
    }

    #[test]
    fn a_default_above_a_lowered_maximum_is_cut_to_it() {
        let maximum = Limits {
            memory: 64 * MIB,
            ..Limits::MAXIMUM
        };
        let limits = RequestedLimits::default()
            .resolve(&Limits::DEFAULT, &maximum)
            .unwrap();
        assert_eq!(limits.memory, 64 * MIB);
    }

    #[test]
    fn the_built_in_values_hold_against_each_other() {
        assert!(Limits::DEFAULT.problems(&Limits::MAXIMUM).is_empty());
        assert!(Limits::MAXIMUM.problems(&Limits::CEILING).is_empty());
    }
}
