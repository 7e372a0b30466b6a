//! Queries and ends processes other than a service's own launchers.

use std::time::{Duration, Instant};

use crate::{supervisor::tree, sys};

/// Ends the leftovers of scripts whose launchers were killed: on a level without a pid namespace no
/// other mechanism ends them. Returns the number of processes that could not be ended, such as
/// those of another user.
pub fn end_leftovers() -> usize {
    /// The longest wait: a crowd takes its time to die.
    const PATIENCE: Duration = Duration::from_secs(10);
    const STEP: Duration = Duration::from_millis(5);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = tree::kill_leftovers();
        if seen == 0 || Instant::now() > deadline {
            return seen;
        }
        std::thread::sleep(STEP);
    }
}

/// Returns whether two processes share their memory, as the child of a vfork shares its parent's
/// until it becomes another program. `false` also if the kernel does not report it, or one of them
/// has ended.
pub fn share_memory(one: u32, other: u32) -> bool {
    let process = |pid: u32| i32::try_from(pid).ok().filter(|pid| *pid > 0);
    match (process(one), process(other)) {
        (Some(one), Some(other)) => sys::share_memory(one, other).unwrap_or(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shares_its_memory_with_itself_and_with_no_other() {
        let own = std::process::id();
        assert!(share_memory(own, own));
        assert!(!share_memory(own, 0));
        assert!(!share_memory(own, u32::MAX));
        let mut other = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep exists");
        // A process that starts another continues a moment before the child has left the shared
        // memory.
        let begin = std::time::Instant::now();
        while share_memory(own, other.id()) {
            assert!(begin.elapsed().as_secs() < 60, "it has memory of its own");
            std::thread::yield_now();
        }
        other.kill().expect("it is ours");
        other.wait().expect("it is ours");
    }
}
