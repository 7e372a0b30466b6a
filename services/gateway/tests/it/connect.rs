//! The Connect protocol, byte by byte.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::edge::{Answer, Edge};

const PARSE: &str = "/tavern.gateway.v1.GatewayService/ParseText";
const START: &str = "/tavern.gateway.v1.GatewayService/StartText";
const STREAM: &str = "/tavern.gateway.v1.GatewayService/StreamText";
const WATCH: &str = "/tavern.run.v1.RunService/WatchRun";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn framed(flags: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![flags];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// Returns the messages of a streamed answer as JSON, and its end.
fn messages(answer: &Answer) -> (Vec<Value>, Value) {
    let mut rest = &*answer.body;
    let mut messages = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut bytes = tail[..length].to_vec();
        rest = &tail[length..];
        if head[0] & 1 == 1 {
            let mut plain = Vec::new();
            GzDecoder::new(&*bytes).read_to_end(&mut plain).unwrap();
            bytes = plain;
        }
        let message = serde_json::from_slice(&bytes).unwrap();
        if head[0] & 2 == 2 {
            assert!(rest.is_empty(), "the end comes last");
            return (messages, message);
        }
        messages.push(message);
    }
    unreachable!("the answer has no end: {messages:?}")
}

#[tokio::test]
async fn a_person_is_answered_by_curl() {
    let edge = Edge::start().await;
    let headers = format!("host: {}\r\n", edge.host());
    let front = edge.send("GET", "/", &headers, b"").await;
    assert_eq!(front.status, 200);
    assert!(front.text().contains(env!("CARGO_PKG_VERSION")));
    assert!(
        front
            .text()
            .contains(&format!("http://{}{PARSE}", edge.host()))
    );
    let page = edge.send("GET", "/console", &headers, b"").await;
    assert!(page.text().contains("<title>Tavern</title>"));
    let moved = edge.send("GET", "/console/", &headers, b"").await;
    assert_eq!((moved.status, moved.has("location: /console")), (308, true));
    let none = edge.send("GET", "/nothing", &headers, b"").await;
    assert_eq!((none.status, none.text().lines().count()), (404, 1));
    let verb = edge.send("GET", START, &headers, b"").await;
    assert_eq!((verb.status, verb.has("allow: post")), (405, true));
    let request = json!({"text": "Hello.", "catalogue": {}}).to_string();
    let parsed = edge
        .post(PARSE, "application/json", request.as_bytes())
        .await;
    assert_eq!(parsed.status, 200, "{}", parsed.text());
    assert!(parsed.json()["parsed"].is_object());
}

#[tokio::test]
async fn a_method_without_side_effects_is_asked_by_get() {
    let edge = Edge::start().await;
    let headers = format!("host: {}\r\n", edge.host());
    // {"text":"Hello.","catalogue":{}}, also as base64.
    let plain = "encoding=json&message=%7B%22text%22%3A%22Hello.%22%2C%22catalogue%22%3A%7B%7D%7D";
    let base64 = "encoding=json&base64=1&message=eyJ0ZXh0IjoiSGVsbG8uIiwiY2F0YWxvZ3VlIjp7fX0";
    for query in [plain, base64] {
        let path = format!("{PARSE}?connect=v1&{query}");
        let parsed = edge.send("GET", &path, &headers, b"").await;
        assert_eq!(parsed.status, 200, "{}", parsed.text());
        assert!(parsed.json()["parsed"].is_object());
        assert!(parsed.has("cache-control: no-store"));
    }
    for (query, field) in [
        ("encoding=xml&message=%7B%7D", "encoding"),
        ("encoding=json&base64=1&message=%25", "message"),
        ("encoding=json&compression=br&message=%7B%7D", "compression"),
    ] {
        let path = format!("{PARSE}?{query}");
        let wrong = edge.send("GET", &path, &headers, b"").await;
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().contains(field), "{}", wrong.text());
    }
}

#[tokio::test]
async fn other_content_types_are_refused_with_the_remedy() {
    let edge = Edge::start().await;
    for (path, kind, remedy) in [
        (PARSE, "application/x-www-form-urlencoded", "curl --json"),
        (PARSE, "text/plain", "application/json"),
        (PARSE, "application/connect+json", "application/json"),
        (PARSE, "application/grpcx", "application/json"),
        (WATCH, "application/json", "Connect"),
    ] {
        let answer = edge.post(path, kind, b"{}").await;
        assert_eq!(answer.status, 415, "{kind}");
        assert!(answer.text().contains(remedy), "{}", answer.text());
        assert!(answer.head.contains("accept-post"), "{}", answer.head);
    }
}

#[tokio::test]
async fn every_wrong_field_is_named_by_its_path() {
    let edge = Edge::start().await;
    let request = json!({
        "text": 5, "nothing": 1, "scope": {"toolIds": ["a", 2]}, "untrusted_texts": [], "untrustedTexts": []
    });
    let answer = edge
        .post(PARSE, "application/json", request.to_string().as_bytes())
        .await;
    assert_eq!(answer.status, 400);
    let error = answer.json();
    assert_eq!(error["code"], "invalid_argument");
    let details = error["details"].as_array().unwrap();
    assert!(details.iter().all(|detail| detail["value"].is_string()));
    let of = |name: &str| {
        details
            .iter()
            .find(|detail| detail["type"] == name)
            .unwrap()
    };
    assert_eq!(
        of("google.rpc.ErrorInfo")["debug"]["reason"],
        "INVALID_FIELDS"
    );
    let fields = of("google.rpc.BadRequest")["debug"]["fieldViolations"]
        .as_array()
        .unwrap();
    let fields: Vec<_> = fields
        .iter()
        .map(|field| field["field"].as_str().unwrap())
        .collect();
    assert_eq!(
        fields,
        ["text", "nothing", "scope.tool_ids[1]", "untrusted_texts"]
    );
}

#[tokio::test]
async fn what_is_not_a_request_is_refused() {
    let edge = Edge::start().await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for body in [
        "",
        "{",
        "[]",
        "{\"text\":\"a\",\"text\":\"b\"}",
        "\u{feff}{}",
        &deep,
    ] {
        let answer = edge.post(PARSE, "application/json", body.as_bytes()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["code"], "invalid_argument", "{body}");
    }
    let host = edge.host();
    let json = "content-type: application/json\r\n";
    for (header, status) in [
        ("connect-timeout-ms: 5000", 200),
        ("connect-timeout-ms: 9999999999", 200),
        ("connect-timeout-ms: soon", 400),
        ("content-encoding: br", 501),
    ] {
        let headers = format!("host: {host}\r\n{json}{header}\r\n");
        let answer = edge
            .send("POST", PARSE, &headers, b"{\"catalogue\":{}}")
            .await;
        assert_eq!(answer.status, status, "{header}: {}", answer.text());
    }
}

#[tokio::test]
async fn gzip_is_read_within_the_limit_and_written_where_it_is_accepted() {
    let edge = Edge::start().await;
    let json = format!(
        "host: {}\r\ncontent-type: application/json\r\n",
        edge.host()
    );
    let compressed = format!("{json}content-encoding: gzip\r\naccept-encoding: br, gzip;q=0.5\r\n");
    let text = "word ".repeat(2_000);
    let request = json!({"text": text, "catalogue": {}}).to_string();
    let answer = edge
        .send("POST", PARSE, &compressed, &gzip(request.as_bytes()))
        .await;
    assert_eq!(answer.status, 200);
    assert!(answer.has("content-encoding: gzip"), "{}", answer.head);
    let mut plain = String::new();
    GzDecoder::new(&*answer.body)
        .read_to_string(&mut plain)
        .unwrap();
    assert!(plain.contains(text.trim()));

    let bomb = gzip(&vec![b' '; 64 << 20]);
    let answer = edge.send("POST", PARSE, &compressed, &bomb).await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (429, &json!("resource_exhausted"))
    );
    let long = vec![b' '; 6 << 20];
    let answer = edge.post(PARSE, "application/json", &long[..]).await;
    assert_eq!(answer.status, 429);
    let answer = edge.send("POST", PARSE, &compressed, b"not gzip").await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn protobuf_is_passed_on_as_it_is() {
    let edge = Edge::start().await;
    // Field 1 is the text, field 8 an empty catalogue.
    let answer = edge
        .post(PARSE, "application/proto", b"\x0a\x02Hi\x42\x00")
        .await;
    assert_eq!(answer.status, 200);
    assert!(answer.has("content-type: application/proto"));
    assert!(answer.body.windows(2).any(|two| two == b"Hi"));
    let answer = edge.post(PARSE, "application/proto", b"\xff\xff").await;
    assert_eq!(answer.status, 500, "{}", answer.text());
}

#[tokio::test]
async fn a_stream_answers_200_and_ends_with_its_status() {
    let edge = Edge::start().await;
    let kind = "application/connect+json";
    let request = json!({"runId": "turn_none"}).to_string();
    let answer = edge.post(WATCH, kind, &framed(0, request.as_bytes())).await;
    assert_eq!(answer.status, 200);
    assert!(answer.has("content-type: application/connect+json"));
    let (none, end) = messages(&answer);
    assert!(none.is_empty());
    assert_eq!(end["error"]["code"], "not_found", "{end}");
    let wrong = framed(0, b"{\"runId\": 5}");
    for (body, field) in [
        (wrong.clone(), "run_id"),
        (Vec::new(), ""),
        (framed(0, b"{}")[..6].to_vec(), ""),
        (framed(1, b"{}"), ""),
        (framed(2, b"{}"), ""),
        ([framed(0, b"{}"), framed(0, b"{}")].concat(), ""),
    ] {
        let (_, end) = messages(&edge.post(WATCH, kind, &body).await);
        assert_eq!(end["error"]["code"], "invalid_argument", "{body:?}: {end}");
        let details = end["error"]["details"].to_string();
        assert!(
            details.contains(&format!("\"field\":\"{field}\"")) || field.is_empty(),
            "{end}"
        );
    }
}

#[tokio::test]
async fn messages_stream_in_both_directions() {
    let edge = Edge::start().await;
    let start = json!({"start": {"catalogue": {}}}).to_string();
    // Base64 of "Hello ".
    let chunk = json!({"chunk": "SGVsbG8g"}).to_string();
    let body = [start, chunk.clone(), chunk].map(|message| framed(0, message.as_bytes()));
    let answer = edge
        .post(STREAM, "application/connect+json", &body.concat())
        .await;
    let (events, end) = messages(&answer);
    assert_eq!(end, json!({}));
    let last = events.last().unwrap();
    assert!(last.to_string().contains("Hello Hello"), "{last}");

    let compressed = body.clone().map(|message| framed(1, &gzip(&message[5..])));
    let headers = format!(
        "host: {}\r\ncontent-type: application/connect+json\r\nconnect-content-encoding: gzip\r\n\
         connect-accept-encoding: gzip\r\n",
        edge.host()
    );
    let answer = edge
        .send("POST", STREAM, &headers, &compressed.concat())
        .await;
    assert!(answer.has("connect-content-encoding: gzip"));
    assert_eq!(messages(&answer).0.last(), Some(last));

    let broken = [body[0].clone(), framed(0, b"{\"chunk\": 5}")].concat();
    let (_, end) = messages(&edge.post(STREAM, "application/connect+json", &broken).await);
    assert_eq!(end["error"]["code"], "invalid_argument", "{end}");
}

#[tokio::test]
async fn grpc_web_is_spoken_in_binary_and_text() {
    let edge = Edge::start().await;
    let message = framed(0, b"\x0a\x02Hi\x42\x00");
    let answer = edge
        .post(PARSE, "application/grpc-web+proto", &message)
        .await;
    assert_eq!(answer.status, 200);
    let body = String::from_utf8_lossy(&answer.body);
    assert!(
        body.contains("Hi") && body.contains("grpc-status:0"),
        "{body}"
    );
    let kind = "application/grpc-web-text";
    let headers = format!(
        "host: {}\r\ncontent-type: {kind}\r\naccept: {kind}\r\n",
        edge.host()
    );
    let answer = edge
        .send("POST", PARSE, &headers, b"AAAAAAYKAkhpQgA=")
        .await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.is_ascii(), "{:?}", answer.body);
}
