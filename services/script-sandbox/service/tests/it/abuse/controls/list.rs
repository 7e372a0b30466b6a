//! The programs, one by one.

use super::{Control, control};
use crate::{
    abuse::{attempts, exhaustion, files, kernel, memory, network, secrets},
    collect,
};

/// The numbers whose tests run their program, or a call of it, without a sandbox by themselves, and
/// the numbers of this module's tests that need several programs.
pub(crate) const IN_THEIR_TESTS: [u32; 20] = [
    4, 19, 27, 36, 43, 47, 50, 51, 52, 54, 58, 59, 61, 63, 70, 74, 77, 79, 81, 85,
];

const PYTHON: &[&str] = &["python3", "-c"];
const BASH: &[&str] = &["bash", "-c"];

/// Python below a process of the same user.
const PYTHON_BELOW: &[&str] = &["bash", "-c", "python3 -c \"$0\"; true"];

/// Python that leaves processes behind, and a search for them after its end.
const PYTHON_THEN_LOOK: &[&str] = &[
    "bash",
    "-c",
    "python3 -c \"$0\" > /dev/null 2>&1; pgrep -xf 'sleep MARKER'; pkill -xf 'sleep MARKER'",
];

/// Bash that leaves processes behind, and a search for them after its end.
const BASH_THEN_LOOK: &[&str] = &[
    "bash",
    "-c",
    "bash -c \"$0\" > /dev/null 2>&1
until [ $(pgrep -cxf 'sleep MARKER') = 2 ]; do sleep 0.05; done
pgrep -xf 'sleep MARKER'; pkill -xf 'sleep MARKER'",
];

/// Python next to a process of the same user that has a secret.
const PYTHON_BESIDE_A_SECRET: &[&str] = &[
    "bash",
    "-c",
    "TOKEN=canary-secret-1 sleep 600 &
until grep -q canary /proc/$!/environ; do sleep 0.01; done
python3 -c \"${0//NEIGHBOUR/$!}\"; kill $!",
];

/// Python next to a process of the same user that it may end.
const PYTHON_BESIDE_A_VICTIM: &[&str] = &[
    "bash",
    "-c",
    "sleep 600 & python3 -c \"${0//NEIGHBOUR/$!}\"; wait $!; echo ended by $?",
];

const POISON: &str = "
echo 'print(\"poisoned\")' > sitecustomize.py
PYTHONPATH=. python3 -c 'print(\"ran\")'
";

/// Every program that is the same inside and outside, except for the number that is too much.
pub(crate) const CONTROLS: &[Control] = &[
    control(1, PYTHON, exhaustion::FORKS, "forked")
        .instead(&[("while True:", "for _ in range(6):")])
        .after("\nprint('forked')")
        .times(33),
    control(2, PYTHON_THEN_LOOK, exhaustion::DOUBLE_FORKS, "\n").times(4),
    control(3, PYTHON, exhaustion::THREADS, "200 started")
        .instead(&[("range(2000)", "range(200)")])
        .after("print(started, 'started')"),
    control(5, PYTHON, memory::SUM_OF_CHILDREN, "held")
        .instead(&[("600)\n", "2); os._exit(0)\n")])
        .times(8),
    control(6, PYTHON, memory::FILLS_MEMORY_FILES, "filled")
        .instead(&[
            ("PLACE", "."),
            ("range(100)", "range(20)"),
            ("time.sleep(600)", "print('filled')"),
        ]),
    control(8, PYTHON, exhaustion::SPINNING, "spun")
        .instead(&[(
            "while True: pass",
            "import time\nwhile time.process_time() < 1.5: pass\nprint('spun')",
        )]),
    control(9, PYTHON, exhaustion::SLEEPING, "slept")
        .instead(&[("time.sleep(600)", "time.sleep(1.5); print('slept')")]),
    control(11, PYTHON, exhaustion::LARGE_FILES, "written")
        .instead(&[
            ("range(700)", "range(32)"),
            ("time.sleep(600)", "print('written')"),
        ]),
    control(12, PYTHON, exhaustion::SPARSE_GIANT, "made"),
    control(13, PYTHON, exhaustion::MANY_FILES, "made")
        .instead(&[
            ("range(1_000_000)", "range(3_000)"),
            ("time.sleep(600)", "print('made')"),
        ]),
    control(15, PYTHON, exhaustion::FLOOD, "xxxxxxxx")
        .instead(&[("while True", "for _ in range(4)")])
        .times((64 << 10) / 8 + 1),
    control(16, PYTHON, exhaustion::TRICKLE, ".")
        .instead(&[("while True", "for _ in range(30)")])
        .times(30),
    control(17, PYTHON, exhaustion::OPEN_FILES, "300 open")
        .instead(&[("20000", "300")])
        .after("print(n, 'open')"),
    control(18, PYTHON, exhaustion::ZOMBIES, "all of them")
        .instead(&[
            ("10_000", "100"),
            ("time.sleep(600)", "print('all of them')"),
        ]),
    control(20, PYTHON, exhaustion::LARGER_SHARE, "False"),
    control(22, PYTHON, memory::LOCKED_MEMORY, " 0\n"),
    control(24, &["env", "NODE_OPTIONS=--max-old-space-size=8192", "node", "-e"], memory::OFF_HEAP, "held")
        .instead(&[("for (;;)", "for (let n = 0; n < 20; n++)")])
        .after("console.log('held')"),
    control(28, PYTHON, files::OTHERS_DIRECTORIES, "tavern-control"),
    control(29, PYTHON, collect::LINKS_AND_PIPES, "canary-")
        .instead(&[("SECRET", "CANARIES/tls.key")])
        .after("print(open('absolute').read())"),
    control(32, PYTHON, files::SHARED_LINKS, "linked CANARIES/runs.db").instead(&[(
        ", '/usr/bin/env', '/etc/passwd', os.path.realpath(os.sys.executable)",
        "",
    )]),
    control(33, PYTHON, collect::LINKS_AND_PIPES, "True True")
        .instead(&[("SECRET", "/")])
        .after("import stat; print(stat.S_ISFIFO(os.lstat('pipe').st_mode), stat.S_ISSOCK(os.lstat('socket').st_mode))"),
    control(34, PYTHON, collect::ODD_NAMES, "8 names").after("print(len(os.listdir()), 'names')"),
    control(35, PYTHON, collect::MANY_RESULTS, "400 files")
        .instead(&[("range(100)", "range(20)")])
        .after("print(sum(len(names) for _, _, names in os.walk('.')), 'files')"),
    control(
        36,
        PYTHON,
        files::MODES_AND_TIMES,
        "CANARIES/runs.db length",
    )
    .instead(&[(", '..', '/tmp'", "")]),
    control(40, PYTHON, files::BITS_AND_ATTRIBUTES, "attribute"),
    // The times of the host's devices stay as they are.
    control(46, PYTHON, files::DEVICES, "ptmx")
        .instead(&[("['null', 'zero', 'full', 'random', 'urandom']", "[]")]),
    control(48, BASH, POISON, "poisoned"),
    control(49, PYTHON_BESIDE_A_VICTIM, kernel::SIGNALS, "ended by 137")
        .instead(&[("(NEIGHBOUR, SERVICE, os.getppid(), 1)", "(NEIGHBOUR,)")]),
    control(55, PYTHON_BELOW, kernel::NAMESPACES_OF_OTHERS, "opened"),
    control(62, BASH, kernel::MORE_RIGHTS, "unshared"),
    control(65, PYTHON, kernel::CRASH, "set (0, 0)"),
    control(67, BASH_THEN_LOOK, kernel::DAEMONS, "\n").times(2),
    control(73, PYTHON, network::SOCKETS, " 16,"),
    control(76, PYTHON, attempts::OWN_LISTENER, "a listener of its own")
        .instead(&[("libc = ctypes.CDLL(None, use_errno=True)", "libc = ctypes.CDLL(None, use_errno=True); libc.prctl(38, 1, 0, 0, 0)")])
        .after("if new_listener > 0: print('a listener of its own')"),
    control(88, PYTHON_BESIDE_A_SECRET, secrets::LOOKS_FOR_SECRETS, "canary-secret-1").instead(&[
        ("/proc/[0-9]*/", "/proc/NEIGHBOUR/"),
        ("['/input', '/work', '/tmp', '/dev/shm', 'SCRATCH']", "[]"),
    ]),
];
