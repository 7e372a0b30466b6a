//! Reads one file that a script has left.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Seek},
    os::fd::BorrowedFd,
    time::Instant,
};

use blob_store::{BlobDigest, BlobError, BlobStore, Caller};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use sha2::{Digest as _, Sha256};

use super::BENEATH;
use crate::domain::collect::RefusedReason;

/// The size of one read, in bytes; the deadline is checked after each.
const PIECE: usize = 256 << 10;

/// Opens an examined file, and checks that it is still the same file.
pub(crate) fn open(
    directory: BorrowedFd<'_>,
    name: &CString,
    expected: &Stat,
) -> Result<File, RefusedReason> {
    // If it became a pipe, opening it would not block; if it became a terminal, it would not be
    // ours.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let unreadable = |_| RefusedReason::Unreadable;
    let opened = rustix::fs::openat2(directory, name.as_c_str(), flags, Mode::empty(), BENEATH)
        .map_err(unreadable)?;
    let stat = rustix::fs::fstat(&opened).map_err(unreadable)?;
    let same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && (stat.st_dev, stat.st_ino) == (expected.st_dev, expected.st_ino)
        && (stat.st_size, stat.st_nlink) == (expected.st_size, expected.st_nlink);
    if same {
        Ok(File::from(opened))
    } else {
        Err(RefusedReason::Unreadable)
    }
}

/// The digest of a file that is not collected yet; the file is at its beginning afterwards.
pub(crate) fn digest(
    file: &mut File,
    size: u64,
    deadline: Instant,
) -> Result<BlobDigest, RefusedReason> {
    let mut hasher = Sha256::new();
    each_piece(file, size, deadline, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    file.rewind().map_err(|_| RefusedReason::Unreadable)?;
    Ok(BlobDigest::finished(hasher))
}

/// A checksum of a file, which is much faster than its digest.
pub(crate) fn sum(file: &mut File, size: u64, deadline: Instant) -> Result<u32, RefusedReason> {
    let mut hasher = crc32fast::Hasher::new();
    each_piece(file, size, deadline, |piece| {
        hasher.update(piece);
        Ok(())
    })?;
    file.rewind().map_err(|_| RefusedReason::Unreadable)?;
    Ok(hasher.finalize())
}

/// Both, read once.
pub(crate) fn digest_and_sum(
    file: &mut File,
    size: u64,
    deadline: Instant,
) -> Result<(BlobDigest, u32), RefusedReason> {
    let (mut digest, mut sum) = (Sha256::new(), crc32fast::Hasher::new());
    each_piece(file, size, deadline, |piece| {
        digest.update(piece);
        sum.update(piece);
        Ok(())
    })?;
    file.rewind().map_err(|_| RefusedReason::Unreadable)?;
    Ok((BlobDigest::finished(digest), sum.finalize()))
}

/// Reads a small file.
pub(crate) fn inline(file: &mut File, size: u64) -> Result<Vec<u8>, RefusedReason> {
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let read = file.take(size + 1).read_to_end(&mut content);
    if read.is_err() || content.len() as u64 != size {
        return Err(RefusedReason::Unreadable);
    }
    Ok(content)
}

/// Stores a file as a blob.
pub(crate) fn blob(
    file: &mut File,
    size: u64,
    blobs: &BlobStore,
    caller: &Caller,
    deadline: Instant,
) -> Result<BlobDigest, RefusedReason> {
    let mut incoming = blobs.take(caller).map_err(no_room)?;
    each_piece(file, size, deadline, |piece| {
        incoming.write(piece).map_err(no_room)
    })?;
    Ok(incoming.finish(None).map_err(no_room)?.digest)
}

fn no_room(error: BlobError) -> RefusedReason {
    if let BlobError::Storage(error) = &error {
        tracing::error!(%error, "a file of a script could not be kept");
    }
    RefusedReason::NoRoom
}

/// Reads exactly `size` bytes; a file with fewer or more has changed since it was examined.
fn each_piece(
    file: &mut File,
    size: u64,
    deadline: Instant,
    mut take: impl FnMut(&[u8]) -> Result<(), RefusedReason>,
) -> Result<(), RefusedReason> {
    let mut buffer = vec![0; PIECE];
    let mut left = size;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(RefusedReason::Unreadable),
        };
        if read == 0 && left == 0 {
            return Ok(());
        }
        left = match left.checked_sub(read as u64) {
            Some(left) if read > 0 => left,
            _ => return Err(RefusedReason::Unreadable),
        };
        take(&buffer[..read])?;
        if Instant::now() >= deadline {
            return Err(RefusedReason::Time);
        }
    }
}
