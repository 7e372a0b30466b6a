//! Requests that are admitted, wait or are refused.

use std::time::Duration;

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        DownloadBlobRequest, ExecuteRequest, UploadBlobHeader, UploadBlobRequest,
        blob_service_client::BlobServiceClient, upload_blob_request::Part,
    },
};
use core_types::{CallPath, Principal};
use futures::StreamExt as _;
use grpc_kit::CallContext;
use script_sandbox::SandboxSettings;
use tokio::task::JoinSet;
use tonic::{Code, Request};

use crate::{
    lifecycle::nothing_is_left,
    rounds::as_every_user,
    support::{Host, expect_output, expect_refusal, request},
};

fn of(caller: &str, asked: ExecuteRequest) -> ExecuteRequest {
    ExecuteRequest {
        caller_id: caller.to_owned(),
        ..asked
    }
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
fn e94_a_caller_that_stops_waiting_leaves_the_queue() {
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
                // Probing requests may hold the one place in the queue.
                let asked = || of("b", request("bash", "true"));
                while host.client.clone().execute(asked()).await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        });
        while could_wait(&host).await {}
        // The wait ends with the caller, and a caller that has gone waits no more.
        waiting.abort();
        while !could_wait(&host).await {}
        assert!(could_wait(&host).await);
        running.end().await;
        expect_output(&host.python("print(1)").await, "1\n");
        nothing_is_left(&host).await;
    });
}

#[test]
fn a_transfer_beyond_the_queue_of_a_tenant_is_refused_and_one_of_another_waits() {
    /// The most transfers that the service allows, and the most of a tenant that wait.
    const TRANSFERS: usize = 64 + 64;
    as_every_user(async || {
        let sandbox = script_sandbox::build(SandboxSettings::default())
            .await
            .unwrap();
        let services = script_sandbox::services(sandbox);
        let blobs = BlobServiceClient::new(grpc_kit::local(&services).outermost());
        let header = UploadBlobRequest {
            part: Some(Part::Header(UploadBlobHeader::default())),
        };
        let download = || DownloadBlobRequest {
            sha256: "0".repeat(64),
            ..DownloadBlobRequest::default()
        };
        // Uploads that never end.
        let mut endless = JoinSet::new();
        for _ in 0..=TRANSFERS {
            let mut blobs = blobs.clone();
            let begun = futures::stream::iter([header.clone()]).chain(futures::stream::pending());
            endless.spawn(async move { blobs.upload_blob(begun).await.unwrap_err() });
        }
        let refused = endless.join_next().await.unwrap().unwrap();
        expect_refusal(&refused, Code::ResourceExhausted, ErrorReason::Overloaded);
        assert!(grpc_kit::retry_after(&refused).is_some());
        let refused = blobs.clone().download_blob(download()).await.err().unwrap();
        expect_refusal(&refused, Code::ResourceExhausted, ErrorReason::Overloaded);

        let acme = Principal::new("acme/bob").unwrap();
        let acme = CallContext::new(acme, CallPath::default());
        let mut of_acme = BlobServiceClient::new(grpc_kit::local(&services).with(&acme));
        let waiting = tokio::spawn(async move { of_acme.download_blob(download()).await });
        tokio::task::yield_now().await;
        endless.shutdown().await;
        let answered = waiting.await.unwrap().err().unwrap();
        assert_eq!(answered.code(), Code::NotFound, "{answered:?}");
        let own = blobs.clone().download_blob(download()).await;
        assert_eq!(own.err().unwrap().code(), Code::NotFound);
    });
}
