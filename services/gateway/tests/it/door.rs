//! The door in front of the gateway, in process and over a socket.

use std::net::SocketAddr;

use contracts::access::Role;
use contracts::lf::a2a::v1::a2a_service_server::A2aServiceServer;
use contracts::tavern::access::v1::Permission;
use contracts::tavern::agent::v1::ListProfilesRequest;
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use contracts::tavern::agent::v1::profile_service_server::ProfileServiceServer;
use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use contracts::tavern::registry::v1::{CreateKeyRequest, DoorLimits, ResolveCredentialRequest};
use contracts::tavern::run::v1::WatchRunRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::run::v1::run_service_server::RunServiceServer;
use gateway::{GatewaySettings, HttpSettings, Peers};
use grpc_kit::{
    ClientSettings, Outbound, Server, ServerSettings, Services, Shutdown, ShutdownHandle, Transport,
};
use http::HeaderValue;
use tonic::{Code, Status};

use crate::edge::{self, Answer};
use crate::identities::IdentityDouble;
use crate::witness::{Seen, Witness};

/// A run of the agent runtime.
pub(crate) const RUN: &str = "turn_0190f5a2c3d47e8f9a0b1c2d3e4f5a6b";

fn settings() -> GatewaySettings {
    GatewaySettings {
        http: HttpSettings {
            hosts: vec!["tavern.example".to_owned()],
            origins: vec!["https://app.example".to_owned()],
            a2a_agent: "helper".to_owned(),
            ..HttpSettings::default()
        },
        ..GatewaySettings::default()
    }
}

/// A server behind the door of a gateway.
pub(crate) struct Guarded {
    pub(crate) identities: IdentityDouble,
    pub(crate) seen: Seen,
    pub(crate) address: SocketAddr,
    near: Transport,
    far: Transport,
    _shutdown: ShutdownHandle,
}

impl Guarded {
    pub(crate) async fn start() -> Self {
        let identities = IdentityDouble::default();
        let seen = Seen::default();
        let profiles = Services::new()
            .add(Witness::<ProfileServiceServer<()>>::new(&seen))
            .add(Witness::<A2aServiceServer<()>>::new(&seen));
        let runs = Services::new().add(Witness::<RunServiceServer<()>>::new(&seen));
        let peers = Peers::over(
            grpc_kit::local(&identities.services()),
            grpc_kit::local(&Services::new()),
            grpc_kit::local(&runs.merge(profiles.clone())),
        );
        let gateway = gateway::build(settings(), peers);
        let services = gateway
            .services()
            .merge(identities.services())
            .merge(profiles);
        let near = grpc_kit::local_behind(&services, gateway.door());
        let settings = ServerSettings::default();
        let listener = grpc_kit::bind(&settings).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, handle) = Shutdown::manual();
        let server = Server::new(settings, services.clone())
            .http(gateway.http(&services))
            .door(gateway.door());
        tokio::spawn(server.serve(listener, shutdown));
        let far = grpc_kit::remote(&ClientSettings::to(format!("http://{address}"))).unwrap();
        Self {
            identities,
            seen,
            address,
            near,
            far,
            _shutdown: handle,
        }
    }

    /// Sends a request of a client that is not a browser.
    pub(crate) async fn send(&self, verb: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let headers = format!("host: {}\r\n{headers}", self.address);
        edge::send(self.address, verb, path, &headers, body).await
    }

    /// Returns the ways to the server: in process and over a socket, with the credential of a client.
    pub(crate) fn ways(&self, credential: Option<&str>) -> [Outbound; 2] {
        [&self.near, &self.far].map(|way| match credential {
            None => way.outermost(),
            Some(credential) => {
                let value = HeaderValue::try_from(format!("Bearer {credential}"));
                way.authorized(value.unwrap()).outermost()
            }
        })
    }
}

async fn list(way: Outbound) -> Result<(), Status> {
    let mut profiles = ProfileServiceClient::new(way);
    let answer = profiles.list_profiles(ListProfilesRequest::default());
    answer.await.map(drop)
}

async fn create(way: Outbound) -> Result<(), Status> {
    let mut identities = IdentityServiceClient::new(way);
    let request = CreateKeyRequest {
        principal: "ci".to_owned(),
        ..CreateKeyRequest::default()
    };
    let answer = identities.create_key(request);
    answer.await.map(drop)
}

async fn resolve(way: Outbound) -> Result<(), Status> {
    let mut identities = IdentityServiceClient::new(way);
    let answer = identities.resolve_credential(ResolveCredentialRequest::default());
    answer.await.map(drop)
}

fn reason(status: &Status) -> Option<ErrorReason> {
    grpc_kit::reason(status)
}

#[tokio::test]
async fn without_a_key_everyone_is_local_whatever_is_sent() {
    let guarded = Guarded::start().await;
    for credential in [None, Some("an approver's key"), Some("sk-dummy")] {
        for way in guarded.ways(credential) {
            list(way.clone()).await.unwrap();
            let witnessed = guarded.seen.only();
            assert!(witnessed.context.principal().is_local());
            let passed_on = witnessed.headers.contains_key("authorization");
            assert_eq!(passed_on, credential.is_some());
            create(way.clone()).await.unwrap();
            let status = resolve(way).await.unwrap_err();
            assert_eq!(reason(&status), Some(ErrorReason::PermissionDenied));
        }
    }
}

#[tokio::test]
async fn a_key_proves_its_principal_and_goes_no_further() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    for way in guarded.ways(Some(&key)) {
        list(way).await.unwrap();
        let witnessed = guarded.seen.only();
        assert_eq!(witnessed.context.principal().as_str(), "ada");
        assert!(!witnessed.headers.contains_key("authorization"));
    }
    // Both found the one answer.
    assert_eq!(guarded.identities.resolved(), 1);
}

#[tokio::test]
async fn each_bad_credential_is_refused_in_the_same_words() {
    let guarded = Guarded::start().await;
    guarded.identities.key("ada", Role::Admin);
    let long = "a".repeat(4_000);
    let credentials = [
        None,
        Some("tvk_no_such_key"),
        Some(""),
        Some("x"),
        Some(&*long),
    ];
    let mut refusals = Vec::new();
    for credential in credentials {
        for way in guarded.ways(credential) {
            let status = list(way).await.unwrap_err();
            assert_eq!(reason(&status), Some(ErrorReason::Unauthenticated));
            refusals.push((status.message().to_owned(), status.details().to_vec()));
        }
    }
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(guarded.seen.take().is_empty());
}

#[tokio::test]
async fn a_caller_without_the_permission_is_told_which_and_who_can_give_it() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Invoker);
    for way in guarded.ways(Some(&key)) {
        let status = create(way.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        let metadata = grpc_kit::metadata(&status);
        let of = |name: &str| metadata.get(name).map(String::as_str);
        assert_eq!(of("principal"), Some("ada"));
        assert_eq!(of("permission"), Some(Permission::Administer.name()));
        let method = "tavern.registry.v1.IdentityService/CreateKey";
        assert_eq!(of("method"), Some(method));
        for part in ["`administer`", "invoker", "(admin)", method] {
            assert!(status.message().contains(part), "{}", status.message());
        }
        let status = resolve(way).await.unwrap_err();
        assert_eq!(reason(&status), Some(ErrorReason::PermissionDenied));
    }
}

#[tokio::test]
async fn nothing_but_a_proven_caller_is_remembered() {
    let guarded = Guarded::start().await;
    let [way, _] = guarded.ways(None);
    for expected in 1..=3 {
        list(way.clone()).await.unwrap();
        assert_eq!(guarded.identities.resolved(), expected);
    }
    let key = guarded.identities.key("ada", Role::Viewer);
    let [mine, _] = guarded.ways(Some(&key));
    let [wrong, _] = guarded.ways(Some("wrong"));
    guarded.identities.set_away(true);
    assert_eq!(
        list(mine.clone()).await.unwrap_err().code(),
        Code::Unavailable
    );
    guarded.identities.set_away(false);
    for _ in 0..3 {
        list(mine.clone()).await.unwrap();
        list(wrong.clone()).await.unwrap_err();
    }
    // Three while open, one while away, one for the key and three for the wrong one.
    assert_eq!(guarded.identities.resolved(), 8);
}

async fn watch(
    way: Outbound,
) -> Result<tonic::Streaming<contracts::tavern::run::v1::WatchRunResponse>, Status> {
    let mut runs = RunServiceClient::new(way);
    let request = WatchRunRequest {
        run_id: RUN.to_owned(),
        after_sequence: 0,
    };
    let answer = runs.watch_run(request).await?;
    Ok(answer.into_inner())
}

#[tokio::test]
async fn an_open_stream_ends_with_its_key() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    guarded.identities.key("bob", Role::Viewer);
    for way in guarded.ways(Some(&key)) {
        let _ = guarded.identities.key("ada", Role::Viewer);
        let mut stream = watch(way).await.unwrap();
        guarded.identities.revoke("ada");
        let status = stream.message().await.unwrap_err();
        assert_eq!(reason(&status), Some(ErrorReason::Unauthenticated));
    }
}

#[tokio::test]
async fn an_open_stream_ends_with_the_permission_for_it() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let [way, _] = guarded.ways(Some(&key));
    let mut stream = watch(way).await.unwrap();
    guarded.identities.set_roles("ada", &[]);
    let status = stream.message().await.unwrap_err();
    assert_eq!(reason(&status), Some(ErrorReason::PermissionDenied));
}

#[tokio::test]
async fn a_stream_of_before_the_first_key_ends_with_it() {
    let guarded = Guarded::start().await;
    let [_, way] = guarded.ways(None);
    let mut stream = watch(way).await.unwrap();
    guarded.identities.key("ada", Role::Admin);
    let status = stream.message().await.unwrap_err();
    assert_eq!(reason(&status), Some(ErrorReason::Unauthenticated));
}

#[tokio::test]
async fn an_open_stream_ends_with_its_tenant() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let [way, _] = guarded.ways(Some(&key));
    let mut stream = watch(way).await.unwrap();
    guarded.identities.close();
    let status = stream.message().await.unwrap_err();
    assert_eq!(reason(&status), Some(ErrorReason::TenantClosed));
    assert_eq!(grpc_kit::metadata(&status)["tenant"], "default");
}

/// Returns the limit of the tenant that refuses a call.
fn limit_of(status: &Status) -> String {
    assert_eq!(reason(status), Some(ErrorReason::TenantLimit), "{status:?}");
    grpc_kit::metadata(status)["limit"].clone()
}

#[tokio::test]
async fn a_call_beyond_those_of_a_second_is_refused() {
    let guarded = Guarded::start().await;
    guarded.identities.set_limits(DoorLimits {
        calls_per_second: 1,
        streams: 0,
    });
    let key = guarded.identities.key("ada", Role::Viewer);
    let [way, _] = guarded.ways(Some(&key));
    list(way.clone()).await.unwrap();
    // On a machine that stands still between calls, each has its second.
    let mut further = 0..1_000;
    let refused = loop {
        further.next().expect("a call is refused");
        if let Err(refused) = list(way.clone()).await {
            break refused;
        }
    };
    assert_eq!(limit_of(&refused), "calls_per_second");
}

#[tokio::test]
async fn a_stream_beyond_the_open_ones_of_a_tenant_is_refused_until_another_ends() {
    let guarded = Guarded::start().await;
    guarded.identities.set_limits(DoorLimits {
        calls_per_second: 0,
        streams: 1,
    });
    let key = guarded.identities.key("ada", Role::Viewer);
    let [way, _] = guarded.ways(Some(&key));
    let open = watch(way.clone()).await.unwrap();
    let refused = watch(way.clone()).await.unwrap_err();
    assert_eq!(limit_of(&refused), "streams");
    list(way.clone()).await.unwrap();
    drop(open);
    while let Err(refused) = watch(way.clone()).await {
        assert_eq!(limit_of(&refused), "streams");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_whose_method_is_in_its_body_is_one_call() {
    let guarded = Guarded::start().await;
    guarded.identities.set_limits(DoorLimits {
        calls_per_second: 1,
        streams: 0,
    });
    let key = guarded.identities.key("ada", Role::Viewer);
    let headers = format!(
        "authorization: Bearer {key}\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n"
    );
    let body = br#"{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}}"#;
    let answer = guarded.send("POST", "/a2a", &headers, body).await;
    assert_eq!(answer.json()["error"], serde_json::Value::Null);
}
