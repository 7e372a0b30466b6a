//! Blobs, scripts and sessions of principals: each sees and uses its own only, whatever `caller_id` says.

use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        CreateSessionRequest, DeleteSessionRequest, DownloadBlobRequest, ExecuteRequest,
        GetSessionRequest, InputFile, InterruptCellRequest, ListSessionsRequest, RunCellRequest,
        Session, StatBlobsRequest, UploadBlobHeader, UploadBlobRequest,
        blob_service_client::BlobServiceClient, session_service_client::SessionServiceClient,
        upload_blob_request::Part,
    },
};
use core_types::{CallPath, Principal, Reach};
use grpc_kit::{CallContext, Outbound, Services};
use script_sandbox::SandboxSettings;
use tonic::Status;

use crate::support::{Client, python};

/// The clients of one principal.
pub(crate) struct Caller {
    blobs: BlobServiceClient<Outbound>,
    pub(crate) scripts: Client,
    sessions: SessionServiceClient<Outbound>,
}

pub(crate) async fn sandbox() -> Services {
    sandbox_with(SandboxSettings::default()).await
}

pub(crate) async fn sandbox_with(settings: SandboxSettings) -> Services {
    crate::audit::listen();
    let sandbox = script_sandbox::build(settings);
    script_sandbox::services(sandbox.await.unwrap())
}

pub(crate) fn by(services: &Services, principal: &str) -> Caller {
    let principal = Principal::new(principal).unwrap();
    // `local` is the caller of everything while no key exists; others see their own objects.
    let reach = match principal.is_local() {
        true => Reach::Tenant,
        false => Reach::Own,
    };
    reaching(services, principal, reach)
}

fn reaching(services: &Services, principal: Principal, reach: Reach) -> Caller {
    let context = CallContext::new(principal, CallPath::default()).reaching(reach);
    let to = grpc_kit::local(services);
    Caller {
        blobs: BlobServiceClient::new(to.with(&context)),
        scripts: Client::new(to.with(&context)),
        sessions: SessionServiceClient::new(to.with(&context)),
    }
}

impl Caller {
    pub(crate) async fn upload(&self, caller_id: &str, text: &str) -> String {
        self.try_upload(caller_id, text).await.unwrap()
    }

    pub(crate) async fn try_upload(&self, caller_id: &str, text: &str) -> Result<String, Status> {
        let header = UploadBlobHeader {
            caller_id: caller_id.to_owned(),
            ..UploadBlobHeader::default()
        };
        let parts = [Part::Header(header), Part::Chunk(text.as_bytes().to_vec())];
        let messages = parts.map(|part| UploadBlobRequest { part: Some(part) });
        let mut blobs = self.blobs.clone();
        let stored = blobs.upload_blob(futures::stream::iter(messages)).await;
        Ok(stored?.into_inner().sha256)
    }

    pub(crate) async fn has(&self, caller_id: &str, sha256: &str) -> bool {
        let request = StatBlobsRequest {
            caller_id: caller_id.to_owned(),
            sha256: vec![sha256.to_owned()],
        };
        let found = self.blobs.clone().stat_blobs(request).await.unwrap();
        let exists = found.into_inner().blobs[0].exists;
        let request = DownloadBlobRequest {
            caller_id: caller_id.to_owned(),
            sha256: sha256.to_owned(),
            offset_bytes: 0,
        };
        let read = self.blobs.clone().download_blob(request).await;
        assert_eq!(read.is_ok(), exists, "{caller_id}");
        exists
    }

    pub(crate) async fn try_session(&self, key: &str) -> Result<(), Status> {
        let request = CreateSessionRequest {
            runtime: "python3".to_owned(),
            session_key: key.to_owned(),
            ..CreateSessionRequest::default()
        };
        self.sessions
            .clone()
            .create_session(request)
            .await
            .map(drop)
    }

    /// Makes a session that may be ended for another one.
    pub(crate) async fn evictable(&self) -> Result<Session, Status> {
        let request = CreateSessionRequest {
            runtime: "python3".to_owned(),
            evictable: true,
            ..CreateSessionRequest::default()
        };
        let created = self.sessions.clone().create_session(request).await?;
        Ok(created.into_inner().session.unwrap())
    }

    /// Runs a cell to its end.
    pub(crate) async fn cell(&self, session: &Session, source: &str) -> Result<(), Status> {
        let request = RunCellRequest {
            session_id: session.session_id.clone(),
            caller_id: session.caller_id.clone(),
            source_text: source.to_owned(),
            ..RunCellRequest::default()
        };
        let mut answers = self.sessions.clone().run_cell(request).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok(())
    }

    pub(crate) async fn session(&self, caller_id: &str, request_id: &str) -> Session {
        let request = CreateSessionRequest {
            caller_id: caller_id.to_owned(),
            request_id: request_id.to_owned(),
            runtime: "python3".to_owned(),
            session_key: "main".to_owned(),
            ..CreateSessionRequest::default()
        };
        let created = self.sessions.clone().create_session(request).await;
        created.unwrap().into_inner().session.unwrap()
    }

    async fn list(&self, caller_id: Option<&str>) -> Vec<String> {
        let request = ListSessionsRequest {
            caller_id: caller_id.map(str::to_owned),
            ..ListSessionsRequest::default()
        };
        let page = self.sessions.clone().list_sessions(request).await.unwrap();
        let sessions = page.into_inner().sessions.into_iter();
        sessions.map(|session| session.session_id).collect()
    }

    pub(crate) async fn get(&self, session: &Session) -> Result<Session, Status> {
        let request = GetSessionRequest {
            session_id: session.session_id.clone(),
            caller_id: session.caller_id.clone(),
        };
        let got = self.sessions.clone().get_session(request).await?;
        Ok(got.into_inner().session.unwrap())
    }

    async fn reads(&self, session: &Session) -> bool {
        let got = self.get(session).await;
        got.is_ok_and(|got| got.session_id == session.session_id)
    }

    /// Names a session in each request about one; returns the reasons of the refusals.
    async fn refusals(&self, session: &Session) -> Vec<Option<ErrorReason>> {
        let (session_id, caller_id) = (session.session_id.clone(), session.caller_id.clone());
        let mut sessions = self.sessions.clone();
        let got = sessions.get_session(GetSessionRequest {
            session_id: session_id.clone(),
            caller_id: caller_id.clone(),
        });
        let got = got.await.map(drop);
        let interrupted = sessions.interrupt_cell(InterruptCellRequest {
            session_id: session_id.clone(),
            caller_id: caller_id.clone(),
            ..InterruptCellRequest::default()
        });
        let interrupted = interrupted.await.map(drop);
        let ran = sessions.run_cell(RunCellRequest {
            session_id: session_id.clone(),
            caller_id: caller_id.clone(),
            source_text: "1".to_owned(),
            ..RunCellRequest::default()
        });
        let ran = ran.await.map(drop);
        let deleted = sessions.delete_session(DeleteSessionRequest {
            session_id,
            caller_id,
        });
        let deleted = deleted.await.map(drop);
        let reason = |answer: Result<(), Status>| grpc_kit::reason(&answer.unwrap_err());
        [got, interrupted, ran, deleted].map(reason).into()
    }
}

#[tokio::test]
async fn a_blob_is_found_only_by_the_principal_that_has_it() {
    let services = sandbox().await;
    let (ada, bob) = (by(&services, "ada"), by(&services, "bob"));
    let sha256 = ada.upload("c", "of ada").await;
    assert!(ada.has("c", &sha256).await);
    assert!(!ada.has("", &sha256).await, "another name of hers");
    for caller_id in ["c", "", "ada", "ada/c"] {
        assert!(!bob.has(caller_id, &sha256).await, "{caller_id}");
        let local = by(&services, "local");
        assert!(!local.has(caller_id, &sha256).await, "{caller_id}");
    }
    let asked = ExecuteRequest {
        caller_id: "c".to_owned(),
        files: vec![InputFile {
            path: "f".to_owned(),
            blob_sha256: sha256,
            ..InputFile::default()
        }],
        ..python("print(open('f').read())")
    };
    let read = ada.scripts.clone().execute(asked.clone()).await.unwrap();
    assert_eq!(read.into_inner().stdout, b"of ada\n");
    let refused = bob.scripts.clone().execute(asked).await.unwrap_err();
    assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::BlobNotFound));
}

#[tokio::test]
async fn a_session_is_listed_and_used_only_by_the_principal_that_made_it() {
    let services = sandbox().await;
    let (ada, bob) = (by(&services, "ada"), by(&services, "bob"));
    let own = ada.session("c", "once").await;
    assert_eq!(own.caller_id, "c");
    assert_eq!(ada.session("c", "once").await.session_id, own.session_id);
    // The same name, key and request id of another principal are another session's.
    let other = bob.session("c", "once").await;
    assert_ne!(other.session_id, own.session_id);
    for caller_id in [None, Some("c")] {
        assert_eq!(
            ada.list(caller_id).await,
            std::slice::from_ref(&own.session_id)
        );
        assert_eq!(
            bob.list(caller_id).await,
            std::slice::from_ref(&other.session_id)
        );
    }
    assert_eq!(bob.list(Some("ada")).await, [""; 0]);
    let unknown = Some(ErrorReason::SessionNotFound);
    assert_eq!(bob.refusals(&own).await, [unknown; 4]);
    assert_eq!(
        by(&services, "local").list(None).await.len(),
        2,
        "`local` operates"
    );
    // A caller that operates reaches each session of its tenant.
    let operator = reaching(&services, Principal::new("eve").unwrap(), Reach::Tenant);
    assert_eq!(operator.list(Some("c")).await.len(), 2);
    assert!(operator.reads(&own).await && operator.reads(&other).await);
}

#[tokio::test]
async fn equal_names_of_two_tenants_are_two_callers_also_for_those_who_operate() {
    let services = sandbox().await;
    let (ours, theirs) = (by(&services, "ada"), by(&services, "acme/ada"));
    // Bytes of another tenant are uploaded like new ones.
    let sha256 = ours.upload("c", "equal").await;
    assert!(!theirs.has("c", &sha256).await);
    assert_eq!(theirs.upload("c", "equal").await, sha256);
    let (own, other) = (
        ours.session("c", "once").await,
        theirs.session("c", "once").await,
    );
    assert_ne!(own.session_id, other.session_id);
    let unknown = Some(ErrorReason::SessionNotFound);
    for principal in ["acme/ada", "acme/eve", "acme/local", "system/ada"] {
        for reach in [Reach::Own, Reach::Tenant] {
            let caller = reaching(&services, Principal::new(principal).unwrap(), reach);
            assert_eq!(caller.refusals(&own).await, [unknown; 4], "{principal}");
            let listed = caller.list(None).await;
            assert!(!listed.contains(&own.session_id), "{principal}");
            let of_acme =
                principal == "acme/ada" || principal != "system/ada" && reach == Reach::Tenant;
            assert_eq!(listed.contains(&other.session_id), of_acme, "{principal}");
        }
    }
    let missing = Session {
        session_id: "sess_0".to_owned(),
        ..own.clone()
    };
    let masked = |status: Status, id: &str| {
        let text = status.message().replace(id, "ID");
        (status.code(), text, grpc_kit::metadata(&status).len())
    };
    let foreign = masked(theirs.get(&own).await.unwrap_err(), &own.session_id);
    assert_eq!(
        foreign,
        masked(theirs.get(&missing).await.unwrap_err(), "sess_0")
    );
    assert!(ours.reads(&own).await && theirs.reads(&other).await);
}
