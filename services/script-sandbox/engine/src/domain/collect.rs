//! The files to collect of a script, and the results of collecting.

pub mod name;
pub mod pattern;

use std::time::Duration;

use crate::domain::violation::Violation;
use blob_store::{BlobDigest, BlobSettings};
use name::PathText;
use pattern::Pattern;

/// The largest file in the answer itself, in bytes.
pub const INLINE_FILE: u64 = 64 << 10;
/// The most bytes of all files in an answer: together with the output they must fit into one
/// message.
pub const INLINE_TOTAL: u64 = 512 << 10;
/// The longest path that is collected, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// The most bytes of the paths of all files in an answer, escaped.
pub const MAX_LISTING_BYTES: usize = 128 << 10;
/// The most refusals that are reported one by one.
pub const MAX_REFUSED: usize = 100;
/// The most entries that are examined.
pub const MAX_ENTRIES: usize = 20_000;

const MIB: u64 = 1 << 20;

/// The files to collect of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectSpec {
    /// The patterns of the wanted files; empty: every new or changed file.
    pub patterns: Vec<Pattern>,
    /// The caps.
    pub caps: Caps,
    /// Whether small files become blobs as well.
    pub as_blobs: bool,
}

/// The caps of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The number of files.
    pub files: u32,
    /// Bytes of one file, holes included.
    pub file_bytes: u64,
    /// Bytes of all files, holes included.
    pub total_bytes: u64,
    /// Levels of directories that are entered.
    pub depth: u32,
    /// The time of collecting.
    pub time: Duration,
}

impl Caps {
    /// The caps of a request that names none.
    pub const DEFAULT: Caps = Caps {
        files: 256,
        file_bytes: 16 * MIB,
        total_bytes: 64 * MIB,
        depth: 16,
        time: Duration::from_secs(5),
    };

    /// These caps, reduced to the budgets of blobs.
    #[must_use]
    pub fn within(self, blobs: &BlobSettings) -> Caps {
        Caps {
            file_bytes: self.file_bytes.min(blobs.largest as u64),
            total_bytes: self.total_bytes.min(blobs.per_caller as u64),
            ..self
        }
    }
}

impl CollectSpec {
    /// Reads patterns and compares caps with the budgets of blobs.
    ///
    /// # Errors
    /// Every cap above its budget, and every malformed pattern.
    pub fn new(
        patterns: &[String],
        caps: Caps,
        blobs: &BlobSettings,
        as_blobs: bool,
    ) -> Result<Self, Vec<Violation>> {
        let mut problems = Vec::new();
        let mut refuse = |field: String, problem: String| {
            let field = format!("collect.{field}");
            problems.push(Violation { field, problem });
        };
        for (field, value, most) in [
            ("max_file_bytes", caps.file_bytes, blobs.largest),
            ("max_total_bytes", caps.total_bytes, blobs.per_caller),
        ] {
            if value > most as u64 {
                refuse(field.to_owned(), format!("must be from 1 to {most}"));
            }
        }
        let mut read = Vec::new();
        for (index, text) in patterns.iter().enumerate() {
            match Pattern::read(text) {
                Ok(pattern) => read.push(pattern),
                Err(problem) => refuse(format!("patterns[{index}]"), problem.to_owned()),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            patterns: read,
            caps,
            as_blobs,
        })
    }
}

/// The results of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The files, by path.
    pub files: Vec<OutputFile>,
    /// The first refused entries: those requested by name, then the others by path.
    pub refused: Vec<RefusedFile>,
    /// The number of all refused entries.
    pub refused_count: u64,
    /// Whether some wanted files are missing.
    pub partial: bool,
}

impl Collected {
    /// The answer where no file could be examined, because processes of the script may live.
    pub fn not_ended() -> Self {
        let mut collected = Self::default();
        collected.refuse(b"", RefusedReason::NotEnded, 0);
        collected
    }

    /// Records a refused entry.
    pub fn refuse(&mut self, path: &[u8], reason: RefusedReason, size: u64) {
        /// The most bytes that are shown of a path: refusals are for reading, not for acting upon.
        const SHOWN: usize = 256;
        self.partial = true;
        self.refused_count += 1;
        if self.refused.len() < MAX_REFUSED {
            let path = PathText::of(&path[..path.len().min(SHOWN)]);
            self.refused.push(RefusedFile { path, reason, size });
        }
    }
}

/// A collected file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path.
    pub path: PathText,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its content.
    pub digest: BlobDigest,
    /// Whether its owner may execute it.
    pub executable: bool,
    /// Its content, if it is small; otherwise it is a blob of the caller.
    pub content: Option<Vec<u8>>,
}

/// A refused entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFile {
    /// Its path.
    pub path: PathText,
    /// The reason.
    pub reason: RefusedReason,
    /// Its size in bytes, as far as it has one.
    pub size: u64,
}

/// The reason for refusing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedReason {
    /// A symbolic link.
    SymbolicLink,
    /// A file with more than one name.
    HardLink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// More bytes than one file may have.
    TooLarge,
    /// Together with the other files more bytes than all may have.
    TotalTooLarge,
    /// More files than wanted, or more entries than are examined.
    TooMany,
    /// Below the last level.
    TooDeep,
    /// A path that is too long.
    Name,
    /// The deadline passed.
    Time,
    /// It could not be read.
    Unreadable,
    /// No room for another blob.
    NoRoom,
    /// Processes of the script may live.
    NotEnded,
    /// A file that was requested by its name does not exist.
    NotFound,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_are_held_against_the_budgets_of_blobs() {
        let blobs = BlobSettings::default();
        let small = BlobSettings {
            per_caller: 2000,
            largest: 1000,
            ..blobs.clone()
        };
        let caps = Caps::DEFAULT.within(&small);
        assert_eq!((caps.file_bytes, caps.total_bytes), (1000, 2000));
        assert!(CollectSpec::new(&[], caps, &blobs, false).is_ok());
        let large = Caps {
            file_bytes: 64 * MIB + 1,
            total_bytes: 256 * MIB + 1,
            ..caps
        };
        let patterns = ["ok/*", "/etc"].map(str::to_owned);
        let problems = CollectSpec::new(&patterns, large, &blobs, false).unwrap_err();
        let fields: Vec<&str> = problems.iter().map(|each| each.field.as_str()).collect();
        let expected = [
            "collect.max_file_bytes",
            "collect.max_total_bytes",
            "collect.patterns[1]",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn many_refusals_are_counted_and_the_first_are_reported() {
        let mut collected = Collected::default();
        for number in 0..1000 {
            collected.refuse(&[b'x'; 5000][number..], RefusedReason::Name, 1);
        }
        assert_eq!(
            (collected.refused.len(), collected.refused_count),
            (100, 1000)
        );
        assert_eq!(collected.refused[0].path.text.len(), 256);
        assert!(collected.partial);
    }
}
