//! Interpreters that waited for their script: no script notices, and none of their processes is
//! left.

use std::time::Duration;

use contracts::tavern::sandbox::v1::{
    ExecuteRequest, ExecuteResponse, InputFile, Limits, ListRuntimesRequest, Runtime,
    execute_request::Program,
};
use sandbox_engine::{domain::isolation::IsolationLevel, runtimes::Interpreter};
use script_sandbox::SandboxSettings;

use crate::rounds::as_every_user;
use crate::support::{
    Host, PATIENT, class, expect_class, expect_output, limited, reduced_settings, seconds, stderr,
    stdout,
};

/// The longest time until an interpreter waits. A machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(240);

/// A script that ends by itself, and whose limits are not above those of a waiting interpreter.
fn request(runtime: &str, source: &str) -> ExecuteRequest {
    let limits = Limits {
        wall_time: seconds(PATIENT),
        ..Limits::default()
    };
    limited(crate::support::request(runtime, source), limits)
}

pub(crate) fn python(source: &str) -> ExecuteRequest {
    request("python3", source)
}

fn cold_settings(settings: SandboxSettings) -> SandboxSettings {
    SandboxSettings {
        warm_interpreters: 0,
        ..settings
    }
}

fn levels() -> Vec<(&'static str, SandboxSettings)> {
    let default = SandboxSettings::default();
    vec![
        ("full", default.clone()),
        (
            "sampled",
            SandboxSettings {
                use_cgroups: false,
                ..default.clone()
            },
        ),
        (
            "full_without_proc",
            SandboxSettings {
                highest_isolation: IsolationLevel::FullWithoutProc,
                lowest_isolation: IsolationLevel::Reduced,
                ..default
            },
        ),
        ("reduced", reduced_settings()),
    ]
}

async fn runtime(host: &Host, name: &str) -> Runtime {
    let listed = host
        .client
        .clone()
        .list_runtimes(ListRuntimesRequest {})
        .await
        .unwrap();
    let mut runtimes = listed.into_inner().runtimes.into_iter();
    runtimes.find(|runtime| runtime.name == name).unwrap()
}

/// Runs the script until an interpreter has waited for it.
pub(crate) async fn run_warm(host: &Host, request: ExecuteRequest) -> ExecuteResponse {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let response = host.run(request.clone()).await;
        if response.usage.as_ref().unwrap().warm_start {
            return response;
        }
        let state = runtime(host, &request.runtime).await;
        assert!(
            std::time::Instant::now() < deadline && state.warm_problem.is_empty(),
            "none waits: {state:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn file(path: &str, content: &str, executable: bool) -> InputFile {
    InputFile {
        path: path.to_owned(),
        content: content.as_bytes().to_vec(),
        executable,
        ..InputFile::default()
    }
}

/// The result of a run for its caller, except the parts that differ from one run to the next.
fn gist(response: &ExecuteResponse) -> (String, String, String, i32, String) {
    (
        class(response),
        stdout(response),
        stderr(response),
        response.result_state,
        response.result_json.clone(),
    )
}

/// A text in which dots replace everything between these delimiters.
fn without(text: &str, begin: &str, end: char) -> String {
    let parts = text.split(begin).enumerate().map(|(index, part)| {
        let cut = (index > 0).then(|| part.split_once(end)).flatten();
        cut.map_or(part, |(_, rest)| rest)
    });
    parts.collect::<Vec<_>>().join("...")
}

/// A text without the trace contexts of calls, of which no two are equal.
fn without_traces(text: &str) -> String {
    const LENGTH: usize = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".len();
    let mut kept = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let context = rest.get(..LENGTH);
        let is_one = context.and_then(telemetry::context::parse_traceparent);
        let (word, length) = match is_one {
            Some(_) => ("a trace", LENGTH),
            None => (&rest[..first.len_utf8()], first.len_utf8()),
        };
        kept.push_str(word);
        rest = &rest[length..];
    }
    kept
}

const PYTHON: &[&str] = &[
    "print('hello')",
    "print(__name__, __file__, __spec__, __doc__, __package__, __cached__, type(__loader__), sorted(globals()))",
    "import sys; print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.warnoptions, sys._xoptions, sys.executable)",
    "import os; print(sorted(os.environ.items()), os.getcwd(), os.listdir('.'), os.umask(0o22))",
    "import os; print(sorted(os.listdir('/proc/self/fd')) if os.path.exists('/proc/self/fd') else '')",
    "import sys; print(sys.stdin.read(), sys.stdin.encoding, sys.stdout.encoding, sys.stdout.line_buffering)",
    "def f():\n    raise ValueError('é\u{1F600}')\nf()",
    "x = (",
    "import traceback, sys, inspect\ntraceback.print_stack()\nprint(sys._getframe().f_back, len(inspect.stack()))",
    "import sys; sys.exit(3)",
    "import sys; sys.exit('a last word')",
    "import os; os._exit(5)",
    "raise KeyboardInterrupt",
    "raise SystemExit(None)",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "import signal; print([signal.getsignal(each) for each in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)])",
    "import os; os.write(3, b'{\"a\": [1, \"\\u00e9\"]}')",
    "import os; os.write(3, b'{\"a\": ')",
    "import atexit; atexit.register(print, 'bye')",
    "import warnings; warnings.warn('old', UserWarning)",
    "import os\nif os.fork() == 0:\n    print('child', flush=True); os._exit(0)\nprint(os.wait()[1])",
    "import multiprocessing as m\ndef f(n): return n * n\nif __name__ == '__main__':\n    print(m.get_start_method(), m.Process(target=f).name)\n    with m.get_context('spawn').Pool(1) as pool: print(pool.map(f, [1, 2, 3]))",
    "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import sys, os; print(sys.argv, sorted(os.environ))'], capture_output=True, text=True))",
    "import threading; t = threading.Thread(target=lambda: print(threading.main_thread().name)); t.start(); t.join()",
    "import sys; print([name for name in sys.modules if name.startswith('sitec')], '__mp_main__' in sys.modules)",
    "import resource; print([resource.getrlimit(each) for each in range(16)])",
    "open('left', 'w').write('x'); import os; print(os.stat('left').st_uid, sorted(os.listdir('/tmp')))",
    "import asyncio; print(asyncio.run(asyncio.sleep(0, 'slept')))",
    "import logging; logging.warning('said')",
    "print(open(__file__).read() == open('main.py').read(), __import__('linecache').getline(__file__, 1))",
    "import locale, time, random, hashlib; print(locale.getpreferredencoding(), time.tzname, len(str(random.random())) > 0)",
    "import sys; print(sys.getrecursionlimit())\ndef f(n): return f(n + 1)\nf(0)",
];

const NODE: &[&str] = &[
    "console.log('hello')",
    "console.log(process.argv, process.execArgv, process.execPath, process.title, process.env, process.cwd())",
    "console.log(require.main === module, __filename, __dirname, module.parent, module.children.length, Object.keys(require.cache), module.paths)",
    "console.log(require('fs').existsSync('/proc/self/fd') ? require('fs').readdirSync('/proc/self/fd').join(' ') : '', require('fs').readdirSync('.'))",
    "console.log(Object.getOwnPropertyNames(globalThis).sort().join(' '))",
    "let all = ''; process.stdin.on('data', part => all += part).on('end', () => console.log(all))",
    "function f() { throw new TypeError('é\u{1F600}') }\nf()",
    "console.log(new Error('here').stack); setImmediate(() => console.log(new Error('later').stack))",
    "let x = (",
    "process.exit(3)",
    "process.exitCode = 4",
    "process.abort()",
    "process.kill(process.pid, 'SIGTERM')",
    "Promise.reject(new Error('not caught'))",
    "require('fs').writeSync(3, '{\"a\": 1}')",
    "process.on('exit', code => console.log('bye', code))",
    "const { Worker } = require('worker_threads'); class Own extends Worker {}; const own = new Own('const t = require(\"worker_threads\"); new t.Worker(\"console.log(process.execArgv, 2)\", { eval: true })', { eval: true, execArgv: [] }); own.on('exit', () => { const w = new Worker('require(\"worker_threads\").parentPort.postMessage(process.execArgv)', { eval: true }); w.on('message', console.log); console.log(w instanceof Worker, Worker.name, Worker.length); })",
    "require('fs').writeFileSync('child.js', 'console.log(process.argv.length, process.execArgv)'); require('child_process').fork('./child.js', ['a'])",
    "import('worker_threads').then(({ Worker, isMainThread }) => console.log(isMainThread, typeof Worker))",
    "import('fs').then(fs => console.log(typeof fs.readFileSync, Object.keys(process.versions).length > 3))",
    "console.log(require('module')._preloadModules === undefined, Object.keys(require('module')._pathCache).length)",
    "console.log([...new Set(process.moduleLoadList.map(each => each.split(' ')[0]))], process.listeners('exit').length, process._getActiveHandles().length)",
];

const BASH: &[&str] = &[
    "echo hello",
    "echo \"$0 $# $*\"; printf '[%s]' \"$@\"; echo \"$_ $- $? $! $SHLVL $SECONDS ${BASH_SOURCE[*]} ${FUNCNAME[*]} $LINENO\"",
    "env | sort; set -o; shopt; hash; trap; alias; declare -F; declare -x",
    "ls -a; [ -e /proc/self/fd ] && ls /proc/self/fd; umask",
    "cat; read -r x; echo \"[$x]\"",
    "nosuchcommand",
    "exit 9",
    "kill -SEGV $$",
    "echo '{\"a\": 1}' >&3",
    "if then",
    "trap 'echo bye' EXIT; false",
    "f() { caller; echo \"${FUNCNAME[@]}\"; }; f; (exit 4); echo $?; echo a | cat; sleep 0 & wait; ulimit -a",
    "set -u; echo $boot_word",
];

/// Scripts that observe every property that could depend on the start of their interpreter.
fn scripts() -> Vec<ExecuteRequest> {
    let each = [("python3", PYTHON), ("node", NODE), ("bash", BASH)];
    let sources = each
        .into_iter()
        .flat_map(|(runtime, sources)| sources.iter().map(move |source| request(runtime, source)));
    let single = sources.map(|request| ExecuteRequest {
        arguments: vec!["a b".to_owned(), "-c".to_owned(), "\u{1F600}\n".to_owned()],
        stdin: b"typed\nin".to_vec(),
        environment: [
            ("COLOUR".to_owned(), "blue = \u{e9}\n1".to_owned()),
            ("EMPTY".to_owned(), String::new()),
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ]
        .into(),
        effect_id: "effect-1".to_owned(),
        input_json: "[1]".to_owned(),
        ..request
    });
    single.chain(programs_of_several_files()).collect()
}

/// Programs that consist of several files.
fn programs_of_several_files() -> impl Iterator<Item = ExecuteRequest> {
    [
        (
            "python3",
            "app/tool.py",
            vec![
                file(
                    "app/tool.py",
                    "import sys, helper, pack.part\nprint(helper.word, pack.part.word, sys.path[0], __file__)\nprint(open('/input/input.json').read() if False else '')",
                    false,
                ),
                file("app/helper.py", "word = 'helped'", false),
                file("app/pack/__init__.py", "", false),
                file("app/pack/part.py", "word = 'packed'", false),
            ],
        ),
        (
            "node",
            "lib/tool.js",
            vec![
                file(
                    "lib/tool.js",
                    "import { word } from './helper.js'; console.log(word, import.meta.url, typeof require); await 1; throw new Error('at the top')",
                    false,
                ),
                file("lib/helper.js", "export const word = 'helped'", false),
                file("lib/package.json", "{\"type\": \"module\"}", false),
            ],
        ),
        (
            "bash",
            "bin/tool.sh",
            vec![
                file(
                    "bin/tool.sh",
                    "source \"${BASH_SOURCE%/*}/helper.sh\"; echo \"$word $0\"; \"${0%/*}/run.sh\"",
                    false,
                ),
                file("bin/helper.sh", "word=helped", false),
                file("bin/run.sh", "#!/bin/bash\necho ran", true),
            ],
        ),
    ]
    .into_iter()
    .map(|(runtime, entry, files)| ExecuteRequest {
            runtime: runtime.to_owned(),
            program: Some(Program::EntryPath(entry.to_owned())),
            files,
            ..ExecuteRequest::default()
    })
}

/// The interpreter that a host has chosen for a runtime.
fn chosen(host: &Host, runtime: &str) -> Interpreter {
    let mut runtimes = host.sandbox.runtimes().iter();
    let found = runtimes.find(|it| it.profile.name == runtime).unwrap();
    found.interpreter.clone().unwrap()
}

/// The profile of a runtime that finds this interpreter and no other.
fn profile_of(runtime: &str, interpreter: &Interpreter) -> String {
    let built_in = match runtime {
        "python3" => include_str!("../../../engine/profiles/python3.toml"),
        "node" => include_str!("../../../engine/profiles/node.toml"),
        _ => include_str!("../../../engine/profiles/bash.toml"),
    };
    let (before, rest) = built_in.split_once("\nfind = ").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    format!("{before}\nfind = [{:?}]\n{after}", interpreter.executable)
}

async fn check_same(settings: SandboxSettings, level: &str, runtime: &str) {
    let cold = Host::with(cold_settings(settings.clone())).await;
    // Each host measures its fastest interpreter. On a busy machine two hosts can choose
    // differently, and scripts see which one runs them.
    let interpreter = chosen(&cold, runtime);
    let profiles = tempfile::tempdir().unwrap();
    let profile = profile_of(runtime, &interpreter);
    std::fs::write(profiles.path().join("only.toml"), profile).unwrap();
    let warm = Host::with(SandboxSettings {
        warm_memory: 2 << 30,
        profiles_directory: profiles.path().to_owned(),
        ..settings
    })
    .await;
    assert_eq!(chosen(&warm, runtime), interpreter);
    // Paths of the reduced level name the service's directory and a number, and processes have the
    // machine's numbers, which Bash shows where the kernel is too old to let scripts send signals.
    let place = |text: String| match level {
        "reduced" => {
            let text = without(&text, "tavern-script-", '/');
            without(&text, "kill: (", ')')
        }
        _ => text,
    };
    let check = async |request: ExecuteRequest| {
        let expected = cold.run(request.clone()).await;
        let found = run_warm(&warm, request.clone()).await;
        assert!(!expected.usage.unwrap().warm_start);
        let show = |response| place(without_traces(&format!("{:?}", gist(response))));
        let (found, expected) = (show(&found), show(&expected));
        (found != expected).then_some((request.program, found, expected))
    };
    let mut different = Vec::new();
    for request in scripts() {
        if request.runtime == runtime {
            different.extend(check(request).await);
        }
    }
    assert!(different.is_empty(), "{level}: {different:#?}");
}

#[test]
fn a_script_does_the_same_in_a_waiting_python() {
    as_every_user(async || check_same(SandboxSettings::default(), "full", "python3").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_does_the_same_in_a_waiting_python_of_the_reduced_level() {
    check_same(reduced_settings(), "reduced", "python3").await;
}

#[test]
fn a_script_does_the_same_in_a_waiting_node() {
    as_every_user(async || check_same(SandboxSettings::default(), "full", "node").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_does_the_same_in_a_waiting_node_of_the_reduced_level() {
    check_same(reduced_settings(), "reduced", "node").await;
}

#[test]
fn a_script_does_the_same_in_a_waiting_bash() {
    as_every_user(async || check_same(SandboxSettings::default(), "full", "bash").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_does_the_same_in_a_waiting_bash_of_the_reduced_level() {
    check_same(reduced_settings(), "reduced", "bash").await;
}

#[test]
fn every_runtime_waits_on_every_level() {
    as_every_user(async || {
        for (level, settings) in levels() {
            let host = Host::with(settings).await;
            for (name, source) in [
                ("python3", "print('hello')"),
                ("node", "console.log('hello')"),
                ("bash", "echo hello"),
            ] {
                let response = run_warm(&host, request(name, source)).await;
                assert_eq!(
                    (class(&response).as_str(), stdout(&response).as_str()),
                    ("exited 0", "hello\n"),
                    "{level} {name}: {}",
                    stderr(&response)
                );
            }
            host.sandbox.shutdown().await;
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interpreter_serves_one_script_only() {
    let host = Host::full().await;
    let source = "import os, sys, random\nprint(hash('x'), random.random(), os.urandom(4).hex(), hasattr(sys, 'mark'), os.listdir('/tmp'))\nsys.mark = 1\nopen('/tmp/mark', 'w')";
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let said = stdout(&run_warm(&host, python(source)).await);
        assert!(said.ends_with("False []\n"), "{said}");
        let fresh: Vec<&str> = said.split(' ').take(3).collect();
        assert!(
            fresh.into_iter().all(|word| seen.insert(word.to_owned())),
            "{said} was seen before"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_in_a_waiting_interpreter() {
    let host = Host::full().await;
    let limits = |limits: Limits| limits;
    let cases = [
        (
            "wall",
            "import time; time.sleep(60)",
            limits(Limits {
                wall_time: seconds(0.5),
                ..Limits::default()
            }),
        ),
        (
            "cpu",
            "while True: pass",
            limits(Limits {
                cpu_time: seconds(0.5),
                ..Limits::default()
            }),
        ),
        (
            "memory",
            "x = bytearray(200 << 20)",
            limits(Limits {
                memory_bytes: Some(96 << 20),
                ..Limits::default()
            }),
        ),
        (
            "output",
            "print('x' * 100000)",
            limits(Limits {
                output_bytes: Some(1000),
                ..Limits::default()
            }),
        ),
    ];
    for (expected, source, limits) in cases {
        // Where no cgroup can be narrowed, such a script gets an interpreter of its own.
        let request = limited(python(source), limits);
        let response = if expected == "memory" {
            host.run(request).await
        } else {
            run_warm(&host, request).await
        };
        expect_class(&response, &[expected]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_waiting_is_not_counted() {
    for (level, settings) in levels() {
        let host = Host::with(settings).await;
        let response = run_warm(&host, request("node", "console.log(1)")).await;
        let whole = run_warm(
            &host,
            request(
                "node",
                "const end = Date.now() + 400; while (Date.now() < end);",
            ),
        )
        .await;
        let used = |response: &ExecuteResponse| {
            let time = response.usage.unwrap().cpu_time.unwrap();
            time.seconds as f64 + f64::from(time.nanos) / 1e9
        };
        assert!(used(&whole) > used(&response), "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_waiting_interpreter_cannot_do_is_started_cold() {
    let host = Host::full().await;
    expect_output(&run_warm(&host, python("print(1)")).await, "1\n");
    let with = |name: &str, value: &str| ExecuteRequest {
        environment: [(name.to_owned(), value.to_owned())].into(),
        ..python("import sys, json, time; print(sys.flags.optimize, json.__file__, time.tzname[0])")
    };
    let shadowed = ExecuteRequest {
        files: vec![file("json.py", "", false)],
        ..python("import json; print(json.__file__)")
    };
    let larger = limited(
        python("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"),
        Limits {
            open_files: Some(300),
            ..Limits::default()
        },
    );
    for (request, expected) in [
        (with("PYTHONOPTIMIZE", "1"), "1 "),
        (with("TZ", "JST-9"), "JST"),
        (shadowed, "/work/json.py"),
        (larger, "300"),
    ] {
        let response = host.run(request).await;
        expect_class(&response, &["exited 0"]);
        assert!(
            stdout(&response).contains(expected),
            "{}",
            stdout(&response)
        );
        assert!(!response.usage.unwrap().warm_start);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_wait_says_why_and_works() {
    let directory = tempfile::tempdir().unwrap();
    let profile = include_str!("../../../engine/profiles/python3.toml")
        .replace("\"json\", ", "\"no_such_module_anywhere\", ");
    std::fs::write(directory.path().join("python3.toml"), profile).unwrap();
    let host = Host::with(SandboxSettings {
        profiles_directory: directory.path().to_owned(),
        ..SandboxSettings::default()
    })
    .await;
    expect_output(&host.run(python("print(1)")).await, "1\n");
    let deadline = std::time::Instant::now() + PATIENCE;
    let problem = loop {
        let state = runtime(&host, "python3").await;
        if !state.warm_problem.is_empty() {
            break state.warm_problem;
        }
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(problem.contains("no_such_module_anywhere"), "{problem}");
    let response = host.run(python("print(2)")).await;
    expect_output(&response, "2\n");
    assert!(!response.usage.unwrap().warm_start);
}
