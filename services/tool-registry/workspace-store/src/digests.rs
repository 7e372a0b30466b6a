//! The digests of files, computed once for each version.

use std::{
    collections::HashMap,
    io::{self, Read},
};

use cap_std::fs::{Dir, Metadata, MetadataExt};
use core_types::ContentDigest;
use sha2::{Digest as _, Sha256};

use crate::{media_type, media_type::HEAD};

/// A file of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The path.
    pub path: String,
    /// The size, in bytes.
    pub bytes: u64,
    /// The digest of the content.
    pub digest: ContentDigest,
    /// The media type, by the name and the first bytes.
    pub media_type: String,
    /// The time of the last change, in nanoseconds since the Unix epoch.
    pub modified: i64,
}

/// The digest and the media type of some content under a name.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) digest: ContentDigest,
    pub(crate) media_type: String,
}

/// The facts about the files of one workspace, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    known: HashMap<String, (Version, Facts)>,
    /// The version of the files at the server that the directory is a copy of; `None` where it has to be compared. A
    /// change takes it, so that a change that fails midway leaves none.
    pub(crate) version: Option<i64>,
}

/// A version of a file: a file is replaced and never written to, so each has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Digests {
    /// Describes a file, which is read if it is not known.
    pub(crate) fn describe(
        &mut self,
        dir: &Dir,
        path: &str,
        metadata: &Metadata,
    ) -> io::Result<File> {
        let version = Version::of(metadata);
        let facts = match self.known.get(path) {
            Some((known, facts)) if *known == version => facts.clone(),
            _ => read(dir.open(path)?, path)?,
        };
        Ok(self.know(path, metadata, facts))
    }

    /// Takes the facts about a file, and describes it.
    pub(crate) fn know(&mut self, path: &str, metadata: &Metadata, facts: Facts) -> File {
        let file = File {
            path: path.to_owned(),
            bytes: metadata.len(),
            digest: facts.digest,
            media_type: facts.media_type.clone(),
            modified: metadata
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(metadata.mtime_nsec()),
        };
        let version = Version::of(metadata);
        self.known.insert(path.to_owned(), (version, facts));
        file
    }

    /// Forgets the files that are not in a list.
    pub(crate) fn keep(&mut self, files: &[File]) {
        if self.known.len() > files.len() {
            let paths: std::collections::HashSet<&str> =
                files.iter().map(|file| file.path.as_str()).collect();
            self.known.retain(|path, _| paths.contains(path.as_str()));
        }
    }
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn read(mut file: cap_std::fs::File, path: &str) -> io::Result<Facts> {
    let mut hasher = Sha256::new();
    let mut head = Vec::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hasher.update(&piece[..read]);
        let more = HEAD.saturating_sub(head.len()).min(read);
        head.extend_from_slice(&piece[..more]);
    }
    Ok(Facts {
        digest: ContentDigest::finished(hasher),
        media_type: media_type(path, &head),
    })
}
