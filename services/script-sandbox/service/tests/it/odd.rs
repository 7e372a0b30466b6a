//! Odd requests: each is refused with its invalid fields, or runs and has an honest verdict. None
//! is a failure of the launcher.

use std::collections::HashMap;

use blob_store::Caller;
use contracts::tavern::sandbox::v1::{
    ExecuteRequest, InputFile, Limits, NetworkPolicy, execute_request::Program,
};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tonic::Code;

use crate::{
    rounds::{as_every_user, hosts},
    support::{Host, class, expect_output, patient, python, request, seconds},
};

/// The result of an odd request.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    /// Fields of it are invalid.
    Refused(Vec<String>),
    /// It ran, with this class of verdict.
    Ran(String),
}

async fn ask(host: &Host, request: ExecuteRequest) -> Came {
    match host.client.clone().execute(request).await {
        Ok(response) => {
            let response = response.into_inner();
            Came::Ran(class(&response))
        }
        Err(status) => {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            let violations = grpc_kit::violations(&status).into_iter();
            let mut fields: Vec<String> = violations.map(|(field, _)| field).collect();
            fields.sort();
            assert!(!fields.is_empty(), "{status:?}");
            Came::Refused(fields)
        }
    }
}

fn file(path: &str, size: usize) -> InputFile {
    InputFile {
        path: path.to_owned(),
        content: vec![b'\n'; size],
        ..InputFile::default()
    }
}

fn files(number: usize, size: usize) -> Vec<InputFile> {
    let path = |number| format!("d{number}/f{number}");
    (0..number)
        .map(|number| file(&path(number), size))
        .collect()
}

fn with(files: Vec<InputFile>, limits: Limits) -> ExecuteRequest {
    ExecuteRequest {
        files,
        limits: Some(limits),
        ..request("bash", ":")
    }
}

/// Runs a body on the strongest host or, in the whole matrix, on hosts of every level; after each
/// the next script runs.
async fn on_every_host(body: impl AsyncFn(&Host)) {
    for host in hosts().await {
        body(&host).await;
        expect_output(&host.python("print(1)").await, "1\n");
        host.sandbox.shutdown().await;
    }
}

#[test]
fn e23_files_that_get_in_each_others_way_are_refused_or_placed() {
    as_every_user(async || {
        on_every_host(async |host| {
            let ran = || Came::Ran("exited 0".to_owned());
            let refused = |fields: &[&str]| {
                Came::Refused(fields.iter().map(|&field| field.to_owned()).collect())
            };
            let deep = ["d"; 15].join("/") + "/x";
            let long = "n".repeat(255);
            let far = [deep.as_str(), long.as_str()];
            let cases: Vec<(&[&str], Came)> = vec![
                (&["a", "a/b"], refused(&["files[0].path"])),
                (&["a/b", "a"], refused(&["files[1].path"])),
                (&["a", "a"], refused(&["files[1].path"])),
                (&["a", "A", "\u{e4}", "a\u{308}"], ran()),
                (&["main.sh"], ran()),
                (&["main.sh/x"], ran()),
                (&["main.sh/x", "main-1.sh/y"], ran()),
                (&["input.json", ".tavern-boot/x", ".tavern-boot/y"], ran()),
                (&["-rf", "--", "*", " ", "\n", "\u{7f}", "..."], ran()),
                (
                    &[".", "..", "a/./b", "/x", "x/"],
                    refused(&[
                        "files[0].path",
                        "files[1].path",
                        "files[2].path",
                        "files[3].path",
                        "files[4].path",
                    ]),
                ),
                (&far, ran()),
                (&["work/x", "tmp/x", "input/x", "proc/self"], ran()),
            ];
            for (paths, expected) in cases {
                let files = paths.iter().map(|path| file(path, 1)).collect();
                let came = ask(host, with(files, patient())).await;
                assert_eq!(came, expected, "{}: {paths:?}", host.kind);
            }
            // A warm interpreter has its own name for the script.
            for runtime in ["python3", "node"] {
                for suffix in [".py", ".js", ".mjs", ".cjs"] {
                    let odd = ExecuteRequest {
                        files: vec![file(&format!("main{suffix}/x"), 1)],
                        ..request(runtime, "")
                    };
                    let source = Program::SourceText("1 + 1".to_owned());
                    let odd = ExecuteRequest {
                        program: Some(source),
                        ..odd
                    };
                    assert_eq!(ask(host, odd).await, ran(), "{runtime} {suffix}");
                }
            }
        })
        .await;
    });
}

#[test]
fn e23_the_longest_arguments_and_variables_reach_the_script() {
    as_every_user(async || {
        on_every_host(async |host| {
            const MOST: usize = 64 << 10;
            let full = ExecuteRequest {
                arguments: vec!["\u{1}".repeat(MOST)],
                environment: HashMap::from([("V".to_owned(), "\u{1}".repeat(MOST - 1))]),
                ..request("bash", "echo ${#1} ${#V}")
            };
            expect_output(&host.run(full.clone()).await, "65536 65535\n");
            let many = ExecuteRequest {
                arguments: vec!["a".repeat(MOST / 256); 256],
                environment: (0..128)
                    .map(|number| (format!("V{number}"), "v".repeat(500)))
                    .collect(),
                ..request("bash", "echo $#")
            };
            expect_output(&host.run(many).await, "256\n");
            let mut longer = full;
            longer.arguments.push("a".to_owned());
            longer.environment.insert("W".to_owned(), String::new());
            let refused = ask(host, longer).await;
            let fields = ["arguments", "environment"].map(str::to_owned).to_vec();
            assert_eq!(refused, Came::Refused(fields));
        })
        .await;
    });
}

#[test]
fn e25_files_leave_room_or_are_refused() {
    as_every_user(async || {
        on_every_host(async |host| {
            let limits = |disk_bytes: u64, disk_files: u32| Limits {
                disk_bytes: Some(disk_bytes),
                disk_files: Some(disk_files),
                ..patient()
            };
            let kib = 1024;
            let ran = || Came::Ran("exited 0".to_owned());
            let refused = |field: &str| Came::Refused(vec![format!("limits.{field}")]);
            for (files, limits, expected) in [
                // Many small files take whole blocks, and their directories as well.
                (
                    files(256, 1),
                    limits(64 * kib, 10_000),
                    refused("disk_bytes"),
                ),
                (files(256, 1), limits(4104 * kib, 10_000), ran()),
                (files(256, 0), limits(2056 * kib, 10_000), ran()),
                (files(3, 1), limits(64 * kib, 10_000), ran()),
                (
                    files(256, 1),
                    limits(8192 * kib, 520),
                    refused("disk_files"),
                ),
                (files(256, 1), limits(8192 * kib, 521), ran()),
                (files(4, 1), limits(8192 * kib, 16), refused("disk_files")),
                (files(3, 1), limits(8192 * kib, 16), ran()),
                (
                    files(1, 3 << 20),
                    limits(64 * kib, 100),
                    refused("disk_bytes"),
                ),
            ] {
                let case = format!("{} files, {limits:?}, {}", files.len(), host.kind);
                assert_eq!(ask(host, with(files, limits)).await, expected, "{case}");
            }
            // The limit on files that a script writes does not apply to files that it receives.
            let file_bytes = Limits {
                file_bytes: Some(1),
                ..patient()
            };
            assert_eq!(ask(host, with(files(1, 3 << 20), file_bytes)).await, ran());
        })
        .await;
    });
}

/// A limit and its value.
type Set = (&'static str, fn(&mut Limits));

/// The smallest limits that are accepted.
const SMALLEST: [Set; 10] = [
    ("wall_time", |limits| limits.wall_time = seconds(0.001)),
    ("cpu_time", |limits| limits.cpu_time = seconds(0.001)),
    ("memory_bytes", |limits| {
        limits.memory_bytes = Some(16 << 20);
    }),
    ("processes", |limits| limits.processes = Some(1)),
    ("file_bytes", |limits| limits.file_bytes = Some(1)),
    ("disk_bytes", |limits| limits.disk_bytes = Some(64 << 10)),
    ("disk_files", |limits| limits.disk_files = Some(16)),
    ("open_files", |limits| limits.open_files = Some(16)),
    ("output_bytes", |limits| limits.output_bytes = Some(1)),
    ("result_bytes", |limits| limits.result_bytes = Some(1)),
];

/// Limits that are too small.
const TOO_SMALL: [Set; 6] = [
    ("memory_bytes", |limits| limits.memory_bytes = Some(1)),
    ("processes", |limits| limits.processes = Some(0)),
    ("file_bytes", |limits| limits.file_bytes = Some(0)),
    ("disk_bytes", |limits| limits.disk_bytes = Some(1)),
    ("disk_files", |limits| limits.disk_files = Some(1)),
    ("open_files", |limits| limits.open_files = Some(1)),
];

fn set(set: fn(&mut Limits)) -> Limits {
    let mut limits = patient();
    set(&mut limits);
    limits
}

#[test]
fn e25_the_smallest_limits_have_an_honest_verdict() {
    as_every_user(async || {
        on_every_host(async |host| {
            for (name, smallest) in SMALLEST {
                for (runtime, source) in [("bash", ":"), ("python3", "1"), ("node", "1")] {
                    for network in [NetworkPolicy::Refuse, NetworkPolicy::End] {
                        let odd = ExecuteRequest {
                            limits: Some(set(smallest)),
                            network: network.into(),
                            ..request(runtime, source)
                        };
                        let case = format!("{name}, {runtime}, {network:?}, {}", host.kind);
                        let Came::Ran(class) = ask(host, odd).await else {
                            panic!("refused: {case}");
                        };
                        let own = name.split('_').next().unwrap();
                        // Node cannot run without threads and files of its own, and reports that.
                        let broken = runtime == "node" && class.starts_with("signalled");
                        assert!(
                            class == "exited 0" || class == own || broken,
                            "{class}: {case}"
                        );
                    }
                }
            }
            for (field, too_small) in TOO_SMALL {
                let came = ask(host, with(Vec::new(), set(too_small))).await;
                assert_eq!(came, Came::Refused(vec![format!("limits.{field}")]));
            }
        })
        .await;
    });
}

#[test]
fn e25_a_blob_larger_than_the_memory_has_an_honest_verdict() {
    as_every_user(async || {
        on_every_host(async |host| {
            let blobs = host.sandbox.blobs().clone();
            let stored = tokio::task::spawn_blocking(move || {
                let mut incoming = blobs
                    .take(&Caller::named(core_types::Tenant::DEFAULT, ""))
                    .unwrap();
                incoming.write(&vec![b'\n'; 40 << 20]).unwrap();
                incoming.finish(None).unwrap()
            });
            let blob = InputFile {
                blob_sha256: stored.await.unwrap().digest.to_string(),
                ..file("blob", 0)
            };
            let limits = Limits {
                memory_bytes: Some(16 << 20),
                disk_bytes: Some(128 << 20),
                ..patient()
            };
            let Came::Ran(class) = ask(host, with(vec![blob], limits)).await else {
                panic!("it is refused");
            };
            // Where the content of files is not counted, it fits.
            assert!(["exited 0", "memory"].contains(&class.as_str()), "{class}");
        })
        .await;
    });
}

#[test]
fn e25_more_than_the_memory_in_files_is_the_memory_s_verdict() {
    as_every_user(async || {
        on_every_host(async |host| {
            let odd = ExecuteRequest {
                input_json: format!("\"{}\"", "x".repeat(512 << 10)),
                ..with(
                    files(1, 3 << 20),
                    Limits {
                        memory_bytes: Some(16 << 20),
                        ..patient()
                    },
                )
            };
            let Came::Ran(class) = ask(host, odd).await else {
                panic!("it is refused");
            };
            assert!(["exited 0", "memory"].contains(&class.as_str()), "{class}");
        })
        .await;
    });
}

/// A service that may itself open fewer files than a request wants grants its own limit.
#[test]
fn a_limit_above_that_of_the_service_is_cut_to_it() {
    as_every_user(async || {
        let own = rustix::process::Rlimit {
            current: Some(1000),
            maximum: Some(1000),
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, own).unwrap();
        on_every_host(async |host| {
            let limits = Limits {
                open_files: Some(4096),
                ..patient()
            };
            let response = host
                .run(crate::support::limited(python("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 1000)"), limits))
                .await;
            expect_output(&response, "True\n");
        })
        .await;
    });
}

fn odd_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        20 => "[a-z]{1,3}",
        4 => Just("main.sh".to_owned()),
        4 => Just("main.py".to_owned()),
        2 => Just("a".to_owned()),
        2 => Just("n".repeat(255)),
        4 => "\\PC{1,8}",
        1 => Just("n".repeat(256)),
        1 => Just("..".to_owned()),
    ];
    proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn odd_request() -> impl Strategy<Value = ExecuteRequest> {
    let size = prop_oneof![4 => Just(0_usize), 4 => 1..5000_usize, 1 => Just(600 << 10)];
    let placed = proptest::collection::vec((odd_path(), size, any::<bool>()), 0..8);
    let small = |least: u32, usual: u32| prop_oneof![3 => Just(None), 1 => Just(Some(least)), 1 => (least..usual).prop_map(Some)];
    let limits = (
        small(1, 64),
        small(16, 600),
        small(16, 256),
        prop_oneof![3 => Just(None), 1 => (64_u64..4096).prop_map(|kib| Some(kib << 10))],
        prop_oneof![3 => Just(None), 1 => (16_u64..64).prop_map(|mib| Some(mib << 20))],
        prop_oneof![3 => Just(None), 1 => (1_u64..5000).prop_map(Some)],
    );
    let texts = (
        proptest::collection::vec("\\PC{0,20}", 0..5),
        proptest::collection::hash_map("[A-Z_]{1,8}", "\\PC{0,20}", 0..5),
        prop_oneof![
            Just(String::new()),
            Just("[".repeat(5000)),
            Just("{\"a\": 1}".to_owned())
        ],
        any::<bool>(),
        any::<prop::sample::Index>(),
        prop_oneof![Just("bash"), Just("bash"), Just("python3")],
    );
    (placed, limits, texts).prop_map(|(placed, limits, texts)| {
        let (processes, disk_files, open_files, disk_bytes, memory_bytes, file_bytes) = limits;
        let (arguments, environment, input_json, entry, chosen, runtime) = texts;
        let files: Vec<InputFile> = placed
            .into_iter()
            .map(|(path, size, executable)| InputFile {
                executable,
                ..file(&path, size)
            })
            .collect();
        let program = match files.get(chosen.index(files.len().max(1))) {
            Some(file) if entry => Program::EntryPath(file.path.clone()),
            _ => Program::SourceText("# nothing".to_owned()),
        };
        ExecuteRequest {
            files,
            program: Some(program),
            arguments,
            environment,
            input_json,
            limits: Some(Limits {
                processes,
                disk_files,
                open_files,
                disk_bytes,
                memory_bytes,
                file_bytes,
                ..patient()
            }),
            ..request(runtime, "")
        }
    })
}

#[test]
fn odd_requests_are_refused_or_run() {
    const CASES: usize = 150;
    as_every_user(async || {
        on_every_host(async |host| {
            // The same requests each time: a test that fails shows the same failure again.
            let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            let mut runner = TestRunner::new_with_rng(Config::default(), rng);
            let mut ran = 0;
            for _ in 0..CASES {
                let odd = odd_request().new_tree(&mut runner).unwrap().current();
                match ask(host, odd.clone()).await {
                    Came::Refused(_) => {}
                    Came::Ran(class) => {
                        ran += 1;
                        assert!(
                            !class.starts_with("launcher_failure"),
                            "{}: {class}: {odd:?}",
                            host.kind
                        );
                    }
                }
            }
            assert!(ran > CASES / 5, "only {ran} of {CASES} ran");
        })
        .await;
    });
}
