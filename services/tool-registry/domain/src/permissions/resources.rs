//! Limits beyond the defaults of scripts.

use std::ops::RangeInclusive;

/// The limits that a plugin asks for its scripts. At least one is stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceRequest {
    /// The longest time of a script, in seconds, 1 to 1,800.
    pub wall_seconds: Option<u64>,
    /// The most time of the processor, in seconds, 1 to 1,800.
    pub cpu_seconds: Option<u64>,
    /// The most memory, in bytes, 1 MiB to 64 GiB.
    pub memory_bytes: Option<u64>,
    /// The most processes at once, 1 to 4,096.
    pub processes: Option<u64>,
}

/// The names of the limits in their order, each with its range.
pub(super) const LIMITS: [(&str, RangeInclusive<i64>); 4] = [
    ("wall_seconds", 1..=1_800),
    ("cpu_seconds", 1..=1_800),
    ("memory_bytes", 1 << 20..=64 << 30),
    ("processes", 1..=4_096),
];

impl ResourceRequest {
    /// Returns the limits that are stated, by name, in their order.
    pub fn stated(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = [
            self.wall_seconds,
            self.cpu_seconds,
            self.memory_bytes,
            self.processes,
        ];
        let named = LIMITS.iter().map(|(name, _)| *name).zip(values);
        named.filter_map(|(name, value)| Some((name, value?)))
    }

    /// Whether each limit here is stated in `other`, and no higher.
    pub fn is_within(&self, other: &Self) -> bool {
        self.stated().all(|(name, value)| {
            let mut others = other.stated();
            others.any(|(other, most)| other == name && value <= most)
        })
    }

    /// Sets the limit of a name; returns whether there is a limit of this name.
    pub(super) fn set(&mut self, name: &str, value: u64) -> bool {
        let field = match name {
            "wall_seconds" => &mut self.wall_seconds,
            "cpu_seconds" => &mut self.cpu_seconds,
            "memory_bytes" => &mut self.memory_bytes,
            "processes" => &mut self.processes,
            _ => return false,
        };
        *field = Some(value);
        true
    }

    /// Returns the limits in words.
    pub(super) fn words(&self) -> String {
        let each = self.stated().map(|(name, value)| match name {
            "wall_seconds" => format!("{value} s of time"),
            "cpu_seconds" => format!("{value} s of the processor"),
            "memory_bytes" => format!("{} of memory", bytes_in_words(value)),
            _ => format!("{value} processes"),
        });
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Writes a number of bytes in the largest unit that leaves no remainder.
pub(crate) fn bytes_in_words(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{} {unit}", bytes / size);
        }
    }
    format!("{bytes} bytes")
}
