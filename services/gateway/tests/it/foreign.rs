//! Keys of foreign clients, and refusals in the shapes that these parse.

use contracts::access::Role;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

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
        (&Value::Null, &json!(-32000))
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

/// A request that cannot be read, and the status of its answer to a caller.
struct Unreadable {
    verb: &'static str,
    path: &'static str,
    headers: &'static str,
    body: &'static [u8],
    status: u16,
}

const fn unreadable(path: &'static str, headers: &'static str, body: &'static [u8]) -> Unreadable {
    let verb = if body.is_empty() { "GET" } else { "POST" };
    Unreadable {
        verb,
        path,
        headers,
        body,
        status: 400,
    }
}

/// A call by gRPC-Web whose message is not protobuf.
const WEB: Unreadable = Unreadable {
    status: 200,
    ..unreadable(
        PROFILES,
        "content-type: application/grpc-web+proto\r\n",
        &[0, 0, 0, 0, 1, 255],
    )
};

/// A request by JSON-RPC, which reports its failures by 200.
const JSON_RPC: Unreadable = Unreadable {
    status: 200,
    ..unreadable("/a2a", JSON, b"{")
};

/// A request in a compression that is not supported.
const BROTLI: Unreadable = Unreadable {
    status: 501,
    ..unreadable(
        PROFILES,
        "content-type: application/json\r\ncontent-encoding: br\r\n",
        b"x",
    )
};

/// A request for a ticket that is too long.
const LONG: Unreadable = Unreadable {
    status: 429,
    ..unreadable("/v1/ticket", JSON, &[b' '; 5_000])
};

const UNREADABLE: [Unreadable; 15] = [
    WEB,
    JSON_RPC,
    unreadable(PROFILES, JSON, b"{"),
    unreadable(PROFILES, JSON, b"{\"no_such_field\": 1}"),
    unreadable(
        PROFILES,
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
        b"x",
    ),
    BROTLI,
    LONG,
    unreadable(
        PROFILES,
        "content-type: application/json\r\nconnect-timeout-ms: x\r\n",
        b"{}",
    ),
    unreadable(
        "/tavern.agent.v1.ProfileService/ListProfiles?encoding=json&message=%7B",
        "",
        b"",
    ),
    unreadable(
        "/tavern.agent.v1.ProfileService/ListProfiles?encoding=x",
        "",
        b"",
    ),
    unreadable("/v1/chat/completions", JSON, b"{"),
    unreadable("/a2a/helper/message:send", JSON, b"{"),
    unreadable(
        "/a2a/helper/message:send",
        "content-type: text/plain\r\n",
        b"{}",
    ),
    unreadable("/a2a/helper/tasks?pageSize=x", "", b""),
    unreadable("/v1/runs/turn_1/events?after_sequence=x", "", b""),
];

#[tokio::test]
async fn a_request_without_a_key_is_refused_before_it_is_read() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Admin);
    for request in UNREADABLE {
        let Unreadable {
            verb,
            path,
            headers,
            body,
            status,
        } = request;
        let what = format!("{verb} {path} {headers}");
        let answer = guarded.send(verb, path, headers, body).await;
        match path == PROFILES && headers.contains("grpc-web") {
            true => assert!(answer.head.contains("grpc-status: 16"), "{what}"),
            false => assert_eq!(answer.status, 401, "{what}: {}", answer.text()),
        }
        let mine = format!("{headers}{}", bearer(&key));
        let answer = guarded.send(verb, path, &mine, body).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        assert!(!answer.head.contains("grpc-status: 16"), "{what}");
    }
}

#[tokio::test]
async fn a_request_ends_when_its_key_is_revoked_while_it_is_read() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Admin);
    guarded.identities.key("bea", Role::Admin);
    let mut client = TcpStream::connect(guarded.address).await.unwrap();
    let (host, mine) = (guarded.address, bearer(&key));
    let head = format!(
        "POST {PROFILES} HTTP/1.1\r\nhost: {host}\r\n{JSON}{mine}content-length: 2\r\n\r\n{{"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    while guarded.identities.resolved() == 0 {
        tokio::task::yield_now().await;
    }
    guarded.identities.revoke("ada");
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    assert!(guarded.seen.take().is_empty());
}

#[tokio::test]
async fn a_stream_of_connect_without_a_key_is_refused_before_it_is_read() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Admin);
    let headers = "content-type: application/connect+json\r\n";
    let mine = format!("{headers}{}", bearer(&key));
    let watch = "/tavern.run.v1.RunService/WatchRun";
    for (headers, code) in [(headers, "unauthenticated"), (&mine, "invalid_argument")] {
        // The message after the head is not JSON.
        let answer = guarded.send("POST", watch, headers, b"\0\0\0\0\x01{").await;
        let end: Value = serde_json::from_slice(&answer.body[5..]).unwrap();
        assert_eq!(end["error"]["code"], code, "{end}");
    }
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
