//! Puts files into a script's directories: the descriptions that the launcher receives, and the
//! content.

use std::{collections::HashMap, io, sync::Arc};

use blob_store::{BlobDigest, BlobError, BlobStore, Caller, PinnedBlob};
use sandbox_protocol::{
    channel,
    plan::{Area, DeliveredFile, Delivery},
};
use tokio::{io::AsyncWriteExt, net::UnixStream};

use crate::{
    domain::{
        script::{Content, Program, Script},
        workspace::WorkspaceFile,
    },
    output_files::{Placed, PlacedFile},
};

/// The size of one read of a blob, in bytes.
const PIECE: usize = 256 << 10;

/// The blobs of a script, held until it has ended.
#[derive(Clone, Debug, Default)]
pub struct HeldBlobs(HashMap<BlobDigest, Arc<PinnedBlob>>);

impl HeldBlobs {
    /// Holds every blob that the script reads. Blocks while it reads them.
    ///
    /// # Errors
    /// The files whose blobs are missing or damaged, by their positions in the request.
    pub fn of(script: &Script, blobs: &BlobStore) -> Result<Self, Vec<(usize, BlobError)>> {
        let caller = Caller::named(script.owner.principal().tenant(), &script.owner.name());
        let mut held = HashMap::new();
        let mut absent = Vec::new();
        for (place, file) in script.files.iter().enumerate() {
            if let Content::Blob(digest) = file.content
                && !held.contains_key(&digest)
            {
                match blobs.hold(&caller, digest) {
                    Ok(blob) => drop(held.insert(digest, Arc::new(blob))),
                    Err(error) => absent.push((place, error)),
                }
            }
        }
        if absent.is_empty() {
            Ok(Self(held))
        } else {
            Err(absent)
        }
    }

    /// The size of a blob in bytes; 0 if it is not held.
    pub fn size(&self, digest: &BlobDigest) -> u64 {
        self.0.get(digest).map_or(0, |held| held.size())
    }
}

/// The files to place: the files of the script, then its program and its input unless they are
/// among these, each with the blob of its content, if it is a blob.
#[derive(Clone, Debug)]
pub struct InputFiles {
    script: Arc<Script>,
    files: Vec<(DeliveredFile, Option<Arc<PinnedBlob>>)>,
}

impl InputFiles {
    /// The files of a script whose program has this path. A blob that is not held has no content.
    pub fn of(script: Arc<Script>, script_path: &str, blobs: &HeldBlobs) -> Self {
        let mut files = Vec::new();
        let mut add = |area, path: &str, size: usize, executable, held: Option<Arc<PinnedBlob>>| {
            let file = DeliveredFile {
                area,
                path: path.to_owned(),
                size: held.as_ref().map_or(size as u64, |held| held.size()),
                executable,
            };
            files.push((file, held));
        };
        for file in &script.files {
            let held = match &file.content {
                Content::Bytes(_) => None,
                Content::Blob(digest) => blobs.0.get(digest).cloned(),
            };
            let size = file.content.brought();
            add(Area::Work, &file.path, size, file.executable, held);
        }
        if let Program::Source(source) = &script.program {
            add(Area::Work, script_path, source.len(), false, None);
        }
        for (name, _, value) in script.values() {
            add(Area::Input, name, value.len(), false, None);
        }
        Self { script, files }
    }

    /// Sends everything as one delivery. After a failure the stream is shut down, so that the other
    /// side notices that no more comes.
    ///
    /// # Errors
    /// Fails when the stream or a blob fails.
    pub async fn send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let sent = self.try_send(stream).await;
        if sent.is_err() {
            // The failure is already reported; this one has nothing to add.
            let _ = stream.shutdown().await;
        }
        sent
    }

    async fn try_send(&self, stream: &mut UnixStream) -> io::Result<()> {
        let delivery = Delivery {
            files: self.files.iter().map(|(file, _)| file.clone()).collect(),
            directories: self.script.directories().to_vec(),
            ..Delivery::default()
        };
        stream.write_all(&channel::frame(&delivery)?).await?;
        for (index, (_, held)) in self.files.iter().enumerate() {
            match held {
                Some(held) => send_blob(held, stream).await?,
                None => stream.write_all(self.bytes(index)).await?,
            }
        }
        Ok(())
    }

    /// The files of the working directory as they are placed, to recognize unchanged ones
    /// afterwards.
    pub fn placed(&self) -> Placed {
        let files = self.files.iter().enumerate();
        let of_work = files.filter(|(_, (file, _))| file.area == Area::Work);
        of_work
            .map(|(index, (file, held))| {
                let digest = match held {
                    Some(held) => held.digest(),
                    None => BlobDigest::of(self.bytes(index)),
                };
                let placed = PlacedFile {
                    size: file.size,
                    digest,
                    executable: file.executable,
                };
                (file.path.clone().into_bytes(), placed)
            })
            .collect()
    }

    /// The paths of the files that are not of the script's workspace.
    pub fn of_no_workspace(&self) -> Vec<String> {
        let first = self
            .script
            .workspace
            .as_ref()
            .map_or(usize::MAX, |workspace| workspace.first);
        let of_workspace = first..self.script.files.len();
        let others =
            (self.files.iter().enumerate()).filter(|(index, _)| !of_workspace.contains(index));
        others.map(|(_, (file, _))| file.path.clone()).collect()
    }

    /// The content of a file that is not a blob.
    fn bytes(&self, index: usize) -> &[u8] {
        let script = &self.script;
        if let Some(file) = script.files.get(index) {
            return match &file.content {
                Content::Bytes(bytes) => bytes,
                Content::Blob(_) => &[],
            };
        }
        match (&self.files[index].0, &script.program) {
            (file, _) if file.area == Area::Input => {
                let mut values = script.values();
                let value = values.find(|(name, ..)| *name == file.path);
                value.map_or(&[], |(.., value)| value.as_bytes())
            }
            (_, Program::Source(source)) => source.as_bytes(),
            (_, Program::Entry(_) | Program::Driver) => &[],
        }
    }
}

/// Files to place in the working directory of code that runs, and paths to remove there.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The files.
    pub files: Vec<(WorkspaceFile, Arc<PinnedBlob>)>,
    /// The paths to remove.
    pub removals: Vec<String>,
}

impl Placement {
    /// The deliveries of the placement, each small enough for a frame, with the number of its first file.
    pub fn deliveries(&self) -> impl Iterator<Item = (usize, Delivery)> {
        /// The most files, and paths, of one delivery.
        const MOST: usize = 500;
        let removals = self.removals.chunks(MOST).map(|removals| {
            let removals = removals.to_vec();
            let delivery = Delivery {
                removals,
                may_fail: true,
                ..Delivery::default()
            };
            (0, delivery)
        });
        let files = self.files.chunks(MOST).enumerate().map(|(index, files)| {
            let files = files.iter().map(|(file, held)| DeliveredFile {
                area: Area::Work,
                path: file.path.clone(),
                size: held.size(),
                executable: false,
            });
            let delivery = Delivery {
                files: files.collect(),
                may_fail: true,
                ..Delivery::default()
            };
            (index * MOST, delivery)
        });
        removals.chain(files)
    }

    /// Sends one of the deliveries.
    ///
    /// # Errors
    /// Fails when the stream or a blob fails.
    pub async fn send(
        &self,
        (first, delivery): &(usize, Delivery),
        stream: &mut UnixStream,
    ) -> io::Result<()> {
        stream.write_all(&channel::frame(delivery)?).await?;
        for (_, held) in self.files.iter().skip(*first).take(delivery.files.len()) {
            send_blob(held, stream).await?;
        }
        Ok(())
    }
}

/// Sends a blob as it is stored. Its content was compared with its digest when it was pinned.
async fn send_blob(held: &Arc<PinnedBlob>, stream: &mut UnixStream) -> io::Result<()> {
    let mut offset = 0;
    while offset < held.size() {
        let reading = held.clone();
        let piece = tokio::task::spawn_blocking(move || {
            let left = usize::try_from(reading.size() - offset).unwrap_or(PIECE);
            let mut piece = vec![0; left.min(PIECE)];
            reading.read_exact_at(&mut piece, offset).map(|()| piece)
        });
        let piece = piece.await.map_err(io::Error::other)??;
        stream.write_all(&piece).await?;
        offset += piece.len() as u64;
    }
    Ok(())
}
