//! The figures of processes from the system.

use std::fs;

/// Returns every living process beneath `parent`, however deep.
pub(crate) fn descendants(parent: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, stat(process)?.parent)))
        .collect();
    let mut found = vec![parent];
    let mut next = 0;
    while let Some(above) = found.get(next).copied() {
        found.extend(
            all.iter()
                .filter(|(_, parent)| *parent == above)
                .map(|(process, _)| *process),
        );
        next += 1;
    }
    found.split_off(1)
}

/// Returns whether a process is there and has not ended.
pub(crate) fn is_alive(process: u32) -> bool {
    stat(process).is_some()
}

/// Returns the name of a process; empty if there is none.
pub(crate) fn name(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm"))
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

/// Returns the seconds of processor time that a process has used, or `None` if it has ended.
pub(crate) fn processor_seconds(process: u32) -> Option<f64> {
    // The system counts in hundredths of a second, whichever unit its own clock has.
    stat(process).map(|stat| stat.ticks as f64 / 100.0)
}

/// Returns the process that a process is a child of.
pub(crate) fn parent(process: u32) -> Option<u32> {
    stat(process).map(|stat| stat.parent)
}

/// Returns the memory of a process, in MiB, with its share of memory shared with others.
pub(crate) fn proportional_mebibytes(process: u32) -> Option<f64> {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes / 1024.0)
}

/// Returns the resident memory of a process, in MiB.
pub(crate) fn resident_mebibytes(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes / 1024.0)
}

struct Stat {
    parent: u32,
    ticks: u64,
}

/// Reads the state of a process; `None` if it does not exist or only waits to be collected.
fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in brackets and may contain anything, brackets too.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_beneath_its_parent_until_it_has_ended() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep exists");
        assert!(descendants(own).contains(&child.id()));
        assert!(is_alive(child.id()));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(!is_alive(child.id()) && !descendants(own).contains(&child.id()));
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let own = std::process::id();
        assert!(resident_mebibytes(own).is_some_and(|size| size > 0.0));
        assert!(processor_seconds(own).is_some_and(|seconds| seconds >= 0.0));
        assert!(!name(own).is_empty());
    }
}
