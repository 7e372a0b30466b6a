//! The files of the conversation of a transcript.

use std::collections::BTreeMap;

use contracts::tavern::registry::v1::{
    ReadFileRequest, WriteFileHeader, WriteFileRequest, read_file_response,
    workspace_service_client::WorkspaceServiceClient, write_file_request::Part,
};
use grpc_kit::Outbound;

use super::transcript::Lines;

/// Puts files into a conversation, as a person does.
pub(super) async fn put(
    client: &mut WorkspaceServiceClient<Outbound>,
    conversation: &str,
    files: &BTreeMap<String, Lines>,
) -> anyhow::Result<()> {
    for (path, lines) in files {
        let header = Part::Header(WriteFileHeader {
            conversation_id: conversation.to_owned(),
            path: path.clone(),
            ..WriteFileHeader::default()
        });
        let parts = [header, Part::Chunk(lines.text().into_bytes())];
        let messages = parts.map(|part| WriteFileRequest { part: Some(part) });
        client
            .write_file(async_stream::stream! {
                for message in messages {
                    yield message;
                }
            })
            .await?;
    }
    Ok(())
}

/// Compares files of a conversation with the expected ones. Returns every difference.
pub(super) async fn compare(
    client: &mut WorkspaceServiceClient<Outbound>,
    conversation: &str,
    expected: &BTreeMap<String, Lines>,
) -> anyhow::Result<Vec<String>> {
    let mut differences = Vec::new();
    for (path, lines) in expected {
        let request = ReadFileRequest {
            conversation_id: conversation.to_owned(),
            path: path.clone(),
            ..ReadFileRequest::default()
        };
        let mut pieces = match client.read_file(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => {
                differences.push(format!("file {path} cannot be read: {}", status.message()));
                continue;
            }
        };
        let mut content = Vec::new();
        while let Some(piece) = pieces.message().await? {
            if let Some(read_file_response::Part::Chunk(chunk)) = piece.part {
                content.extend(chunk);
            }
        }
        let (content, expected) = (String::from_utf8_lossy(&content), lines.text());
        if content != expected {
            differences.push(format!(
                "file {path} must be {expected:?}, and is {content:?}"
            ));
        }
    }
    Ok(differences)
}
