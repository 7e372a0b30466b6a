//! Logins of browsers: cookies and tickets.

use contracts::access::Role;
use serde_json::{Value, json};

use crate::door::{Guarded, RUN};
use crate::edge::Answer;
use crate::socket::Socket;

const CALLER: &str = "/tavern.registry.v1.IdentityService/GetCaller";
const JSON: &str = "content-type: application/json\r\n";

async fn log_in(guarded: &Guarded, key: &str) -> Answer {
    let body = json!({"key": key}).to_string();
    guarded
        .send("POST", "/v1/login", JSON, body.as_bytes())
        .await
}

/// Returns the header with the cookie of a login.
async fn cookie(guarded: &Guarded, key: &str) -> String {
    let answer = log_in(guarded, key).await;
    assert_eq!(answer.status, 204, "{}", answer.head);
    let lines = answer.head.lines();
    let mut cookies = lines.filter_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookies.next().unwrap();
    format!("cookie: {}\r\n", cookie.split(';').next().unwrap())
}

async fn caller(guarded: &Guarded, headers: &str) -> Answer {
    let headers = format!("{JSON}{headers}");
    guarded.send("POST", CALLER, &headers, b"{}").await
}

async fn ticket(guarded: &Guarded, headers: &str) -> String {
    let answer = guarded.send("POST", "/v1/ticket", headers, b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert!(answer["expireTime"].as_str().unwrap().ends_with('Z'));
    answer["ticket"].as_str().unwrap().to_owned()
}

fn violated(answer: &Answer) -> Value {
    answer.json()["details"][1]["debug"]["fieldViolations"][0]["field"].clone()
}

#[tokio::test]
async fn a_key_is_exchanged_for_a_cookie() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let answer = log_in(&guarded, &key).await;
    let attributes = ["path=/", "httponly", "samesite=strict", "max-age="];
    let set = answer
        .head
        .lines()
        .find(|line| line.starts_with("set-cookie"));
    for attribute in attributes {
        assert!(set.unwrap().contains(attribute), "{set:?}");
    }
    assert!(!set.unwrap().contains("secure"), "{set:?}");
    let cookie = cookie(&guarded, &key).await;
    let answer = caller(&guarded, &cookie).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["caller"]["principal"], "ada");
    let other = "cookie: theme=dark; other=1\r\n";
    assert_eq!(
        caller(&guarded, &format!("{other}{cookie}")).await.status,
        200
    );
    let path = format!("{CALLER}?connect=v1&encoding=json&message=%7B%7D");
    assert_eq!(guarded.send("GET", &path, &cookie, b"").await.status, 200);
}

#[tokio::test]
async fn the_cookie_needs_tls_beyond_this_machine() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let body = json!({"key": key}).to_string();
    let headers = format!("host: tavern.example\r\n{JSON}");
    let answer = crate::edge::send(
        guarded.address,
        "POST",
        "/v1/login",
        &headers,
        body.as_bytes(),
    );
    let answer = answer.await;
    assert!(answer.head.contains("; secure"), "{}", answer.head);
}

#[tokio::test]
async fn a_bad_key_gets_no_cookie() {
    let guarded = Guarded::start().await;
    guarded.identities.key("ada", Role::Viewer);
    let long = "a".repeat(2_000);
    for key in ["tvk_unknown_0123456789", "", &long] {
        let answer = log_in(&guarded, key).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.json()["code"], "unauthenticated");
        assert!(answer.has("www-authenticate: bearer"), "{}", answer.head);
        assert!(!answer.head.contains("set-cookie"));
    }
    for body in ["", "{", "{\"key\": 1}", "{\"key\": \"a\", \"b\": 1}", "[]"] {
        let answer = guarded
            .send("POST", "/v1/login", JSON, body.as_bytes())
            .await;
        assert_eq!(answer.status, 400, "{body}");
    }
}

#[tokio::test]
async fn only_pages_of_this_server_log_in() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let body = json!({"key": key}).to_string();
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let text = "content-type: text/plain\r\n";
    for path in ["/v1/login", "/v1/logout", "/v1/ticket"] {
        for kind in [form, text] {
            let answer = guarded.send("POST", path, kind, body.as_bytes()).await;
            assert_eq!(answer.status, 415, "{path}");
        }
        let other = format!("{JSON}origin: https://other.example\r\n");
        let answer = guarded.send("POST", path, &other, body.as_bytes()).await;
        assert_eq!(answer.status, 403, "{path}");
        let verb = guarded.send("GET", path, "", b"").await;
        assert_eq!(verb.status, 405, "{path}");
    }
    let listed = format!("{JSON}origin: https://app.example\r\n");
    let answer = guarded
        .send("POST", "/v1/login", &listed, body.as_bytes())
        .await;
    assert_eq!(answer.status, 403);
    // Nor does the cookie count for such a page.
    let cookie = cookie(&guarded, &key).await;
    let listed = format!("{cookie}origin: https://app.example\r\n");
    assert_eq!(caller(&guarded, &listed).await.status, 401);
    let own = format!("{cookie}origin: http://{}\r\n", guarded.address);
    assert_eq!(caller(&guarded, &own).await.status, 200);
}

#[tokio::test]
async fn a_cookie_ends_with_its_key_and_no_other_is_one() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    guarded.identities.key("bob", Role::Viewer);
    let cookie = cookie(&guarded, &key).await;
    let altered = cookie.replace("0\r\n", "1\r\n").replace("1\r\n", "2\r\n");
    assert_ne!(altered, cookie);
    for altered in [
        &*altered,
        "cookie: tavern_login=\r\n",
        "cookie: tavern_login=x\r\n",
    ] {
        assert_eq!(caller(&guarded, altered).await.status, 401, "{altered}");
    }
    guarded.identities.revoke("ada");
    assert_eq!(caller(&guarded, &cookie).await.status, 401);
}

#[tokio::test]
async fn a_log_out_takes_the_cookie_back() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let cookie = cookie(&guarded, &key).await;
    let answer = guarded.send("POST", "/v1/logout", &cookie, b"").await;
    assert_eq!(answer.status, 204);
    assert!(
        answer
            .head
            .contains("set-cookie: tavern_login=; path=/; max-age=0;")
    );
}

#[tokio::test]
async fn without_any_key_a_login_gives_no_cookie() {
    let guarded = Guarded::start().await;
    let answer = log_in(&guarded, "anything").await;
    assert_eq!(answer.status, 204);
    assert!(!answer.head.contains("set-cookie"));
}

#[tokio::test]
async fn two_credentials_are_refused() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let cookie = cookie(&guarded, &key).await;
    let bearer = format!("authorization: Bearer {key}\r\n");
    for headers in [
        format!("{bearer}{bearer}"),
        format!("{cookie}{bearer}"),
        format!("{cookie}{cookie}"),
    ] {
        let answer = caller(&guarded, &headers).await;
        assert_eq!(answer.status, 400, "{headers}");
        assert_eq!(violated(&answer), "metadata.authorization");
    }
    let ticket = ticket(&guarded, &bearer).await;
    let path = format!("/v1/runs/{RUN}/events?ticket={ticket}");
    for headers in [bearer, cookie] {
        let answer = guarded.send("GET", &path, &headers, b"").await;
        assert_eq!(answer.status, 400, "{headers}");
        assert_eq!(violated(&answer), "metadata.authorization");
    }
}

#[tokio::test]
async fn a_ticket_follows_a_run_once_until_its_key_is_revoked() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    guarded.identities.key("bob", Role::Viewer);
    let ticket = ticket(&guarded, &format!("authorization: Bearer {key}\r\n")).await;
    let path = format!("/v1/runs/{RUN}/events?after_sequence=0&ticket={ticket}");
    let followed = guarded.send("GET", &path, "", b"");
    let revoked = async {
        while guarded.seen.take().is_empty() {
            tokio::task::yield_now().await;
        }
        let again = guarded.send("GET", &path, "", b"").await;
        assert_eq!(again.status, 401);
        guarded.identities.revoke("ada");
    };
    let (followed, ()) = tokio::join!(followed, revoked);
    assert_eq!(followed.status, 200);
    let text = followed.text();
    assert!(text.contains("event: failure"), "{text}");
    assert!(text.contains("\"code\":\"unauthenticated\""), "{text}");
}

#[tokio::test]
async fn a_socket_reports_the_end_of_its_key() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    guarded.identities.key("bob", Role::Viewer);
    let cookie = cookie(&guarded, &key).await;
    let path = format!("/v1/runs/{RUN}/events");
    let own = format!("{cookie}origin: http://{}\r\n", guarded.address);
    let mut socket = Socket::open(guarded.address, &path, &own).await.unwrap();
    while guarded.seen.take().is_empty() {
        tokio::task::yield_now().await;
    }
    guarded.identities.revoke("ada");
    let end = socket.next().await.unwrap();
    assert_eq!(end["end"]["error"]["code"], "unauthenticated", "{end}");
    assert_eq!(socket.next().await, None);
}

#[tokio::test]
async fn a_session_lasts_with_the_ticket_that_began_it() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    guarded.identities.key("bob", Role::Viewer);
    let bearer = format!("authorization: Bearer {key}\r\n");
    let path = format!("/v1/session?ticket={}", ticket(&guarded, &bearer).await);
    let mut session = Socket::open(guarded.address, &path, "").await.unwrap();
    for id in ["a", "b"] {
        let frame = json!({"id": id, "cancelRun": {"runId": RUN}}).to_string();
        session.send(&frame).await;
        let end = session.next().await.unwrap();
        assert_eq!(end["end"]["error"]["code"], "permission_denied", "{end}");
        let watch = json!({"id": id, "watchRun": {"runId": RUN}}).to_string();
        session.send(&watch).await;
        while guarded.seen.take().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    // The ticket is used up.
    let mut again = Socket::open(guarded.address, &path, "").await.unwrap();
    let end = again.next().await.unwrap();
    assert_eq!(end["end"]["error"]["code"], "unauthenticated", "{end}");
    assert_eq!(again.next().await, None);
    guarded.identities.revoke("ada");
    for _ in ["a", "b"] {
        let end = session.next().await.unwrap();
        assert_eq!(end["end"]["error"]["code"], "unauthenticated", "{end}");
    }
}

#[tokio::test]
async fn a_ticket_counts_in_no_other_address() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Viewer);
    let ticket = ticket(&guarded, &format!("authorization: Bearer {key}\r\n")).await;
    let path = format!("/v1/models?ticket={ticket}");
    assert_eq!(guarded.send("GET", &path, "", b"").await.status, 401);
    let path = format!("/v1/runs/{RUN}/events?ticket=other");
    let answer = guarded.send("GET", &path, "", b"").await;
    assert_eq!(answer.status, 400);
    assert_eq!(violated(&answer), "ticket");
}

#[tokio::test]
async fn a_key_in_an_address_is_refused_and_not_repeated() {
    let guarded = Guarded::start().await;
    let key = guarded.identities.key("ada", Role::Admin);
    for path in [
        format!("/v1/models?key={key}"),
        format!("/v1/session?ticket={key}"),
        format!("/{key}"),
        format!("/nothing/{}", key.replace("tvk_", "tvs_")),
        format!("{CALLER}?message={}", key.replace('t', "%74")),
    ] {
        let answer = guarded.send("GET", &path, "", b"").await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(!answer.text().contains("tvk_") && answer.text().contains("Bearer KEY"));
    }
}
