//! Commands to files: waiting for the disk, going around its cache, and locks.
//!
//! Where scratch files are in memory, flushing them is free. On a disk of the host, a script that
//! flushes a byte at a time makes every process on that disk wait. A script's files need not
//! outlive the machine, so a flush there is answered as done without being carried out.

use libc::{EINVAL, ENOLCK, EPERM, c_int, c_long};

use super::{Answer, Condition, Entry, Profile, tables};

/// Answers that a flush has been done.
const DONE: Answer = Answer::Errno(0);

/// Calls that only flush.
const FLUSHES: [c_long; 4] = [
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
];

/// The flags of an open file that flush each write. The kernel treats either as both, and `O_SYNC`
/// of the C library holds both.
const WRITES_FLUSH: [u64; 2] = [0o10_000, 0o4_000_000];

/// Flushing and opening.
pub(super) fn entries(profile: Profile) -> Vec<Entry> {
    if !profile.on_disk {
        let allowed = [
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_msync,
            libc::SYS_open,
            libc::SYS_openat,
        ];
        let allowed = allowed.map(|number| Entry::allowed(number, true));
        let refused = Entry::allowed(libc::SYS_syncfs, false);
        return allowed.into_iter().chain([refused]).collect();
    }
    let waits = Condition::has(2, libc::MS_SYNC as u64);
    let flushes = FLUSHES.map(|number| Entry::always(number, DONE));
    let others = [
        Entry::allowed_unless(libc::SYS_msync, vec![(vec![waits], DONE)]),
        Entry::allowed_unless(libc::SYS_open, flags_of_opening(1)),
        Entry::allowed_unless(libc::SYS_openat, flags_of_opening(2)),
    ];
    flushes.into_iter().chain(others).collect()
}

/// A request for a lock that reports at once whether it was granted, as databases make it.
const LOCK_AT_ONCE: u64 = libc::F_SETLK as u64;

/// Requests for locks that wait, or that belong to an open file: they are made to exclude
/// processes, so a program must see that it does not get them.
const EXCLUDING_LOCKS: [u64; 3] = [
    libc::F_SETLKW as u64,
    libc::F_OFD_SETLK as u64,
    libc::F_OFD_SETLKW as u64,
];

/// Commands to descriptors. One of them makes later writes go around the cache, and some lock parts
/// of files.
///
/// No lock reaches the kernel: every script could take one on a program, a library or a device that
/// all scripts share, where other scripts see it and the host waits for it, and a filter cannot
/// determine the owner of a descriptor's file. A database insists on its locks but has its files to
/// itself, so its request is answered as granted. Queries of locks are harmless once no process has
/// any.
pub(super) fn commands(profile: Profile) -> Entry {
    let is = |value: u64| Condition::is(1, value);
    let set_direct = vec![is(libc::F_SETFL as u64), Condition::has(2, DIRECT)];
    let refused = (profile.on_disk).then_some((set_direct, Answer::Errno(EINVAL)));
    let locks = EXCLUDING_LOCKS.map(|command| (vec![is(command)], Answer::Errno(ENOLCK)));
    let allowed = tables::FCNTLS.iter();
    let allowed = allowed.map(|&command| (vec![is(command)], Answer::Allow));
    let cases = refused.into_iter();
    let cases = cases.chain([(vec![is(LOCK_AT_ONCE)], DONE)]);
    Entry {
        number: libc::SYS_fcntl,
        cases: cases.chain(locks).chain(allowed).collect(),
        otherwise: Answer::Errno(EPERM),
    }
}

const DIRECT: u64 = libc::O_DIRECT as u64;

/// The refused flags of opening a file: with the error of a file system that cannot go around its
/// cache, and with an error for flushing, which no file system returns.
fn flags_of_opening(argument: u32) -> Vec<(Vec<Condition>, Answer)> {
    // The kernel reads flags as 32-bit numbers, and all of these are below.
    let case = |flag, errno| (vec![Condition::has(argument, flag)], Answer::Errno(errno));
    let flushed = WRITES_FLUSH.map(|flag| case(flag, EPERM));
    flushed.into_iter().chain([case(DIRECT, EINVAL)]).collect()
}

// Each flag is one bit, so that a part of it cannot be set without the whole.
const _: () = {
    assert!(libc::O_DSYNC as u64 == WRITES_FLUSH[0]);
    assert!(libc::O_SYNC as u64 == WRITES_FLUSH[0] | WRITES_FLUSH[1]);
    assert!((libc::MS_SYNC as c_int).count_ones() == 1);
    assert!(DIRECT.count_ones() == 1);
};
