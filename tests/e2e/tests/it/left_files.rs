//! Files that code leaves: the follower of the run fetches them by their digests.

use anyhow::Context;
use contracts::tavern::sandbox::v1::DownloadBlobRequest;
use testkit::Stack;
use tonic::Code;

use crate::text::{output, result_of};

pub(crate) const CODE: &str = "<ACTION><CodeInterpreter:execute><language>python</language>\
    <code><![CDATA[open('rows.csv', 'w').write('wheat,120\\n' * 100_000)]]></code>\
    </CodeInterpreter:execute></ACTION>";

pub(crate) async fn fetched(
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
    let left = result_of(&stack, "harvest", CODE.to_owned()).await?;
    let output = output(&left)?;
    let file = &output["files"][0];
    assert_eq!(file["path"], "rows.csv");
    let digest = file["digest"].as_str().context("a digest")?;
    let digest = digest.strip_prefix("sha256:").context("its kind")?;
    let content = fetched(&stack, "harvest", digest).await?;
    assert_eq!(content, "wheat,120\n".repeat(100_000).into_bytes());
    let other = fetched(&stack, "another", digest).await.unwrap_err();
    assert_eq!(other.code(), Code::NotFound);
    Ok(())
}
