//! Files that code leaves: the follower of the run fetches them by their digests.

use anyhow::Context;
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::gateway::v1::CallsTarget;
use contracts::tavern::sandbox::v1::DownloadBlobRequest;
use serde_json::Value;
use testkit::{Stack, invoke};
use tonic::Code;

use crate::text::calls;

const CODE: &str = "<ACTION><CodeInterpreter:execute><language>python</language>\
    <code><![CDATA[open('rows.csv', 'w').write('wheat,120\\n' * 100_000)]]></code>\
    </CodeInterpreter:execute></ACTION>";

async fn fetched(
    stack: &Stack,
    conversation: &str,
    digest: &str,
) -> Result<Vec<u8>, tonic::Status> {
    let request = DownloadBlobRequest {
        caller_id: conversation.to_owned(),
        sha256: digest.to_owned(),
        offset_bytes: 0,
    };
    let mut pieces = stack.blobs().download_blob(request).await?.into_inner();
    let mut content = Vec::new();
    while let Some(piece) = pieces.message().await? {
        content.extend_from_slice(&piece.chunk);
    }
    Ok(content)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_follower_of_a_run_fetches_what_its_code_left() -> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    let request = calls(CallsTarget {
        text: CODE.to_owned(),
        conversation_id: "harvest".to_owned(),
        ..CallsTarget::default()
    });
    let run = invoke(&stack.gateway(), request).await?;
    let mut kinds = run.events.into_iter().filter_map(|event| event.kind);
    let result = kinds.find_map(|kind| match kind {
        Kind::CallSettled(settled) => settled.result,
        _ => None,
    });
    let output: Value =
        serde_json::from_str(&result.context("the call has a result")?.output_json)?;
    let file = &output["files"][0];
    assert_eq!(file["path"], "rows.csv");
    let digest = file["sha256"].as_str().context("a digest")?;
    let content = fetched(&stack, "harvest", digest).await?;
    assert_eq!(content, "wheat,120\n".repeat(100_000).into_bytes());
    let other = fetched(&stack, "another", digest).await.unwrap_err();
    assert_eq!(other.code(), Code::NotFound);
    Ok(())
}
