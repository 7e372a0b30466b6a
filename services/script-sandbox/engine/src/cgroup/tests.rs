use std::{
    io::Write,
    process::{Child, Command, Stdio},
    time::Instant,
};

use super::*;

/// The longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cgroup with these limits; `None` for an ordinary user, who cannot make one.
fn cgroup(limits: &Limits) -> Option<Cgroup> {
    Some(Cgroups::find()?.make(limits, false).unwrap())
}

fn memory_of(mebibytes: usize) -> Limits {
    Limits {
        memory: mebibytes << 20,
        ..Limits::DEFAULT
    }
}

/// Runs a line of shell in a cgroup.
fn start(cgroup: &Cgroup, line: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", &format!("read go; {line}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    cgroup.join(child.id()).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    child
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(
            begin.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(STEP);
    }
}

/// The kernel's mark of a file system in memory.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// A line longer than the limit on memory, of which `tail` keeps the whole.
const FORTY_MEBIBYTES: &str = "head -c 40M /dev/zero | tail -n 1";

#[test]
fn limits_go_up_and_down() {
    let Some(cgroup) = cgroup(&Limits::DEFAULT) else {
        return;
    };
    for mebibytes in [512, 2048, 4, 1024, 1024] {
        let limits = memory_of(mebibytes);
        cgroup.limit(&limits).unwrap();
        let memory = limits.memory as u64;
        assert_eq!(number(&cgroup.knobs.memory), memory);
        if !cgroup.knobs.swap_alone && cgroup.knobs.swap.exists() {
            assert_eq!(number(&cgroup.knobs.swap), memory);
        }
        if cgroup.knobs.swap_alone && cgroup.knobs.swap.exists() {
            let swap = fs::read_to_string(&cgroup.knobs.swap).unwrap();
            assert_eq!(swap, "0\n");
        }
        if cgroup.knobs.socket_buffers.exists() {
            let bound = number(&cgroup.knobs.socket_buffers);
            assert_eq!(bound, MAX_SOCKET_BUFFERS.min(memory));
        }
    }
}

#[test]
fn figures_stay_when_the_processes_have_gone() {
    let Some(cgroup) = cgroup(&Limits::DEFAULT) else {
        return;
    };
    let mut child = start(&cgroup, FORTY_MEBIBYTES);
    assert!(child.wait().unwrap().success());
    let sample = cgroup.sample();
    if cgroup.keeps_peak() {
        assert!((40 << 20..80 << 20).contains(&sample.memory), "{sample:?}");
    }
    assert!(sample.cpu > Duration::ZERO, "{sample:?}");
    assert_eq!(
        (
            sample.processes,
            sample.memory_kills,
            sample.processes_refused
        ),
        (0, 0, 0)
    );
}

#[test]
fn who_takes_more_memory_is_killed_and_that_is_counted() {
    let Some(cgroup) = cgroup(&memory_of(20)) else {
        return;
    };
    let mut child = start(&cgroup, FORTY_MEBIBYTES);
    assert!(!child.wait().unwrap().success());
    let sample = cgroup.sample();
    assert!(sample.memory_kills > 0, "{sample:?}");
    if cgroup.keeps_peak() {
        assert!((10 << 20..=20 << 20).contains(&sample.memory), "{sample:?}");
    }
}

#[test]
fn a_limit_below_what_is_in_use_is_refused_and_kills_none() {
    let Some(cgroup) = cgroup(&Limits::DEFAULT) else {
        return;
    };
    let mut child = start(&cgroup, "(head -c 40M /dev/zero; sleep 1000) | tail -n 1");
    eventually("forty mebibytes are in use", || {
        number(&cgroup.files.memory) > 40 << 20
    });
    cgroup.limit(&memory_of(20)).unwrap_err();
    let sample = cgroup.sample();
    assert_eq!((sample.memory_kills, child.try_wait().unwrap()), (0, None));
    cgroup.limit(&memory_of(80)).unwrap();
    cgroup.kill_all();
    child.wait().unwrap();
    cgroup.limit(&memory_of(4)).unwrap();
}

#[test]
fn what_can_be_taken_back_is_no_reason_to_refuse_a_limit() {
    let Some(cgroup) = cgroup(&Limits::DEFAULT) else {
        return;
    };
    // Data written to a disk need not stay in memory; a host without a disk has no such cache.
    let on_disk = |directory: &PathBuf| {
        let is = rustix::fs::statfs(directory).unwrap();
        is.f_type != TMPFS_MAGIC
    };
    let target = std::env::current_exe().unwrap().with_file_name("");
    let places = [std::env::temp_dir(), target];
    let Some(place) = places.iter().find(|place| on_disk(place)) else {
        return;
    };
    let file = tempfile::NamedTempFile::new_in(place).unwrap();
    let name = file.path().display();
    let mut child = start(
        &cgroup,
        &format!("head -c 40M /dev/zero > {name}; sync {name}; exec sleep 1000"),
    );
    eventually("the file is cached", || {
        number(&cgroup.files.memory) > 40 << 20
    });
    eventually("the file is written", || {
        cgroup.limit(&memory_of(20)).is_ok()
    });
    assert!(number(&cgroup.files.memory) <= 20 << 20);
    let sample = cgroup.sample();
    assert_eq!((sample.memory_kills, child.try_wait().unwrap()), (0, None));
    cgroup.kill_all();
    child.wait().unwrap();
}

#[test]
fn processes_above_the_limit_are_refused_and_all_can_be_killed() {
    let Some(cgroup) = cgroup(&Limits {
        processes: 4,
        ..Limits::DEFAULT
    }) else {
        return;
    };
    let mut child = start(&cgroup, "for each in 1 2 3 4 5 6 7 8; do sleep 1000 & done");
    // The shell ends with the first refusal, and its children stay.
    child.wait().unwrap();
    let sample = cgroup.sample();
    assert!(sample.processes_refused > 0, "{sample:?}");
    assert!((1..=4).contains(&sample.processes), "{sample:?}");
    cgroup.kill_all();
    eventually("all are gone", || number(&cgroup.files.processes) == 0);
    let directories = cgroup.directories.clone();
    drop(cgroup);
    eventually("the cgroup is gone", || {
        !directories.iter().any(|directory| directory.exists())
    });
}

#[test]
fn who_steps_back_has_half_the_share_of_others() {
    let Some(cgroup) = cgroup(&Limits::DEFAULT) else {
        return;
    };
    let Knobs {
        share,
        ordinary_share,
        ..
    } = &cgroup.knobs;
    if share.as_os_str().is_empty() {
        return;
    }
    let ordinary = u64::from(*ordinary_share);
    assert_eq!(number(share), ordinary);
    cgroup.lower_priority();
    assert_eq!(number(share), ordinary / 2);
    cgroup.restore_priority();
    assert_eq!(number(share), ordinary);
}

#[test]
fn a_name_that_is_taken_is_skipped() {
    let Some(cgroups) = Cgroups::find() else {
        return;
    };
    let first = cgroups.make(&Limits::DEFAULT, false).unwrap();
    let name = first.directories[0].to_str().unwrap();
    let (first_part, last) = name.rsplit_once('-').unwrap();
    let last: u32 = last.parse().unwrap();
    let names = (last + 1..last + 20).map(|number| PathBuf::from(format!("{first_part}-{number}")));
    // Another test of this process may be faster.
    let taken: Vec<PathBuf> = names.filter(|name| fs::create_dir(name).is_ok()).collect();
    let second = cgroups.make(&memory_of(20), false).unwrap();
    assert_eq!(number(&second.knobs.memory), 20 << 20);
    assert!(!taken.iter().any(|name| second.directories.contains(name)));
    drop(second);
    for name in taken {
        fs::remove_dir(name).expect("it was left alone");
    }
}
