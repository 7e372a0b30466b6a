//! Refusals in the log, and secrets that are nowhere in it.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contracts::access::Role;
use contracts::tavern::agent::v1::ListProfilesRequest;
use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::door::Guarded;

/// Every event and every span of the process, as text.
static HEARD: Mutex<String> = Mutex::new(String::new());

struct Hearing;

fn heard() -> MutexGuard<'static, String> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Subscriber> Layer<S> for Hearing {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        writeln!(heard(), "{attributes:?}").unwrap();
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        writeln!(heard(), "{values:?}").unwrap();
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        writeln!(heard(), "{event:?}").unwrap();
    }
}

#[tokio::test]
async fn a_thousand_wrong_keys_are_one_line_without_a_secret() {
    telemetry::init_for_tests_with(Hearing);
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let mine = format!("authorization: Bearer {key}\r\n");
    let body = format!("{{\"key\": \"{key}\"}}");
    let json = "content-type: application/json\r\n";
    let login = guarded.send("POST", "/v1/login", json, body.as_bytes());
    assert_eq!(login.await.status, 204);
    for path in [
        "/v1/models".to_owned(),
        format!("/v1/models?k={key}"),
        format!("/{key}"),
    ] {
        guarded.send("GET", &path, &mine, b"").await;
    }
    let [near, far] = guarded.ways(Some("tvk_wrong_0123456789abcdef"));
    for way in [near, far] {
        let mut profiles = ProfileServiceClient::new(way);
        for _ in 0..500 {
            let refused = profiles.list_profiles(ListProfilesRequest::default());
            refused.await.unwrap_err();
        }
    }
    let heard = heard().clone();
    let lines = heard
        .lines()
        .filter(|line| line.contains("refused at the door"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("tavern.agent.v1.ProfileService/ListProfiles"));
    assert!(heard.contains("ListProfiles"));
    for secret in ["0123456789abcdef", "tvs_0"] {
        let shown = heard.lines().find(|line| line.contains(secret));
        assert_eq!(shown, None);
    }
}
