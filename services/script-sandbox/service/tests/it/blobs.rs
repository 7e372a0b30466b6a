//! Large files over the wire.

use blob_store::{BlobDigest, BlobSettings};
use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        Collect, DownloadBlobRequest, ExecuteRequest, InputFile, Limits, StatBlobsRequest,
        UploadBlobHeader, UploadBlobRequest, UploadBlobResponse,
        blob_service_client::BlobServiceClient, upload_blob_request::Part,
    },
};
use grpc_kit::Outbound;
use script_sandbox::SandboxSettings;
use tonic::{Code, Status};

use crate::support::{
    Client, execute, expect_class, expect_output, expect_refusal, limited, python,
};

struct Host {
    blobs: BlobServiceClient<Outbound>,
    scripts: Client,
}

impl Host {
    async fn with(blobs: BlobSettings) -> Self {
        let settings = SandboxSettings {
            blobs,
            ..SandboxSettings::default()
        };
        crate::audit::listen();
        let sandbox = script_sandbox::build(settings).await.unwrap();
        let services = script_sandbox::services(sandbox);
        Self {
            blobs: BlobServiceClient::new(grpc_kit::local(&services).outermost()),
            scripts: Client::new(grpc_kit::local(&services).outermost()),
        }
    }

    async fn new() -> Self {
        Self::with(BlobSettings::default()).await
    }

    async fn upload(
        &self,
        header: UploadBlobHeader,
        pieces: &[&[u8]],
    ) -> Result<UploadBlobResponse, Status> {
        let chunk = |piece: &&[u8]| Part::Chunk(piece.to_vec());
        let parts = std::iter::once(Part::Header(header)).chain(pieces.iter().map(chunk));
        let messages: Vec<UploadBlobRequest> = parts
            .map(|part| UploadBlobRequest { part: Some(part) })
            .collect();
        let mut client = self.blobs.clone();
        let answer = client.upload_blob(futures::stream::iter(messages));
        Ok(answer.await?.into_inner())
    }

    /// The pieces from an offset on, as (offset, bytes).
    async fn download(
        &self,
        caller_id: &str,
        sha256: &str,
        offset_bytes: u64,
    ) -> Result<Vec<(u64, Vec<u8>)>, Status> {
        let request = DownloadBlobRequest {
            caller_id: caller_id.to_owned(),
            sha256: sha256.to_owned(),
            offset_bytes,
        };
        let mut stream = self
            .blobs
            .clone()
            .download_blob(request)
            .await?
            .into_inner();
        let mut pieces = Vec::new();
        while let Some(piece) = stream.message().await? {
            pieces.push((piece.offset_bytes, piece.chunk));
        }
        Ok(pieces)
    }

    async fn exists(&self, caller_id: &str, sha256: &str) -> bool {
        let request = StatBlobsRequest {
            caller_id: caller_id.to_owned(),
            sha256: vec![sha256.to_owned()],
        };
        let answer = self.blobs.clone().stat_blobs(request).await.unwrap();
        answer.into_inner().blobs[0].exists
    }
}

fn header(caller_id: &str) -> UploadBlobHeader {
    UploadBlobHeader {
        caller_id: caller_id.to_owned(),
        ..UploadBlobHeader::default()
    }
}

fn digest(content: &[u8]) -> String {
    BlobDigest::of(content).to_string()
}

#[track_caller]
fn expect_violation(status: &Status, field: &str) {
    let fields = grpc_kit::violations(status);
    assert!(fields.iter().any(|(each, _)| each == field), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_uploaded_in_pieces_is_downloaded_from_any_offset() {
    let host = Host::new().await;
    let content: Vec<u8> = (0..700_000_u32).map(|number| (number / 7) as u8).collect();
    let sha256 = digest(&content);
    let pieces: Vec<&[u8]> = content.chunks(100_000).collect();
    let stored = host.upload(header("a"), &pieces).await.unwrap();
    assert_eq!(
        (stored.sha256.as_str(), stored.size_bytes, stored.existed),
        (sha256.as_str(), 700_000, false)
    );
    for offset in [0, 1, 262_144, 699_999, 700_000] {
        let pieces = host.download("a", &sha256, offset).await.unwrap();
        assert_eq!(pieces[0].0, offset);
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(bytes, content[offset as usize..]);
    }
    let beyond = host.download("a", &sha256, 700_001).await.unwrap_err();
    expect_violation(&beyond, "offset_bytes");
    let empty = host.upload(header("a"), &[]).await.unwrap();
    let pieces = host.download("a", &empty.sha256, 0).await.unwrap();
    assert_eq!(pieces, [(0, Vec::new())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_is_answered_without_its_content() {
    let host = Host::new().await;
    host.upload(header("a"), &[b"text"]).await.unwrap();
    let known = UploadBlobHeader {
        sha256: digest(b"text"),
        ..header("a")
    };
    let answer = host.upload(known.clone(), &[]).await.unwrap();
    assert_eq!((answer.existed, answer.size_bytes), (true, 4));
    // Another caller has to upload it.
    let foreign = UploadBlobHeader {
        caller_id: "b".to_owned(),
        ..known
    };
    let status = host.upload(foreign, &[]).await.unwrap_err();
    expect_violation(&status, "header.sha256");
    assert!(!host.exists("b", &digest(b"text")).await);
    let status = host.download("b", &digest(b"text"), 0).await.unwrap_err();
    expect_refusal(&status, Code::NotFound, ErrorReason::BlobNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_uploads_are_refused_and_nothing_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::with(BlobSettings {
        directory: directory.path().to_owned(),
        total: 16 << 10,
        per_caller: 8 << 10,
        largest: 8 << 10,
        ..BlobSettings::default()
    })
    .await;
    let sized = |size| UploadBlobHeader {
        size_bytes: Some(size),
        ..header("a")
    };
    for (header, field) in [
        (sized(3), "header.size_bytes"),
        (sized(5), "header.size_bytes"),
        (
            UploadBlobHeader {
                sha256: digest(b"other"),
                ..header("a")
            },
            "header.sha256",
        ),
        (
            UploadBlobHeader {
                sha256: "XYZ".to_owned(),
                ..header("a")
            },
            "header.sha256",
        ),
        (header("with blank"), "header.caller_id"),
    ] {
        let status = host.upload(header, &[b"text"]).await.unwrap_err();
        expect_violation(&status, field);
    }
    for (header, pieces) in [
        (sized(9 << 10), &[][..]),
        (header("a"), &[&[0; 5 << 10][..], &[0; 5 << 10]]),
    ] {
        let status = host.upload(header, pieces).await.unwrap_err();
        expect_refusal(&status, Code::ResourceExhausted, ErrorReason::LimitExceeded);
    }
    let no_header = futures::stream::iter([UploadBlobRequest {
        part: Some(Part::Chunk(vec![1])),
    }]);
    let status = host.blobs.clone().upload_blob(no_header).await.unwrap_err();
    expect_violation(&status, "header");
    let names: Vec<String> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    assert_eq!(names, ["incoming"]);
    let incoming = directory.path().join("incoming");
    assert_eq!(std::fs::read_dir(incoming).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_is_given_to_a_script_and_a_large_result_comes_back_as_one() {
    let host = Host::new().await;
    let content: Vec<u8> = (0..5_000_000_u32).map(|number| number as u8).collect();
    let pieces: Vec<&[u8]> = content.chunks(1 << 20).collect();
    let stored = host.upload(header("a"), &pieces).await.unwrap();
    let source = "
data = open('in/data', 'rb').read()
print(len(data), open('twice', 'rb').read() == data)
open('out', 'wb').write(data[::-1])
";
    let file = |path: &str| InputFile {
        path: path.to_owned(),
        blob_sha256: stored.sha256.clone(),
        ..InputFile::default()
    };
    let asked = ExecuteRequest {
        files: vec![file("in/data"), file("twice")],
        collect: Some(Collect {
            max_time: crate::support::seconds(30.0),
            ..Collect::default()
        }),
        caller_id: "a".to_owned(),
        ..python(source)
    };
    let response = execute(&host.scripts, asked).await.unwrap();
    expect_output(&response, "5000000 True\n");
    let collected = response.collected.unwrap();
    assert!(!collected.partial, "{:?}", collected.refused);
    let [out] = &collected.files[..] else {
        panic!("{:?}", collected.files)
    };
    let reversed: Vec<u8> = content.iter().rev().copied().collect();
    assert_eq!(
        (out.path.as_str(), out.is_blob, &out.sha256),
        ("out", true, &digest(&reversed))
    );
    let pieces = host.download("a", &out.sha256, 0).await.unwrap();
    let bytes: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(bytes, reversed);
    assert!(!host.exists("", &out.sha256).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_cannot_be_placed_are_refused_before_anything_runs() {
    let host = Host::new().await;
    host.upload(header("a"), &[&[0; 200 << 10]]).await.unwrap();
    let file = |blob_sha256: &str, content: &[u8]| InputFile {
        path: "file".to_owned(),
        content: content.to_vec(),
        blob_sha256: blob_sha256.to_owned(),
        ..InputFile::default()
    };
    let asked = |file: InputFile, caller_id: &str| ExecuteRequest {
        files: vec![file],
        caller_id: caller_id.to_owned(),
        ..python("print('ran')")
    };
    let large = digest(&[0; 200 << 10]);
    let execute = async |asked: ExecuteRequest| execute(&host.scripts, asked).await;
    for (file, field) in [
        (file(&large, b"x"), "files[0].blob_sha256"),
        (file("abc", b""), "files[0].blob_sha256"),
    ] {
        let status = execute(asked(file, "a")).await.unwrap_err();
        expect_violation(&status, field);
    }
    let status = execute(asked(file(&large, b""), "b")).await.unwrap_err();
    expect_refusal(&status, Code::NotFound, ErrorReason::BlobNotFound);
    // All blobs that have to be uploaded are named at once.
    let missing = |path: &str, content: &[u8]| InputFile {
        path: path.to_owned(),
        blob_sha256: digest(content),
        ..InputFile::default()
    };
    let mut several = asked(file(&large, b""), "a");
    several.files.push(missing("one", b"1"));
    several.files.push(missing("two", b"2"));
    let status = execute(several).await.unwrap_err();
    expect_refusal(&status, Code::NotFound, ErrorReason::BlobNotFound);
    for field in ["files[1].blob_sha256", "files[2].blob_sha256"] {
        expect_violation(&status, field);
    }
    let limits = Limits {
        disk_bytes: Some(300 << 10),
        ..crate::support::patient()
    };
    let crowded = limited(asked(file(&large, b""), "a"), limits);
    let status = execute(crowded).await.unwrap_err();
    expect_violation(&status, "limits.disk_bytes");
    let response = execute(asked(file(&large, b""), "a")).await.unwrap();
    expect_class(&response, &["exited 0"]);
}
