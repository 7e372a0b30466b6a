//! The description of the machine, and its load.

use std::fs;
use std::path::Path;

/// Describes the machine in a few lines.
pub(crate) fn describe(directory: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = first_line("/proc/sys/kernel/osrelease");
    let processor = field("/proc/cpuinfo", "model name");
    let file_system =
        file_system_of(directory).unwrap_or_else(|| "an unknown file system".to_owned());
    format!("{cores} cores ({processor}), Linux {kernel}, data on {file_system}")
}

/// Returns the number of tasks that wanted a core, over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let line = first_line("/proc/loadavg");
    line.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value
        .map_or("unknown", |(_, value)| value.trim())
        .to_owned()
}

/// Returns the kind of file system that a directory is on.
fn file_system_of(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let holding = fields.filter(|fields| fields.len() > 2 && directory.starts_with(fields[1]));
    holding
        .max_by_key(|fields| fields[1].len())
        .map(|fields| fields[2].to_owned())
}
