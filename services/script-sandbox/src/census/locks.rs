//! Locks on parts of files, which the kernel keeps for every process without charging anybody.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Look, Tree, process::read_bounded};
use crate::scratch::Filled;

/// What a lock takes inside the kernel, in bytes.
pub const LOCK_BYTES: u64 = 256;

/// More than this is no use that a program makes of locks.
pub const MOST_LOCKS: u64 = 10_000;

/// A host that has fewer locks than this has nobody who abuses them, and it is not asked whose they
/// are.
const FEW: usize = 1000;

/// More of a list of locks is not read: with its length the kernel's time for it grows by the square.
const LIST_BYTES: u64 = 1 << 20;

/// How old a list may be: less than the time between two looks for the locks of one script.
const FRESH: Duration = Duration::from_millis(150);

/// The machine's locks as they were at one time.
#[derive(Clone, Debug)]
struct List {
    begun: Instant,
    text: Arc<str>,
}

/// The newest list; held while another is read, as two who read it hold up each other and the machine.
static NEWEST: Mutex<Option<List>> = Mutex::new(None);

fn list() -> Arc<str> {
    let arrived = Instant::now();
    let mut newest = NEWEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(list) = &*newest
        && list.begun + FRESH > arrived
    {
        return list.text.clone();
    }
    let begun = Instant::now();
    let text: Arc<str> = read_bounded(Path::new("/proc/locks"), LIST_BYTES).into();
    *newest = Some(List {
        begun,
        text: text.clone(),
    });
    text
}

/// How many locks the processes below a supervisor hold, if there are many; otherwise 0. `scratch` is
/// a file system that only they have.
pub fn held(supervisor: u32, scratch: Option<&Filled>) -> u64 {
    let list = list();
    if list.lines().count() < FEW {
        return 0;
    }
    // The list may have taken long, and then nobody is left of an earlier look.
    let look = Look::below(supervisor);
    let tree = look.tree();
    let own = tree.members().iter().map(|process| process.pid).collect();
    let device = scratch.map(|scratch| scratch.device.as_str());
    let Counted { ours, strays } = count(&list, device, &own, &tree.host);
    // Behind the end of a list that was cut, many scripts with many locks would hide one another's.
    let is_whole = (list.len() as u64) < LIST_BYTES;
    if is_whole && strays < FEW as u64 {
        return ours;
    }
    ours.max(described(tree))
}

/// A list of locks, summed up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Locks of the script for sure.
    ours: u64,
    /// Locks that belong to an open file and not to a process, or to one that has gone and has left
    /// its descriptors to others.
    strays: u64,
}

fn count(list: &str, device: Option<&str>, own: &HashSet<u32>, all: &HashSet<u32>) -> Counted {
    let mut counted = Counted::default();
    for line in list.lines() {
        // From the end: what is locked, the file, the process.
        let mut words = line.split_whitespace().rev().skip(2);
        let (Some(file), Some(pid)) = (words.next(), words.next()) else {
            continue;
        };
        let pid: Option<u32> = pid.parse().ok();
        let on_device = device.is_some_and(|device| {
            let inode = file.strip_prefix(device);
            inode.is_some_and(|inode| inode.starts_with(':'))
        });
        if on_device || pid.is_some_and(|pid| own.contains(&pid)) {
            counted.ours += 1;
        } else if pid.is_none_or(|pid| !all.contains(&pid)) {
            counted.strays += 1;
        }
    }
    counted
}

/// Counts the locks of every open file; one that several descriptors lead to counts for each. Stops
/// when there are too many.
fn described(tree: &Tree) -> u64 {
    let mut sum = 0;
    for process in tree.members() {
        let descriptors = fs::read_dir(process.directory().join("fdinfo"));
        for entry in descriptors.into_iter().flatten().flatten() {
            // Only files have locks, and what others tell is as long as the script likes.
            let file = process.directory().join("fd").join(entry.file_name());
            if !fs::metadata(file).is_ok_and(|is| is.is_file()) {
                continue;
            }
            let text = read_bounded(&entry.path(), LIST_BYTES);
            let locks = text.lines().filter(|line| line.starts_with("lock:"));
            sum += locks.count() as u64;
            if sum > MOST_LOCKS {
                return sum;
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_look_at_the_same_time_share_a_list() {
        let lists: Vec<_> = std::thread::scope(|scope| {
            let looks: Vec<_> = (0..8).map(|_| scope.spawn(list)).collect();
            looks.into_iter().map(|look| look.join().unwrap()).collect()
        });
        // A thread that comes late may have read one of its own.
        let different: HashSet<_> = lists.iter().map(|list| list.as_ptr()).collect();
        assert!(different.len() < lists.len());
    }

    #[test]
    fn locks_are_told_apart_by_process_and_by_file() {
        let list = "\
1: POSIX  ADVISORY  WRITE 12 fe:00:77 0 0
2: POSIX  ADVISORY  READ  13 fe:00:77 8 EOF
2: -> POSIX  ADVISORY  WRITE 12 fe:00:77 8 9
3: OFDLCK ADVISORY  WRITE -1 00:2a:5 1 1
4: OFDLCK ADVISORY  WRITE -1 00:2ab:5 1 1
5: POSIX  ADVISORY  WRITE 99 fe:00:77 0 0
6: FLOCK  ADVISORY  WRITE 13 fe:00:1 0 EOF
7: POSIX ADVISORY
";
        let (own, all) = (HashSet::from([12]), HashSet::from([12, 13]));
        let counted = |ours, strays| Counted { ours, strays };
        assert_eq!(count(list, Some("00:2a"), &own, &all), counted(3, 2));
        assert_eq!(count(list, None, &own, &all), counted(2, 3));
    }
}
