//! The kernel's report of one process.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

/// The most bytes that are read of the list of one process's mappings. Mappings beyond are not
/// deducted.
pub(super) const MAPPINGS_BYTES: u64 = 4 << 20;

/// One process at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// Includes threads that have ended and were not waited for.
    pub(super) threads: u32,
    /// Its own processor time.
    pub(super) own: Duration,
    /// The processor time of the children that it waited for, and of theirs.
    pub(super) waited: Duration,
    /// Whether its first thread has ended. Its other threads continue, if there are any.
    headless: bool,
}

/// All processes of this host.
pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let look = |entry: fs::DirEntry| Process::look(entry.file_name().to_str()?.parse().ok()?);
    entries.filter_map(look).collect()
}

/// A text that changes when a process or thread is made on the host; `None` if the kernel does not
/// report it.
pub(super) fn last_made() -> Option<String> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    Some(load.rsplit_once(' ')?.1.trim_end().to_owned())
}

impl Process {
    /// The process at present; `None` if it has ended.
    pub(super) fn look(pid: u32) -> Option<Self> {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let stat = fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
        read_stat(pid, &String::from_utf8_lossy(&stat), ticks)
    }

    /// The processor time of the process and of the children that it waited for.
    pub(super) fn cpu(&self) -> Duration {
        self.own + self.waited
    }

    /// The directory with the figures that all its threads share. After the end of the first thread
    /// the directory of the process no longer reports them.
    pub(super) fn directory(&self) -> PathBuf {
        let own = Path::new("/proc").join(self.pid.to_string());
        if !self.headless || self.threads < 2 {
            return own;
        }
        let threads = fs::read_dir(own.join("task")).into_iter().flatten();
        let alive = |path: &PathBuf| {
            let status = fs::read(path.join("status")).unwrap_or_default();
            kilobytes(&String::from_utf8_lossy(&status), "RssAnon:").is_some()
        };
        let mut threads = threads.flatten().map(|entry| entry.path());
        threads.find(alive).unwrap_or(own)
    }

    /// Returns whether it shares its parent's memory. Two processes whose first threads have ended
    /// share none.
    pub(super) fn shares_memory_with_parent(&self) -> bool {
        !self.headless && sandbox_launcher::processes::share_memory(self.pid, self.parent)
    }

    /// The memory that it keeps, except files, in bytes: private pages, each counted once, with the
    /// page tables; and pages made to be shared, each counted as often as it is mapped. Pages
    /// shared since a fork count for each process. The processes of a script cannot prevent this
    /// reading.
    pub(super) fn held(&self) -> (u64, u64) {
        let status = fs::read(self.directory().join("status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let held = |name| kilobytes(&status, name).unwrap_or(0).saturating_mul(1024);
        let private = held("RssAnon:").saturating_add(held("VmPTE:"));
        (private, held("RssShmem:"))
    }

    /// Its memory with its part of the shared pages, in bytes. This takes the kernel some time, and
    /// the kernel may refuse.
    pub(super) fn proportional_bytes(&self) -> Option<u64> {
        let directory = self.directory();
        let parts = fs::read_to_string(directory.join("smaps_rollup")).ok()?;
        let status = fs::read(directory.join("status")).ok()?;
        let held = kilobytes(&parts, "Pss_Anon:")?
            + kilobytes(&parts, "Pss_Shmem:")?
            + kilobytes(&String::from_utf8_lossy(&status), "VmPTE:")?;
        Some(held.saturating_mul(1024))
    }

    /// Its part of the mapped pages of a file system's files, in bytes; never an overestimate.
    pub(super) fn mapped_bytes(&self, device: &str) -> u64 {
        let path = self.directory().join("smaps");
        mapped(&read_bounded(&path, MAPPINGS_BYTES), device)
    }
}

/// The beginning of a file, empty if it cannot be read.
pub(crate) fn read_bounded(path: &Path, most: u64) -> String {
    let mut bytes = Vec::new();
    // The bytes before an error count.
    let _ = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a line of /proc/PID/stat. The name in brackets may hold anything, also brackets.
fn read_stat(pid: u32, stat: &str, ticks: u64) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    let time = |ticked: u64| Duration::from_millis(ticked.saturating_mul(1000) / ticks);
    // The fields are counted from the state, which is the third one of the line.
    Some(Process {
        pid,
        parent: u32::try_from(number(1)?).ok()?,
        threads: u32::try_from(number(17)?).ok()?,
        own: time(number(11)? + number(12)?),
        waited: time(number(13)? + number(14)?),
        headless: fields.first() == Some(&"Z"),
    })
}

/// The number that follows a name, in a text of `name: number kB` lines.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Sums up the mappings of one device's files in a text like /proc/PID/smaps.
fn mapped(smaps: &str, device: &str) -> u64 {
    let (mut ours, mut kept, mut sum) = (false, 0_u64, 0_u64);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut number = || words.next()?.parse::<u64>().ok();
        match first {
            "Pss:" if ours => kept = number().unwrap_or(0),
            // Pages that were copied on write belong to the process alone. They count in full here
            // and by their part above, so that the deduction is sometimes too small and never too
            // large.
            "Anonymous:" if ours => {
                sum = sum.saturating_add(kept.saturating_sub(number().unwrap_or(u64::MAX)));
            }
            name if name.ends_with(':') => {}
            // A mapping begins: its place, rights, offset, device.
            _ => ours = words.nth(2) == Some(device),
        }
    }
    sum.saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_name() {
        let rest = "S 12 1 1 0 -1 4194560 1 2 3 4 100 50 25 25 20 0 7 0 1000 1 1";
        for name in ["bash", "a) R 99 (b", "a b", ")"] {
            let process = read_stat(34, &format!("34 ({name}) {rest}"), 100).unwrap();
            assert_eq!((process.parent, process.threads), (12, 7));
            let times = (process.own.as_millis(), process.waited.as_millis());
            assert_eq!(times, (1500, 500));
        }
        assert!(read_stat(34, "34 bash S 12", 100).is_none());
        assert!(read_stat(34, "34 (bash) S 12", 100).is_none());
    }

    #[test]
    fn only_pages_of_the_devices_files_are_taken_off() {
        let mapping = |device: &str, pss: u64, anonymous: u64| {
            format!(
                "7f00-7f01 rw-s 00000000 {device} 7 /work/a b: c\n\
                 Size: 9 kB\nPss: {pss} kB\nPss_Dirty: 1 kB\nAnonymous: {anonymous} kB\nVmFlags: rd\n"
            )
        };
        let table = [
            ("00:2a", 8, 0, 8),
            ("00:2a", 8, 6, 2),
            // A private copy whose part is smaller than itself.
            ("00:2a", 8, 16, 0),
            ("00:2b", 8, 0, 0),
        ];
        for (device, pss, anonymous, expected) in table {
            let text = mapping("08:01", 100, 0) + &mapping(device, pss, anonymous);
            assert_eq!(mapped(&text, "00:2a"), expected * 1024, "{text}");
        }
        let cut = "7f00-7f01 rw-s 00000000 00:2a 7 /work/a\nPss: 8 kB\n";
        assert_eq!(mapped(cut, "00:2a"), 0);
    }
}
