//! The results of a cell, in the output of its call.
//!
//! A representation that is a picture, or too large for an event, is kept as a file of the conversation, under a name
//! made of its digest; the output names the file.

use call_outcome::Failure;
use contracts::tavern::sandbox::v1::{
    CellResult, Representation, ResultOrigin, representation::Content,
};
use core_types::ContentDigest;
use serde_json::{Map, Value, json};
use tool_domain::path::WorkspacePath;
use workspace_store::File;

use super::CodeFiles;

/// The directory of results in the workspace.
const DIRECTORY: &str = "results";

/// Returns a result as the output has it. A representation that cannot be kept is left out, and named with the reason.
pub(super) async fn described(files: &CodeFiles, result: &CellResult) -> Value {
    let (mut data, mut not_kept) = (Map::new(), Vec::new());
    for representation in &result.data {
        let media_type = representation.media_type.as_str();
        match value(files, representation).await {
            Ok(Some(value)) => drop(data.insert(media_type.to_owned(), value)),
            Ok(None) => {}
            Err(failure) => {
                not_kept.push(json!({"media_type": media_type, "reason": failure.message}));
            }
        }
    }
    let origin = match result.origin() {
        ResultOrigin::Expression => "expression",
        ResultOrigin::Figure => "figure",
        ResultOrigin::Display | ResultOrigin::Unspecified => "display",
    };
    let metadata = json_schema::parse_json_strict(&result.metadata_json);
    let mut described = json!({
        "index": result.index,
        "origin": origin,
        "main": result.main,
        "data": data,
        "metadata": metadata.unwrap_or_else(|_| json!({})),
    });
    if !not_kept.is_empty() {
        described["not_kept"] = Value::Array(not_kept);
    }
    described
}

async fn value(
    files: &CodeFiles,
    representation: &Representation,
) -> Result<Option<Value>, Failure> {
    let media_type = representation.media_type.as_str();
    let is_picture = media_type.starts_with("image/");
    let Some(content) = &representation.content else {
        return Ok(None);
    };
    let kept = match content {
        Content::BlobSha256(digest) => {
            let path = path_of(digest, media_type);
            files.keep_blob(digest, &path).await
        }
        Content::Text(text) if is_picture => keep(files, text.as_bytes(), media_type).await,
        Content::Bytes(bytes) if is_picture => keep(files, bytes, media_type).await,
        Content::Text(text) if is_json(media_type) => {
            return Ok(json_schema::parse_json_strict(text).ok());
        }
        Content::Text(text) => return Ok(Some(json!(text))),
        Content::Bytes(bytes) => {
            use base64::{Engine, engine::general_purpose::STANDARD};
            return Ok(Some(json!(STANDARD.encode(bytes))));
        }
    };
    let file = kept?;
    Ok(Some(json!({
        "$blob": format!("sha256:{}", file.digest),
        "bytes": file.bytes,
        "path": file.path,
    })))
}

async fn keep(files: &CodeFiles, content: &[u8], media_type: &str) -> Result<File, Failure> {
    let path = path_of(&ContentDigest::of(content).to_string(), media_type);
    files.keep_bytes(content.to_vec(), &path).await
}

fn is_json(media_type: &str) -> bool {
    media_type == "application/json" || media_type.ends_with("+json")
}

/// Returns the path of content: its digest, and the usual extension of its type.
fn path_of(digest: &str, media_type: &str) -> WorkspacePath {
    /// The digits of a digest in a name.
    const DIGITS: usize = 16;
    let extension = match media_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/webp" => "webp",
        "image/gif" => "gif",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        "text/html" => "html",
        "text/markdown" => "md",
        "text/latex" => "tex",
        _ if is_json(media_type) => "json",
        _ if media_type.starts_with("text/") => "txt",
        _ => "bin",
    };
    let name = digest.get(..DIGITS).unwrap_or(digest);
    let path = WorkspacePath::file(&format!("{DIRECTORY}/{name}.{extension}"));
    path.expect("digits and letters make a path")
}
