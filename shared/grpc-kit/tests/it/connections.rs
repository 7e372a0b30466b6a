//! Connections of peers that do not behave, frame by frame.

use std::{net::SocketAddr, sync::atomic::Ordering, time::Duration};

use grpc_kit::{ConnectionBounds, ServerSettings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::probe::{TestServer, soon};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const REFUSED_STREAM: u32 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The head of a call of `Say` whose body is still to come.
fn call_head(stream: u32) -> Vec<u8> {
    head(stream, b"/test.v1.Probe/Say")
}

fn head(stream: u32, path: &[u8]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (&[0x04][..], path),
        (&[0x01][..], &b"localhost"[..]),
        (&[0x0f, 0x10][..], &b"application/grpc"[..]),
    ] {
        block.extend(name);
        block.push(value.len() as u8);
        block.extend(value);
    }
    frame(1, 0x4, stream, &block)
}

struct Raw(TcpStream);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Raw {
    async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    async fn greet(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address).await;
        raw.send(PREFACE).await;
        raw.send(&frame(SETTINGS, 0, 0, &[])).await;
        raw
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads a frame; `None` at the end of the connection.
    async fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame {
            kind: head[3],
            flags: head[4],
            stream,
            payload,
        })
    }

    /// Reads until the connection ends.
    async fn until_closed(&mut self) {
        let mut buffer = [0; 1024];
        soon("the end of the connection", async {
            while matches!(self.0.read(&mut buffer).await, Ok(count) if count > 0) {}
        })
        .await;
    }
}

#[tokio::test]
async fn a_connection_that_stays_silent_is_closed() {
    let settings = ServerSettings {
        connection: ConnectionBounds {
            first_bytes: Duration::from_millis(100),
            ..Default::default()
        },
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    for beginning in [&b""[..], &PREFACE[..10], b"x", b"GET / HT"] {
        let mut raw = Raw::connect(server.address).await;
        raw.send(beginning).await;
        raw.until_closed().await;
    }
    assert_eq!(server.client().say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn a_connection_without_a_sign_of_life_is_closed() {
    let settings = ServerSettings {
        connection: ConnectionBounds {
            keepalive_interval: Duration::from_millis(50),
            keepalive_timeout: Duration::from_millis(50),
            ..Default::default()
        },
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut raw = Raw::greet(server.address).await;
    raw.until_closed().await;
}

#[tokio::test]
async fn the_call_after_the_last_of_a_connection_is_refused() {
    let server = TestServer::start(Default::default()).await;
    let mut raw = Raw::greet(server.address).await;
    for number in 0..257 {
        raw.send(&call_head(2 * number + 1)).await;
    }
    let refused = soon("the refusal", async {
        loop {
            let frame = raw.receive().await.expect("the connection lives");
            if frame.kind == RST_STREAM {
                return frame;
            }
        }
    })
    .await;
    assert_eq!(refused.stream, 513);
    assert_eq!(refused.payload, REFUSED_STREAM.to_be_bytes());
}

#[tokio::test]
async fn a_connection_whose_stream_is_not_read_is_closed() {
    let settings = ServerSettings {
        stream_idle_timeout: Duration::from_millis(100),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut raw = Raw::connect(server.address).await;
    raw.send(PREFACE).await;
    // No window: the server may send heads, but no message.
    raw.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await;
    raw.send(&head(1, b"/test.v1.Probe/Tell")).await;
    raw.send(&frame(0, 1, 1, b"\0\0\0\0\x06\x0a\x04tick")).await;
    raw.until_closed().await;
    assert_eq!(server.probe.begun.load(Ordering::SeqCst), 1);
    server.running(0).await;
}

#[tokio::test]
async fn a_flood_of_control_frames_closes_the_connection() {
    let server = TestServer::start(Default::default()).await;
    for flood in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let mut raw = Raw::greet(server.address).await;
        let flood = flood.repeat(2_000);
        // The server may close while we are still sending.
        let _ = raw.0.write_all(&flood).await;
        raw.until_closed().await;
    }
    assert_eq!(server.client().say("echo x").await.unwrap(), "x");
}

#[tokio::test]
async fn a_ping_now_and_then_is_answered() {
    let server = TestServer::start(Default::default()).await;
    let mut raw = Raw::greet(server.address).await;
    raw.send(&frame(PING, 0, 0, b"question")).await;
    soon("the answer", async {
        loop {
            let frame = raw.receive().await.expect("the connection lives");
            if frame.kind == PING && frame.flags == 1 && frame.payload == b"question" {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_places_come_back() {
    for settings in [
        ServerSettings {
            max_connections: 2,
            ..Default::default()
        },
        ServerSettings {
            max_connections_per_peer: 2,
            ..Default::default()
        },
    ] {
        let server = TestServer::start(settings).await;
        let mut held = vec![
            Raw::greet(server.address).await,
            Raw::greet(server.address).await,
        ];
        for raw in &mut held {
            assert_eq!(raw.receive().await.unwrap().kind, SETTINGS);
        }
        Raw::connect(server.address).await.until_closed().await;
        drop(held);
        soon("a place", async {
            while server.client().say("echo x").await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn an_old_connection_is_asked_to_go_and_its_streams_drain() {
    let settings = ServerSettings {
        max_connection_age: Duration::from_millis(500),
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut client = server.client();
    let mut texts = client.tell("drain").await.unwrap();
    assert_eq!(texts.message().await.unwrap().as_deref(), Some("first"));
    let last = soon("the drain record", texts.message()).await;
    assert_eq!(last.unwrap().as_deref(), Some("drain"));
    assert_eq!(texts.message().await.unwrap(), None);
    // The client continues over new connections, of which one may be too old again.
    soon("an answer over a new connection", async {
        while client.say("echo x").await.is_err() {}
    })
    .await;

    let mut raw = Raw::greet(server.address).await;
    soon("the notice", async {
        while raw.receive().await.expect("a notice before the end").kind != GOAWAY {}
    })
    .await;
}

#[tokio::test]
async fn an_old_connection_that_does_not_go_is_cut() {
    let settings = ServerSettings {
        max_connection_age: Duration::from_millis(500),
        connection: ConnectionBounds {
            // Enough for the first text to arrive on a busy machine.
            age_grace: Duration::from_secs(3),
            ..Default::default()
        },
        ..Default::default()
    };
    let server = TestServer::start(settings).await;
    let mut texts = server.client().tell("forever").await.unwrap();
    texts.message().await.unwrap();
    assert!(soon("the cut", texts.message()).await.is_err());
    server.running(0).await;
}
