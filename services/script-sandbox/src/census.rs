//! Counts what a process tree uses, where no cgroup does.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    time::Duration,
};

/// What a script uses at one moment; times and refusals since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes of memory: of a cgroup its peak, of a process tree the present sum.
    pub memory: u64,
    /// How often the kernel killed for memory.
    pub memory_kills: u64,
    /// Processes and threads.
    pub processes: u32,
    /// How often the kernel refused a process.
    pub processes_refused: u64,
    /// Processor time.
    pub cpu: Duration,
}

/// Sums up the descendants of a launcher's supervisor, which itself does not count, nor does its
/// keeper. Where the quick sum of memory is above `suspicious`, it is taken again with care.
pub fn sample(supervisor: u32, suspicious: u64) -> Sample {
    let processes = processes();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, process) in &processes {
        children.entry(process.parent).or_default().push(*pid);
    }
    let mut seen: HashSet<u32> = HashSet::from([supervisor]);
    let mut open: Vec<(u32, u32)> = vec![(supervisor, 0)];
    let mut sum = Sample::default();
    let mut counted = Vec::new();
    while let Some((pid, depth)) = open.pop() {
        for &child in children.get(&pid).into_iter().flatten() {
            if !seen.insert(child) {
                continue;
            }
            open.push((child, depth + 1));
            let Some(process) = processes.get(&child) else {
                continue;
            };
            sum.cpu += process.cpu;
            // The first generation is the keeper, and what orphans there are without a keeper.
            if depth > 0 {
                sum.processes = sum.processes.saturating_add(process.threads);
                sum.memory = sum.memory.saturating_add(held_bytes(child));
                counted.push(child);
            }
        }
    }
    if sum.memory > suspicious {
        // A page that is shared was counted for each; now each gets its part of it.
        let part = |pid: &u32| proportional_bytes(*pid).unwrap_or_else(|| held_bytes(*pid));
        sum.memory = counted.iter().map(part).fold(0, u64::saturating_add);
    }
    sum
}

/// How many processes and threads a user has on this host.
pub fn tasks_of(user: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let owned = |pid: &u32| {
        fs::metadata(Path::new("/proc").join(pid.to_string())).is_ok_and(|is| is.uid() == user)
    };
    let processes = processes();
    processes
        .iter()
        .filter(|(pid, _)| owned(pid))
        .map(|(_, process)| u64::from(process.threads))
        .sum()
}

struct Process {
    parent: u32,
    threads: u32,
    /// Its own processor time and that of the children it waited for.
    cpu: Duration,
}

fn processes() -> HashMap<u32, Process> {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
            && let Some(process) = read_stat(&stat, ticks)
        {
            found.insert(pid, process);
        }
    }
    found
}

/// Reads a line of /proc/PID/stat. The name in brackets may hold anything, also brackets.
fn read_stat(stat: &str, ticks: u64) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    // The fields are counted from the state, which is the third one of the line.
    let times = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        threads: u32::try_from(number(17)?).ok()?,
        cpu: Duration::from_millis(times.saturating_mul(1000) / ticks),
    })
}

/// What a process keeps in memory beside files. Pages that it shares with others, since a fork or on
/// purpose, count for each of them. The processes of a script cannot keep it from being read.
fn held_bytes(pid: u32) -> u64 {
    let path = Path::new("/proc").join(pid.to_string()).join("status");
    let text = fs::read_to_string(path).unwrap_or_default();
    let held = |name| kilobytes(&text, name).unwrap_or(0);
    (held("RssAnon:") + held("RssShmem:")).saturating_mul(1024)
}

/// What a process keeps in memory, with its part of what it shares; files do not count. It takes the
/// kernel some time, and the kernel may refuse.
fn proportional_bytes(pid: u32) -> Option<u64> {
    let path = Path::new("/proc")
        .join(pid.to_string())
        .join("smaps_rollup");
    let text = fs::read_to_string(path).ok()?;
    let held = kilobytes(&text, "Pss_Anon:")? + kilobytes(&text, "Pss_Shmem:")?;
    Some(held.saturating_mul(1024))
}

/// The number behind a name, in a text of `name: number kB` lines.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let rest = "S 12 1 1 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 7 0 1000 1 1";
        for name in ["bash", "a) R 99 (b", "a b", ")"] {
            let process = read_stat(&format!("34 ({name}) {rest}"), 100).unwrap();
            assert_eq!((process.parent, process.threads), (12, 7));
            assert_eq!(process.cpu, Duration::from_secs(2));
        }
        assert!(read_stat("34 bash S 12", 100).is_none());
        assert!(read_stat("34 (bash) S 12", 100).is_none());
    }

    fn kill_tree(pid: u32) {
        for (child, process) in processes() {
            if process.parent == pid {
                kill_tree(child);
            }
        }
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }

    #[test]
    fn the_tree_of_a_supervisor_is_counted() {
        let mut supervisor = std::process::Command::new("sh")
            .args(["-c", "sh -c 'sleep 600 & echo started; wait' & wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = [0; 8];
        std::io::Read::read_exact(supervisor.stdout.as_mut().unwrap(), &mut started).unwrap();
        let sum = sample(supervisor.id(), u64::MAX);
        kill_tree(supervisor.id());
        supervisor.wait().unwrap();
        // The inner shell is of the first generation, which does not count; its sleeper does.
        assert_eq!(sum.processes, 1);
    }
}
