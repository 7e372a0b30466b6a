//! Every RPC that runs code runs it in the sandbox.

use std::{collections::BTreeSet, fs};

use contracts::tavern::sandbox::v1::{
    CreateSessionRequest, ExecuteStreamRequest, RunCellRequest, execute_stream_request::Message,
};
use prost::Message as _;

use crate::{
    rounds::{everywhere, is_root},
    support::{Host, eventually, marker, processes_with, python},
};

/// The RPCs that run code; a session takes two calls.
const WAYS: [&str; 4] = ["Execute", "ExecuteStream", "CreateSession", "RunCell"];

/// The RPCs that never run a caller's code.
const OTHERS: [&str; 9] = [
    "DeleteSession",
    "DownloadBlob",
    "GetIsolation",
    "GetSession",
    "InterruptCell",
    "ListRuntimes",
    "ListSessions",
    "StatBlobs",
    "UploadBlob",
];

/// The names of all RPCs of the sandbox, from the contract.
fn methods() -> BTreeSet<String> {
    let files = prost_types::FileDescriptorSet::decode(contracts::FILE_DESCRIPTOR_SET).unwrap();
    let own = |file: &prost_types::FileDescriptorProto| file.package() == "tavern.sandbox.v1";
    let services = files.file.into_iter().filter(own).flat_map(|it| it.service);
    let methods = services.flat_map(|service| service.method);
    methods.map(|method| method.name().to_owned()).collect()
}

/// Runs the code and waits for its end, which does not come by itself.
async fn take(host: Host, way: &str, source: String) {
    match way {
        "Execute" => drop(host.run(python(&source)).await),
        "ExecuteStream" => {
            let start = ExecuteStreamRequest {
                message: Some(Message::Start(python(&source))),
            };
            let said = futures::stream::once(async { start });
            let talk = host.client.clone().execute_stream(said).await;
            let mut talk = talk.unwrap().into_inner();
            while let Ok(Some(_)) = talk.message().await {}
        }
        _ => {
            let mut sessions = host.sessions.clone();
            let wish = CreateSessionRequest {
                runtime: "python3".to_owned(),
                ..CreateSessionRequest::default()
            };
            let made = sessions.create_session(wish).await.unwrap();
            let session = made.into_inner().session.unwrap();
            let cell = RunCellRequest {
                session_id: session.session_id,
                caller_id: session.caller_id,
                source_text: source,
                ..RunCellRequest::default()
            };
            let mut cell = sessions.run_cell(cell).await.unwrap().into_inner();
            while let Ok(Some(_)) = cell.message().await {}
        }
    }
}

/// Examines a process from outside.
fn expect_confined(host: &Host, way: &str, pid: u32) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let status = read("status");
    let zero = "0000000000000000";
    let expected = [
        ("Seccomp", "2"),
        ("NoNewPrivs", "1"),
        ("CapInh", zero),
        ("CapPrm", zero),
        ("CapEff", zero),
        ("CapBnd", zero),
        ("CapAmb", zero),
    ];
    for (name, value) in expected {
        let line = format!("{name}:\t{value}\n");
        // A process that was never root has rights in the bounding set that are useless to a
        // program that can gain none.
        let bounds = name == "CapBnd" && host.shares_its_user();
        assert!(
            bounds || status.contains(&line),
            "{way}: {line} in {status}"
        );
    }
    if host.kind == "full" && is_root() {
        assert!(read("cgroup").contains("tavern-script-"), "{way}");
    }
}

#[test]
fn e105_every_way_to_code_ends_in_the_sandbox() {
    let known: BTreeSet<String> = WAYS
        .iter()
        .chain(&OTHERS)
        .map(|it| (*it).to_owned())
        .collect();
    assert_eq!(methods(), known, "is the new RPC a way to have code run?");
    everywhere(async |host| {
        // The last two take a session together.
        for way in &WAYS[..3] {
            let marker = marker();
            let source = format!("import subprocess; subprocess.run(['sleep', '{marker}'])");
            let running = tokio::spawn(take(host.clone(), way, source));
            let mut found = Vec::new();
            eventually("the code runs", || {
                found = processes_with(&marker);
                !found.is_empty()
            })
            .await;
            for pid in found {
                expect_confined(&host, way, pid);
            }
            running.abort();
            eventually("no process is left", || processes_with(&marker).is_empty()).await;
        }
    });
}
