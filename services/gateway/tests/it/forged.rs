//! Headers of services that a client forges.

use contracts::access::Role;
use contracts::tavern::agent::v1::ListProfilesRequest;
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use core_types::CallPath;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::door::Guarded;

const PROFILES: &str = "/tavern.agent.v1.ProfileService/ListProfiles";

/// The headers that are forged, in all.
const FORGED: u64 = 10_000;

/// The headers in one request.
const AT_ONCE: u64 = 25;

/// Returns a header by its number: every known one with every kind of value, and unknown ones.
fn forged(number: u64) -> (String, String) {
    let names = [
        "principal",
        "call-path",
        "call-depth",
        "on-behalf-of",
        "peer",
        "tenant",
    ];
    // A permutation of the numbers, so that each request has others.
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    let name = match names.get((mixed % 8) as usize) {
        Some(name) => format!("tavern-{name}"),
        None => format!("tavern-x{}", mixed % 997),
    };
    let value = match mixed >> 8 & 7 {
        0 => "admin".to_owned(),
        1 => "local".to_owned(),
        2 => "PEER_GATEWAY".to_owned(),
        3 => format!("{}", mixed >> 16 & 15),
        4 => "workflow:a,turn_1".to_owned(),
        5 => "-1".to_owned(),
        6 => "%ff".to_owned(),
        _ => "a".repeat((mixed >> 16 & 63) as usize),
    };
    (name, value)
}

/// Checks that the one call that was made acts for ada, below no run.
fn is_unchanged(guarded: &Guarded) {
    let witnessed = guarded.seen.only();
    assert_eq!(witnessed.context.principal().as_str(), "ada");
    assert_eq!(witnessed.context.path(), &CallPath::default());
    let names = witnessed.headers.keys();
    let mut forged = names.filter(|name| name.as_str().starts_with("tavern-"));
    assert_eq!(forged.next(), None);
}

#[tokio::test]
async fn a_client_that_forges_headers_of_services_changes_nothing() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    for first in (0..FORGED).step_by(AT_ONCE as usize) {
        let headers: Vec<_> = (first..first + AT_ONCE).map(forged).collect();
        match first / AT_ONCE % 4 {
            way @ (0 | 1) => {
                let mut request = tonic::Request::new(ListProfilesRequest::default());
                for (name, value) in headers {
                    let name: AsciiMetadataKey = name.parse().unwrap();
                    let value: AsciiMetadataValue = value.parse().unwrap();
                    request.metadata_mut().append(name, value);
                }
                let way = guarded.ways(Some(&key))[way as usize].clone();
                let mut profiles = ProfileServiceClient::new(way);
                profiles.list_profiles(request).await.unwrap();
            }
            way => {
                let capital = |name: &str| name.replace("tavern-", "Tavern-");
                let headers = headers.iter();
                let headers =
                    headers.map(|(name, value)| format!("{}: {value}\r\n", capital(name)));
                let headers: String = headers.collect();
                let headers = format!("{headers}authorization: Bearer {key}\r\n");
                let answer = match way {
                    2 => guarded.send("GET", "/v1/models", &headers, b"").await,
                    _ => {
                        let headers = format!("{headers}content-type: application/json\r\n");
                        guarded.send("POST", PROFILES, &headers, b"{}").await
                    }
                };
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        }
        is_unchanged(&guarded);
    }
}
