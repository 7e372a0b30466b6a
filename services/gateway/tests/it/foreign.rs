//! Keys of foreign clients, and refusals in the shapes that these parse.

use contracts::access::Role;
use serde_json::{Value, json};

use crate::door::{Guarded, RUN};
use crate::edge::Answer;

const PROFILES: &str = "/tavern.agent.v1.ProfileService/ListProfiles";
const JSON: &str = "content-type: application/json\r\n";

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

fn asks_for_a_key(answer: &Answer) {
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert!(answer.has("www-authenticate: bearer"), "{}", answer.head);
}

/// Checks that one call has reached the handler, as ada's.
fn reached(guarded: &Guarded) {
    let witnessed = guarded.seen.only();
    assert_eq!(witnessed.context.principal().as_str(), "ada");
    assert!(!witnessed.headers.contains_key("authorization"));
    assert!(!witnessed.headers.contains_key("cookie"));
}

#[tokio::test]
async fn clients_of_openai_are_answered_in_its_shape() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let wrong = bearer("sk-wrong");
    for headers in ["", &wrong] {
        for (verb, path) in [("GET", "/v1/models"), ("POST", "/v1/chat/completions")] {
            let body = json!({"model": "a", "messages": [{"role": "user", "content": "Hi"}]});
            let headers = format!("{headers}{JSON}");
            let body = body.to_string();
            let answer = guarded.send(verb, path, &headers, body.as_bytes()).await;
            asks_for_a_key(&answer);
            let error = &answer.json()["error"];
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["code"], "invalid_api_key");
            assert!(error["message"].as_str().unwrap().contains("Bearer"));
        }
    }
    let mine = bearer(&key);
    let models = guarded.send("GET", "/v1/models", &mine, b"").await;
    assert_eq!(models.status, 200);
    reached(&guarded);
    let body = json!({"model": "a", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let headers = format!("{mine}{JSON}");
    let answer = guarded
        .send("POST", "/v1/chat/completions", &headers, body.as_bytes())
        .await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["error"]["code"], "permission_denied");
}

#[tokio::test]
async fn clients_of_a2a_are_answered_in_the_shape_of_their_binding() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let version = "a2a-version: 1.0\r\n";
    let asked = |method: &str| {
        let asked = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {"id": "t"}});
        asked.to_string()
    };
    let headers = format!("{version}{JSON}");
    let answer = guarded
        .send("POST", "/a2a", &headers, asked("GetTask").as_bytes())
        .await;
    asks_for_a_key(&answer);
    let answer = answer.json();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(7), &json!(-32000))
    );
    let mine = format!("{headers}{}", bearer(&key));
    let answer = guarded
        .send("POST", "/a2a", &mine, asked("CancelTask").as_bytes())
        .await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["jsonrpc"], "2.0");
    let answer = guarded
        .send("POST", "/a2a", &mine, asked("GetTask").as_bytes())
        .await;
    assert_eq!(
        (answer.status, answer.json()["error"].clone()),
        (200, Value::Null)
    );
    reached(&guarded);

    for path in ["/a2a/helper/tasks/t", "/a2a/helper/extendedAgentCard"] {
        let answer = guarded.send("GET", path, &headers, b"").await;
        asks_for_a_key(&answer);
        assert_eq!(answer.json()["error"]["status"], "UNAUTHENTICATED");
        let answer = guarded.send("GET", path, &mine, b"").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        reached(&guarded);
    }
    let answer = guarded
        .send("POST", "/a2a/helper/tasks/t:cancel", &mine, b"{}")
        .await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["error"]["status"], "PERMISSION_DENIED");
}

#[tokio::test]
async fn the_public_pages_need_no_key() {
    let guarded = Guarded::start().await;
    guarded.identities.key("ada", Role::Viewer);
    for path in [
        "/",
        "/console",
        "/console/console.js",
        "/console/console.css",
        "/console/icon.svg",
        "/.well-known/agent-card.json",
        "/a2a/helper/.well-known/agent-card.json",
    ] {
        let answer = guarded.send("GET", path, "", b"").await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[tokio::test]
async fn connect_and_grpc_web_pass_a_key_on() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let answer = guarded.send("POST", PROFILES, JSON, b"{}").await;
    asks_for_a_key(&answer);
    assert_eq!(answer.json()["code"], "unauthenticated");
    let mine = bearer(&key);
    let answer = guarded
        .send("POST", PROFILES, &format!("{JSON}{mine}"), b"{}")
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    reached(&guarded);
    let create = "/tavern.registry.v1.IdentityService/CreateKey";
    let body = b"{\"principal\": \"ci\"}";
    let answer = guarded
        .send("POST", create, &format!("{JSON}{mine}"), body)
        .await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["code"], "permission_denied");

    let web = "content-type: application/grpc-web+proto\r\n";
    let answer = guarded.send("POST", PROFILES, web, &[0; 5]).await;
    assert!(answer.head.contains("grpc-status: 16"), "{}", answer.head);
    let answer = guarded
        .send("POST", PROFILES, &format!("{web}{mine}"), &[0; 5])
        .await;
    let body = String::from_utf8_lossy(&answer.body);
    assert!(body.contains("grpc-status:0"), "{body}");
    reached(&guarded);
}

#[tokio::test]
async fn event_streams_are_refused_before_they_begin() {
    let guarded = Guarded::start().await;
    guarded.identities.key("ada", Role::Viewer);
    let path = format!("/v1/runs/{RUN}/events");
    let answer = guarded.send("GET", &path, "", b"").await;
    asks_for_a_key(&answer);
    assert_eq!(answer.json()["code"], "unauthenticated");
    assert!(guarded.seen.take().is_empty());
}
