//! `tavern files`: the files of a conversation.

mod local;

use std::future::pending;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use async_stream::stream;
use clap::{Args, Subcommand};
use contracts::tavern::registry::v1::workspace_service_client::WorkspaceServiceClient;
use contracts::tavern::registry::v1::{
    DeleteFileRequest, File, ListFilesRequest, MoveFileRequest, ReadFileRequest, WriteFileHeader,
    WriteFileRequest, WriteFileResponse, read_file_response, write_file_request,
};
use grpc_kit::Outbound;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tonic::Status;

use super::{Remote, json, list, print, refusal};
use local::{SaveTarget, StoreSource};

/// The piece of a file that is sent at once, in bytes.
const PIECE: usize = 64 << 10;

/// The commands about the files of a conversation.
#[derive(Subcommand)]
pub enum Command {
    /// List the files by path.
    Ls {
        /// The id of the conversation.
        conversation_id: String,
    },
    /// Save a file here.
    Get(SavedFile),
    /// Store a file of this machine, in place of the file with the same path.
    Put(StoredFile),
    /// Delete a file.
    Rm {
        /// The id of the conversation.
        conversation_id: String,
        /// The path of the file.
        path: String,
    },
    /// Give a file another path; it replaces no file.
    Mv {
        /// The id of the conversation.
        conversation_id: String,
        /// The path of the file.
        path: String,
        /// The new path.
        new_path: String,
    },
}

/// A file to save.
#[derive(Args)]
pub struct SavedFile {
    /// The id of the conversation.
    conversation_id: String,
    /// The path of the file.
    path: String,
    /// The file or directory to save it as or in, or `-` for standard output. Default: its name, in the current
    /// directory.
    local: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(long)]
    force: bool,
}

/// A file to store.
#[derive(Args)]
pub struct StoredFile {
    /// The id of the conversation.
    conversation_id: String,
    /// The path of the file.
    path: String,
    /// The file of this machine, or `-` for standard input. Default: the file with the same name in the current
    /// directory.
    local: Option<PathBuf>,
    /// Fail if the path is taken.
    #[arg(long)]
    new: bool,
}

type Workspaces = WorkspaceServiceClient<Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut files = Workspaces::new(remote.connect()?);
        let refused = |status: Status| refusal(&status);
        match self {
            Self::Ls { conversation_id } => ls(&mut files, conversation_id, remote.json).await?,
            Self::Get(get) => get.execute(&mut files, remote.json).await?,
            Self::Put(put) => {
                let written = put.execute(&mut files).await?;
                let file = written.file.context("the answer has no file")?;
                show(&file, remote.json)?;
            }
            Self::Rm {
                conversation_id,
                path,
            } => {
                let request = DeleteFileRequest {
                    conversation_id,
                    path,
                    etag: String::new(),
                };
                files.delete_file(request).await.map_err(refused)?;
            }
            Self::Mv {
                conversation_id,
                path,
                new_path,
            } => {
                let request = MoveFileRequest {
                    conversation_id,
                    path,
                    new_path,
                    etag: String::new(),
                };
                let moved = files.move_file(request).await.map_err(refused)?;
                let file = moved.into_inner().file.context("the answer has no file")?;
                show(&file, remote.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn ls(files: &mut Workspaces, conversation_id: String, as_json: bool) -> anyhow::Result<()> {
    let row = |file: &File| {
        let time = file.update_time.as_ref();
        [
            file.path.clone(),
            file.size_bytes.to_string(),
            file.media_type.clone(),
            time.map(ToString::to_string).unwrap_or_default(),
        ]
    };
    let head = ["PATH", "BYTES", "TYPE", "TIME"];
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListFilesRequest {
            conversation_id: conversation_id.clone(),
            page_token,
            ..ListFilesRequest::default()
        };
        let page = files.list_files(request).await?.into_inner();
        Ok((page.files, page.next_page_token))
    })
    .await
}

impl SavedFile {
    async fn execute(self, files: &mut Workspaces, as_json: bool) -> anyhow::Result<()> {
        let mut destination = SaveTarget::prepare(self.local, &self.path, self.force)?;
        let request = ReadFileRequest {
            conversation_id: self.conversation_id,
            path: self.path,
            ..ReadFileRequest::default()
        };
        let refused = |status: Status| refusal(&status);
        let mut pieces = files
            .read_file(request)
            .await
            .map_err(refused)?
            .into_inner();
        let mut described = None;
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        while let Some(piece) = pieces.message().await.map_err(refused)? {
            match piece.part {
                Some(read_file_response::Part::File(file)) => described = Some(file),
                Some(read_file_response::Part::Chunk(piece)) => {
                    digest.update(&piece);
                    bytes += piece.len() as u64;
                    destination.write(&piece)?;
                }
                None => {}
            }
        }
        let file = described.context("the answer describes no file")?;
        ensure!(
            bytes == file.size_bytes && hex::encode(digest.finalize()) == file.sha256,
            "the content that arrived is not that of {}; get it again",
            file.path
        );
        match (destination.keep()?, as_json) {
            (None, _) => Ok(()),
            (Some(_), true) => json::print_line(&file),
            (Some(path), false) => {
                print(&format!("{}\n", path.display()));
                Ok(())
            }
        }
    }
}

impl StoredFile {
    async fn execute(self, files: &mut Workspaces) -> anyhow::Result<WriteFileResponse> {
        let local = match self.local {
            Some(local) => local,
            None => PathBuf::from(name_of(&self.path)?),
        };
        let mut source = StoreSource::open(&local)?;
        let header = WriteFileHeader {
            conversation_id: self.conversation_id,
            path: self.path,
            size_bytes: source.size(),
            must_be_new: self.new,
            ..WriteFileHeader::default()
        };
        let (broken, failure) = oneshot::channel();
        let messages = stream! {
            yield message(write_file_request::Part::Header(header));
            let mut buffer = vec![0; PIECE];
            loop {
                match source.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => {
                        let piece = buffer.get(..count).unwrap_or_default().to_vec();
                        yield message(write_file_request::Part::Chunk(piece));
                    }
                    // The end of the stream would mean that all was sent.
                    Err(error) => {
                        let _ = broken.send(error);
                        return pending().await;
                    }
                }
            }
        };
        tokio::select! {
            written = files.write_file(messages) => {
                Ok(written.map_err(|status| refusal(&status))?.into_inner())
            }
            Ok(error) = failure => {
                Err(error).with_context(|| format!("{} cannot be read", local.display()))
            }
        }
    }
}

fn message(part: write_file_request::Part) -> WriteFileRequest {
    WriteFileRequest { part: Some(part) }
}

/// Prints a file that was stored.
fn show(file: &File, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => json::print_line(file),
        false => {
            print(&format!("{}\n", file.path));
            Ok(())
        }
    }
}

/// Returns the name of a file in its conversation, which names a file of this machine too.
fn name_of(path: &str) -> anyhow::Result<&str> {
    let name = Path::new(path).file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if path.ends_with(name) => Ok(name),
        _ => bail!("{path} ends with no name of a file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_with_the_name_of_its_file() {
        assert_eq!(name_of("out/销售 1.csv").unwrap(), "销售 1.csv");
        for path in ["", "..", "a/..", "a/", "/"] {
            assert!(name_of(path).is_err(), "{path}");
        }
    }
}
