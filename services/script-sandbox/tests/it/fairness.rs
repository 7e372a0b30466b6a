//! What one caller does is no harm to another.

use std::time::Duration;

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        DownloadBlobRequest, ExecuteRequest, UploadBlobHeader, UploadBlobRequest,
        blob_service_client::BlobServiceClient, upload_blob_request::Part,
    },
};
use futures::StreamExt as _;
use script_sandbox::{SandboxSettings, blobs::BlobSettings};
use tokio::task::JoinSet;
use tonic::{Code, Request, Status};

use crate::{
    lifecycle::nothing_is_left,
    rounds::as_every_user,
    support::{Host, expect_class, expect_output, expect_refusal, python, request},
};

fn of(caller: &str, asked: ExecuteRequest) -> ExecuteRequest {
    ExecuteRequest {
        caller_id: caller.to_owned(),
        ..asked
    }
}

/// The caller is told that it is its own share that is used up, and when to come back.
#[track_caller]
fn expect_own_share(status: &Status, what: &str, maximum: &str) {
    expect_refusal(status, Code::ResourceExhausted, ErrorReason::Overloaded);
    assert!(grpc_kit::retry_after(status).is_some());
    let metadata = grpc_kit::metadata(status);
    assert_eq!(
        (metadata["limit"].as_str(), metadata["maximum"].as_str()),
        (what, maximum)
    );
}

#[test]
fn e102_a_request_id_of_one_caller_is_nothing_to_another() {
    as_every_user(async || {
        let host = Host::full().await;
        let mut asked = python("import os; print(os.urandom(8).hex())");
        asked.request_id = "once".to_owned();
        let first = host.run(of("a", asked.clone())).await;
        let again = host.run(of("a", asked.clone())).await;
        assert_eq!((&again.stdout, again.replayed), (&first.stdout, true));
        for other in ["b", ""] {
            // Neither learns the answer, nor is kept from an id of its own.
            let answer = host.run(of(other, asked.clone())).await;
            expect_class(&answer, &["exited 0"]);
            assert!(!answer.replayed && answer.stdout != first.stdout);
        }
        asked.stdin = b"other".to_vec();
        expect_class(&host.run(of("c", asked.clone())).await, &["exited 0"]);
        let refused = host.client.clone().execute(of("a", asked)).await;
        assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists);
    });
}

#[test]
fn a_caller_with_its_share_of_scripts_waits_and_others_do_not() {
    as_every_user(async || {
        let host = Host::with(SandboxSettings {
            concurrent_scripts: 2,
            scripts_per_caller: Some(1),
            waiting_scripts: 8,
            waiting_per_caller: Some(1),
            ..SandboxSettings::default()
        })
        .await;
        let running = host.sleeper("a").await;
        let mut calls = JoinSet::new();
        for _ in 0..2 {
            let mut client = host.client.clone();
            calls.spawn(async move { client.execute(of("a", request("bash", "true"))).await });
        }
        // While the first one sleeps, one can wait and the other one cannot.
        let refused = calls.join_next().await.unwrap().unwrap().unwrap_err();
        expect_own_share(&refused, "scripts of one caller", "1");
        for other in ["b", "", "c"] {
            let answer = host.run(of(other, request("bash", "echo served"))).await;
            expect_output(&answer, "served\n");
        }
        assert!(running.is_asleep());
        running.end().await;
        let waited = calls.join_next().await.unwrap().unwrap().unwrap();
        expect_class(waited.get_ref(), &["exited 0"]);
        nothing_is_left(&host).await;
    });
}

/// Asks with a deadline that passes before a place is free: whether it could wait until then.
async fn could_wait(host: &Host) -> bool {
    let mut asked = Request::new(request("bash", "true"));
    asked.set_timeout(Duration::from_millis(50));
    let status = host.client.clone().execute(asked).await.unwrap_err();
    let refused = status.code() == Code::ResourceExhausted;
    let waited = [Code::DeadlineExceeded, Code::Cancelled].contains(&status.code());
    assert!(refused || waited, "{status:?}");
    waited
}

#[test]
fn e94_whoever_stops_waiting_leaves_the_queue() {
    as_every_user(async || {
        let host = Host::with(SandboxSettings {
            concurrent_scripts: 1,
            waiting_scripts: 1,
            ..SandboxSettings::default()
        })
        .await;
        let running = host.sleeper("a").await;
        let waiting = tokio::spawn({
            let host = host.clone();
            async move {
                // Those who only look may have the one place in the queue.
                let asked = || of("b", request("bash", "true"));
                while host.client.clone().execute(asked()).await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        });
        while could_wait(&host).await {}
        // The time of waiting is the caller's own, and one who has gone waits no more.
        waiting.abort();
        while !could_wait(&host).await {}
        assert!(could_wait(&host).await);
        running.end().await;
        expect_output(&host.python("print(1)").await, "1\n");
        nothing_is_left(&host).await;
    });
}

#[test]
fn a_caller_with_its_share_of_transfers_is_refused_and_others_are_not() {
    as_every_user(async || {
        let settings = SandboxSettings {
            blobs: BlobSettings {
                transfers: 2,
                transfers_per_caller: Some(1),
                ..BlobSettings::default()
            },
            ..SandboxSettings::default()
        };
        let sandbox = script_sandbox::build(settings).await.unwrap();
        let services = script_sandbox::rpc::services(sandbox);
        let blobs = BlobServiceClient::new(grpc_kit::local(&services));
        let upload = |caller: &str| UploadBlobRequest {
            part: Some(Part::Header(UploadBlobHeader {
                caller_id: caller.to_owned(),
                ..UploadBlobHeader::default()
            })),
        };
        let download = async |caller: &str| {
            let wish = DownloadBlobRequest {
                caller_id: caller.to_owned(),
                sha256: "0".repeat(64),
                ..DownloadBlobRequest::default()
            };
            blobs.clone().download_blob(wish).await.err().unwrap()
        };
        // An upload that never ends, and is begun again while a download has the caller's share.
        let begun = move || futures::stream::iter([upload("a")]).chain(futures::stream::pending());
        let endless = tokio::spawn({
            let mut blobs = blobs.clone();
            async move { while blobs.upload_blob(begun()).await.is_err() {} }
        });
        let refused = loop {
            let status = download("a").await;
            if status.code() != Code::NotFound {
                break status;
            }
        };
        expect_own_share(&refused, "transfers of one caller", "1");
        let mut other = blobs.clone();
        let other = other.upload_blob(futures::stream::iter([upload("b")]));
        assert_eq!(other.await.unwrap().get_ref().size_bytes, 0);
        assert_eq!(download("b").await.code(), Code::NotFound);
        endless.abort();
        while download("a").await.code() != Code::NotFound {}
    });
}
