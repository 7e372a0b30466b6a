//! Ends a process tree that has no pid namespace to end it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::fd::AsFd,
};

use crate::sys::{self, Forked};

/// The score by which the kernel chooses a script when the machine runs out of memory.
pub(super) const FIRST_VICTIM: &str = "900";

/// The core file filter of a script without a pid namespace. The kernel writes no core file of a
/// script, so the filter serves as a mark: each descendant inherits it, and can change it only by
/// way of /proc, which it does not reach.
pub(super) const SCRIPT: u32 = 0x155;

/// The mark of the supervisor of such a script.
pub(super) const SUPERVISOR: u32 = 0x0aa;

/// Marks a process.
pub(super) fn mark(process: &str, mark: u32) -> io::Result<()> {
    fs::write(format!("/proc/{process}/coredump_filter"), mark.to_string())
}

fn marked(pid: i32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/coredump_filter")).ok()?;
    u32::from_str_radix(text.trim(), 16).ok()
}

fn is_of_a_script(pid: i32) -> bool {
    let victim = || fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap_or_default();
    marked(pid) == Some(SCRIPT) && victim().trim() == FIRST_VICTIM
}

/// Kills every process of a script whose supervisor has died; returns the number of processes seen.
pub(crate) fn kill_leftovers() -> usize {
    let processes: BTreeMap<i32, Seen> = processes().map(|seen| (seen.pid, seen)).collect();
    let scripts: BTreeSet<i32> = processes
        .keys()
        .copied()
        .filter(|pid| is_of_a_script(*pid))
        .collect();
    let is_left = |pid: &&i32| {
        // Process ids that were reused since the walk may form a circle.
        let mut above = **pid;
        for _ in 0..processes.len() {
            match processes.get(&above) {
                Some(process) if scripts.contains(&above) => above = process.parent,
                _ => break,
            }
        }
        marked(above) != Some(SUPERVISOR)
    };
    let left = scripts.iter().filter(is_left);
    let left: Vec<&Seen> = left.filter_map(|pid| processes.get(pid)).collect();
    let mut groups = BTreeSet::new();
    for process in &left {
        kill(process, groups.insert(process.group));
    }
    left.len()
}

/// A process as the walk saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    pid: i32,
    parent: i32,
    group: i32,
    /// In ticks since the machine has started: distinguishes two processes with the same id.
    started: u64,
}

/// Kills every descendant of this process; returns the number seen alive.
///
/// A user that only this run has is swept first, in one call that no fork can outrun. The walk over
/// the tree then finds the processes of a shared user; repeat it until none is seen.
pub(super) fn kill_descendants(user: Option<u32>) -> u32 {
    if let Some(user) = user {
        sweep(user);
    }
    let own_group = rustix::process::getpgrp().as_raw_pid();
    let mut groups = BTreeSet::new();
    let mut seen = 0;
    for process in descendants() {
        seen += 1;
        // A script begins in a group of its own, and every process of a group gets a signal at
        // once: a process that forks at this moment leaves no child behind. One by one, a fork bomb
        // would outrun the signals.
        let together = process.group != own_group && groups.insert(process.group);
        kill(&process, together);
    }
    seen
}

/// Kills the children of this process; returns their number. Only this process reaps them, so that
/// their ids stay theirs until then.
pub(super) fn kill_children() -> usize {
    // Where the kernel has no such list, the walk over all processes finds them.
    let list = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let children = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    children
        .inspect(|pid| {
            // It may have ended since.
            let _ = sys::kill(*pid, libc::SIGKILL);
        })
        .count()
}

/// Kills a process or its group, if it is still the one that was seen: it may have ended since, and
/// another process may have its id. The process is opened before it is compared again.
fn kill(process: &Seen, together: bool) {
    let Ok(held) = sys::hold(process.pid) else {
        return;
    };
    if look(process.pid).as_ref().map(|now| now.started) != Some(process.started) {
        return;
    }
    let killed = together && sys::kill_held(held.as_fd(), libc::SIGKILL, true).is_ok();
    if !killed {
        // A process that has ended since needs no signal.
        let _ = sys::kill_held(held.as_fd(), libc::SIGKILL, false);
    }
}

/// Becomes the user in a child and kills all processes that this user may kill.
fn sweep(user: u32) {
    match sys::fork(0) {
        Ok(Forked::Child) => {
            if sys::become_user(user, true).is_ok() {
                let _ = sys::kill(-1, libc::SIGKILL);
            }
            sys::exit_now(0)
        }
        Ok(Forked::Parent(child)) => {
            let _ = sys::reap(child, true);
        }
        // Without room for one more process, the walk over the tree must do.
        Err(_) => {}
    }
}

/// All living descendants of this process.
fn descendants() -> Vec<Seen> {
    let mut children: BTreeMap<i32, Vec<Seen>> = BTreeMap::new();
    for process in processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut open = vec![i32::try_from(std::process::id()).unwrap_or(0)];
    while let Some(pid) = open.pop() {
        if let Some(more) = children.remove(&pid) {
            open.extend(more.iter().map(|process| process.pid));
            found.extend(more);
        }
    }
    found
}

/// Every living process.
fn processes() -> impl Iterator<Item = Seen> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| look(entry.file_name().to_str()?.parse().ok()?))
}

/// Reads the state of a process; `None` if it has ended.
fn look(pid: i32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    read(pid, &stat)
}

/// Reads a line of /proc/PID/stat. The name before the fields may hold anything. `None` if no
/// thread of the process lives: a process whose first thread has ended is shown as dead while
/// others continue.
fn read(pid: i32, stat: &str) -> Option<Seen> {
    /// The number of fields between the group and the number of threads.
    const BEFORE_THREADS: usize = 14;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let threads: u32 = fields.nth(BEFORE_THREADS)?.parse().ok()?;
    let seen = Seen {
        pid,
        parent,
        group,
        // After a field that is obsolete.
        started: fields.nth(1)?.parse().ok()?,
    };
    (state != "Z" || threads > 1).then_some(seen)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_cannot_forge_the_fields_behind_it() {
        let check = |name: &str, state, threads: u32, expected: Option<i32>| {
            let stat =
                format!("7 ({name}) {state} 3 5 7 0 -1 4 0 0 0 0 1 1 0 0 20 0 {threads} 0 99 0 0");
            let seen = read(7, &stat);
            let found = |seen: &Seen| (seen.parent, seen.group, seen.started);
            assert_eq!(
                seen.as_ref().map(found),
                expected.map(|it| (it, 5, 99)),
                "{stat}"
            );
        };
        check("bash", "S", 1, Some(3));
        check("a) R 1 (b", "S", 8, Some(3));
        check("a\nb", "Z", 1, None);
        check("a) S (b", "Z", 0, None);
        check("a) S (b", "Z", 2, Some(3));
        for broken in ["7 bash S 3", "7 (bash)", "7 (bash) S 3 5"] {
            assert_eq!(read(7, broken), None);
        }
    }

    #[test]
    fn who_has_taken_over_a_number_is_spared() {
        let spawned = Command::new("cat").stdin(Stdio::piped()).spawn();
        let mut child = spawned.expect("cat exists");
        let pid = i32::try_from(child.id()).expect("it is small");
        let seen = look(pid).expect("it lives");
        let earlier = Seen {
            started: seen.started - 1,
            ..seen.clone()
        };
        kill(&earlier, false);
        // No signal was sent, so it ends by itself.
        drop(child.stdin.take());
        assert!(child.wait().expect("it is ours").success());
        kill(&seen, false);
    }
}
