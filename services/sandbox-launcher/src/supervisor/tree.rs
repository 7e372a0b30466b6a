//! Ends a process tree that has no namespace to die with.

use std::{collections::BTreeMap, fs};

use crate::sys::{self, Forked};

/// Kills every descendant of this process; tells how many were seen alive.
///
/// A user that only this run has is swept first, in one call that no fork can outrun. The walk over
/// the tree then finds those of a shared user; it is to be repeated until nobody is seen.
pub(super) fn kill_descendants(user: Option<u32>) -> u32 {
    if let Some(user) = user {
        sweep(user);
    }
    let mut seen = 0;
    for pid in descendants() {
        seen += 1;
        // It may have ended between the look and the blow.
        let _ = sys::kill(pid, libc::SIGKILL);
    }
    seen
}

/// Becomes the user in a child and kills all that this user may kill.
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

/// The ids of all living descendants of this process.
fn descendants() -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in processes {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
            && let Some((state, parent)) = state_and_parent(&stat)
            && state != "Z"
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![i32::try_from(std::process::id()).unwrap_or(0)];
    while let Some(pid) = open.pop() {
        if let Some(more) = children.remove(&pid) {
            open.extend(&more);
            found.extend(more);
        }
    }
    found
}

/// The state and the parent in a line of /proc/PID/stat. The name before them may hold anything.
fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_the_fields_behind_it() {
        let check = |stat: &str, expected| assert_eq!(state_and_parent(stat), expected, "{stat}");
        check("7 (bash) S 3 7 7 0", Some(("S", 3)));
        check("7 (a) R 1 (b) S 3 7", Some(("S", 3)));
        check("7 (a\nb) Z 4 7", Some(("Z", 4)));
        check("7 bash S 3", None);
        check("7 (bash)", None);
    }
}
