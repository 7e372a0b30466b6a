//! The contract: `tavern.sandbox.v1.BlobService`.

use std::{error::Error, io, sync::Arc, time::Duration};

use blob_store::{BlobDigest, BlobError, BlobStore, Caller, PinnedBlob, Stored};
use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        BlobStat, DownloadBlobRequest, DownloadBlobResponse, StatBlobsRequest, StatBlobsResponse,
        UploadBlobRequest, UploadBlobResponse, blob_service_server::BlobService,
        upload_blob_request::Part,
    },
};
use core_types::Tenant;
use futures::stream::{BoxStream, unfold};
use grpc_kit::{CallContext, Failure};
use sandbox_engine::domain::{owner::Owner, script::identifier_problems};
use tenancy::{FairSlots, LimitReached, Quantity, Slot};
use tonic::{Code, Request, Response, Status, Streaming};

use super::{below, in_time, invalid, inward::blob_digest, outward::duration, refused, wrong};
use crate::runner::sandbox::Sandbox;

/// The longest time of one transfer.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);

/// The most uploads and downloads in progress. Each holds a piece in memory.
const MAX_TRANSFERS: usize = 64;

/// The most uploads and downloads of a tenant that wait for the end of others.
const MAX_WAITING: usize = 64;

/// The size of a piece of a download, in bytes.
const PIECE: usize = 256 << 10;

/// Serves the RPCs about blobs.
#[derive(Clone, Debug)]
pub(crate) struct BlobRpc {
    sandbox: Arc<Sandbox>,
    transfers: FairSlots,
}

impl BlobRpc {
    /// Serves the blobs of a sandbox.
    pub(crate) fn new(sandbox: Arc<Sandbox>) -> Self {
        let transfers = FairSlots::new(MAX_TRANSFERS, MAX_WAITING);
        Self { sandbox, transfers }
    }

    async fn transfer(&self, tenant: Tenant) -> Result<Slot, Status> {
        let slot = self.sandbox.turn(&self.transfers, tenant).await;
        slot.map_err(refused)
    }
}

#[tonic::async_trait]
impl BlobService for BlobRpc {
    async fn upload_blob(
        &self,
        request: Request<Streaming<UploadBlobRequest>>,
    ) -> Result<Response<UploadBlobResponse>, Status> {
        let context = CallContext::of(&request);
        let mut pieces = request.into_inner();
        let first = in_time(pieces.message()).await?;
        let Some(Part::Header(header)) = first.and_then(|first| first.part) else {
            return Err(wrong("header", "must be the first message"));
        };
        let mut problems = identifier_problems("caller_id", &header.caller_id);
        let digest = match header.sha256.as_str() {
            "" => None,
            text => blob_digest("sha256", text, &mut problems),
        };
        if !problems.is_empty() {
            return Err(invalid(below("header", problems)));
        }
        let (size, maximum) = (
            header.size_bytes,
            self.sandbox.blobs().settings().largest as u64,
        );
        if let Some(observed) = size.filter(|size| *size > maximum) {
            return Err(status(BlobError::TooLarge { maximum, observed }));
        }
        let caller = caller_of(&context, header.caller_id);
        self.sandbox
            .still_serves(context.tenant())
            .map_err(refused)?;
        let _slot = self.transfer(context.tenant()).await?;
        if let Some(digest) = digest
            && let Some(answer) = self.known(&caller, digest, size).await?
        {
            return Ok(Response::new(answer));
        }
        let stored = self.take_in(&mut pieces, caller, digest, size).await?;
        Ok(Response::new(UploadBlobResponse {
            sha256: stored.digest.to_string(),
            size_bytes: stored.size,
            existed: stored.existed,
        }))
    }

    type DownloadBlobStream = BoxStream<'static, Result<DownloadBlobResponse, Status>>;

    async fn download_blob(
        &self,
        request: Request<DownloadBlobRequest>,
    ) -> Result<Response<Self::DownloadBlobStream>, Status> {
        let context = CallContext::of(&request);
        let DownloadBlobRequest {
            caller_id,
            sha256,
            offset_bytes,
        } = request.into_inner();
        let mut problems = identifier_problems("caller_id", &caller_id);
        let digest = blob_digest("sha256", &sha256, &mut problems);
        let (Some(digest), true) = (digest, problems.is_empty()) else {
            return Err(invalid(problems));
        };
        let slot = self.transfer(context.tenant()).await?;
        let blobs = self.sandbox.blobs().clone();
        let caller = caller_of(&context, caller_id);
        let held = blocking(move || blobs.hold(&caller, digest)).await?;
        if offset_bytes > held.size() {
            let problem = format!("must be at most the size, {}", held.size());
            return Err(wrong("offset_bytes", problem));
        }
        let download = Download {
            held,
            offset: offset_bytes,
            ended: false,
            _slot: slot,
        };
        Ok(Response::new(Box::pin(unfold(download, Download::next))))
    }

    async fn stat_blobs(
        &self,
        request: Request<StatBlobsRequest>,
    ) -> Result<Response<StatBlobsResponse>, Status> {
        let context = CallContext::of(&request);
        let StatBlobsRequest { caller_id, sha256 } = request.into_inner();
        let mut problems = identifier_problems("caller_id", &caller_id);
        let digests: Vec<BlobDigest> = (sha256.iter().enumerate())
            .filter_map(|(index, text)| {
                blob_digest(&format!("sha256[{index}]"), text, &mut problems)
            })
            .collect();
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        let blobs = self.sandbox.blobs().clone();
        let caller = caller_of(&context, caller_id);
        let stats = blocking(move || {
            let stat = |digest| stat(&blobs, &caller, digest);
            Ok(digests.into_iter().map(stat).collect())
        });
        Ok(Response::new(StatBlobsResponse {
            blobs: stats.await?,
        }))
    }
}

impl BlobRpc {
    /// The answer to an upload whose content is stored already.
    async fn known(
        &self,
        caller: &Caller,
        digest: BlobDigest,
        size: Option<u64>,
    ) -> Result<Option<UploadBlobResponse>, Status> {
        let (blobs, caller) = (self.sandbox.blobs().clone(), caller.clone());
        let known = blocking(move || Ok(blobs.stat(&caller, digest))).await?;
        let Some(size_bytes) = known.map(|known| known.size) else {
            return Ok(None);
        };
        if size.is_some_and(|size| size != size_bytes) {
            return Err(other_size(size_bytes));
        }
        Ok(Some(UploadBlobResponse {
            sha256: digest.to_string(),
            size_bytes,
            existed: true,
        }))
    }

    async fn take_in(
        &self,
        pieces: &mut Streaming<UploadBlobRequest>,
        caller: Caller,
        digest: Option<BlobDigest>,
        size: Option<u64>,
    ) -> Result<Stored, Status> {
        let blobs = self.sandbox.blobs().clone();
        let mut incoming = blocking(move || blobs.take(&caller)).await?;
        while let Some(message) = pieces.message().await? {
            let Some(Part::Chunk(piece)) = message.part else {
                return Err(wrong(
                    "chunk",
                    "must be what every message but the first is",
                ));
            };
            let total = incoming.size().saturating_add(piece.len() as u64);
            if size.is_some_and(|size| total > size) {
                return Err(other_size(total));
            }
            incoming = blocking(move || incoming.write(&piece).map(|()| incoming)).await?;
        }
        if size.is_some_and(|size| size != incoming.size()) {
            return Err(other_size(incoming.size()));
        }
        blocking(move || incoming.finish(digest)).await
    }
}

/// A download in progress.
struct Download {
    held: PinnedBlob,
    offset: u64,
    ended: bool,
    _slot: Slot,
}

impl Download {
    /// The next piece; there is at least one.
    async fn next(mut self) -> Option<(Result<DownloadBlobResponse, Status>, Self)> {
        if self.ended {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || {
            let piece = self.piece();
            (piece, self)
        });
        let (piece, mut download) = read.await.ok()?;
        let piece = piece.map_err(|error| status(error.into()));
        download.ended = piece.is_err() || download.offset >= download.held.size();
        Some((piece, download))
    }

    fn piece(&mut self) -> io::Result<DownloadBlobResponse> {
        let size = self.held.size();
        let offset = self.offset;
        let wanted = usize::try_from(size - offset).map_or(PIECE, |left| left.min(PIECE));
        let mut chunk = vec![0; wanted];
        self.held.read_exact_at(&mut chunk, offset)?;
        self.offset += wanted as u64;
        Ok(DownloadBlobResponse {
            chunk,
            offset_bytes: offset,
            size_bytes: size,
        })
    }
}

/// Returns the owner that a request names, among those of its principal.
fn caller_of(context: &CallContext, caller_id: String) -> Caller {
    let owner = Owner::new(context.principal(), caller_id);
    Caller::named(context.tenant(), &owner.name())
}

fn stat(blobs: &BlobStore, caller: &Caller, digest: BlobDigest) -> BlobStat {
    let known = blobs.stat(caller, digest);
    BlobStat {
        sha256: digest.to_string(),
        exists: known.is_some(),
        size_bytes: known.map_or(0, |known| known.size),
        time_to_live: known.map(|known| duration(known.time_to_live)),
    }
}

fn other_size(observed: u64) -> Status {
    wrong(
        "header.size_bytes",
        format!("must be the size of the content, which has {observed} bytes or more"),
    )
}

/// Runs work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(status),
        Err(error) => Err(grpc_kit::internal(&error)),
    }
}

/// The status for blobs of a request that are not available: the failure of the first, and the
/// fields of all.
pub(super) fn absent(absent: &[(String, BlobError)]) -> Status {
    let first = absent.first();
    let failure = first.map_or_else(Failure::invalid_fields, |(_, error)| failure(error));
    let name = |failure: Failure, (field, error): &(String, BlobError)| {
        let problem = match error {
            BlobError::NotFound(_) => "must be uploaded",
            BlobError::Corrupt(_) => "must be uploaded again",
            _ => "cannot be read now",
        };
        failure.violation(field.as_str(), problem)
    };
    absent.iter().fold(failure, name).into_status()
}

/// The status for a failure of the store.
fn status(error: BlobError) -> Status {
    failure(&error).into_status()
}

fn failure(error: &BlobError) -> Failure {
    let about = |code, reason, digest: &BlobDigest| {
        let failure = Failure::new(code, reason, error.to_string());
        failure.metadata("sha256", digest.to_string())
    };
    let limit = |name: &str, maximum: u64, observed: u64| {
        let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Failure::limit_exceeded(name, size(maximum), size(observed))
    };
    match error {
        BlobError::NotFound(digest) => about(Code::NotFound, ErrorReason::BlobNotFound, digest),
        BlobError::Corrupt(digest) => about(Code::DataLoss, ErrorReason::DataCorrupt, digest),
        BlobError::TooLarge { maximum, observed } => limit("blob bytes", *maximum, *observed),
        BlobError::NoRoom { maximum, observed } => limit("blob bytes in use", *maximum, *observed),
        BlobError::Full { maximum } => {
            let full = Code::ResourceExhausted;
            Failure::new(full, ErrorReason::LimitExceeded, error.to_string())
                .metadata("limit", "blob bytes in use by all")
                .metadata("maximum", maximum.to_string())
        }
        BlobError::TenantFull { maximum } => {
            let (quantity, maximum) = (Quantity::StoredBytes, *maximum);
            LimitReached { quantity, maximum }.into()
        }
        BlobError::OtherContent { observed } => Failure::invalid_fields().violation(
            "header.sha256",
            format!("must be the digest of the content, which is {observed}"),
        ),
        BlobError::Storage(source) => {
            tracing::error!(
                error = source as &dyn Error,
                "the storage of the blobs failed"
            );
            let reason = ErrorReason::StorageUnavailable;
            Failure::new(Code::Unavailable, reason, error.to_string())
        }
    }
}
