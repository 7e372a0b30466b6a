//! Results of cells: values in media types.

use blob_store::{BlobDigest, Caller};
use contracts::tavern::sandbox::v1::{Representation, ResultOrigin, representation::Content};
use core_types::Tenant;

use super::*;
use crate::support::patient;

mod hostile;
mod large_set;
mod node;
mod python;
mod shown_set;
mod yardstick;

impl Host {
    /// A host with the package sets, and a session with one of them.
    async fn with_set(set: &str) -> (Host, Session) {
        let host = Host::with(SandboxSettings {
            packages_directory: crate::packages::sets(),
            ..SandboxSettings::default()
        })
        .await;
        let session = host
            .session_with(CreateSessionRequest {
                packages: set.to_owned(),
                limits: Some(patient()),
                ..wish("python3")
            })
            .await;
        (host, session)
    }

    /// The content of a representation, which may be a blob.
    fn content(&self, part: &Representation) -> Vec<u8> {
        let content = match part.content.clone().unwrap() {
            Content::Text(text) => text.into_bytes(),
            Content::Bytes(bytes) => bytes,
            Content::BlobSha256(digest) => {
                let digest = BlobDigest::parse(&digest).unwrap();
                let owner = Caller::named(Tenant::DEFAULT, "");
                let blob = self.sandbox.blobs().hold(&owner, digest).unwrap();
                let mut content = vec![0; blob.size() as usize];
                blob.read_exact_at(&mut content, 0).unwrap();
                content
            }
        };
        assert_eq!(part.size_bytes, content.len() as u64);
        let is_blob = matches!(part.content, Some(Content::BlobSha256(_)));
        assert_eq!(is_blob, content.len() > 32 << 10, "{}", part.media_type);
        content
    }
}

/// The origin of a result with its types.
fn types(result: &CellResult) -> (ResultOrigin, Vec<&str>) {
    assert_eq!(result.main, result.origin() == ResultOrigin::Expression);
    let types = result.data.iter().map(|part| part.media_type.as_str());
    (result.origin(), types.collect())
}

/// A result as a line: the origin, then each type with its text, or the number of its bytes.
fn line(result: &CellResult) -> String {
    let (origin, _) = types(result);
    let origin = origin.as_str_name().trim_start_matches("RESULT_ORIGIN_");
    let mut line = origin.to_lowercase();
    for part in &result.data {
        let shown = match part.content.as_ref().unwrap() {
            Content::Text(text) => format!("{text:?}"),
            Content::Bytes(_) => format!("{} bytes", part.size_bytes),
            Content::BlobSha256(_) => format!("blob of {}", part.size_bytes),
        };
        line += &format!(" {}={shown}", part.media_type);
    }
    if !result.metadata_json.is_empty() {
        line += &format!(" {}", result.metadata_json);
    }
    line
}

impl Ran {
    /// Checks the results of a cell that succeeds, and the number of the others.
    #[track_caller]
    fn shows(&self, expected: &[&str], dropped: u32) {
        let lines: Vec<String> = self.results.iter().map(line).collect();
        assert_eq!(lines, expected, "{:?} {}", self.error, self.stderr);
        assert_eq!(self.ended.outcome(), CellOutcome::Succeeded, "{self:?}");
        assert_eq!(self.ended.dropped_results, dropped);
    }

    /// The text of a type of the last result.
    #[track_caller]
    fn text(&self, media_type: &str) -> &str {
        let parts = &self.results.last().expect("a result").data;
        let part = parts.iter().find(|part| part.media_type == media_type);
        let text = part.and_then(|part| match part.content.as_ref() {
            Some(Content::Text(text)) => Some(text),
            _ => None,
        });
        text.expect("a text of the type")
    }
}
