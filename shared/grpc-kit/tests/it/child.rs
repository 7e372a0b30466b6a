//! Tests that need a process of their own: signals, and running out of files.
//!
//! The child is this test binary again, made to serve by a variable.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use grpc_kit::{ConnectionBounds, Server, ServerSettings, Shutdown};
use tonic::Code;

use crate::probe::{Client, Probe, services, soon};

const ROLE: &str = "GRPC_KIT_TEST_CHILD";

/// Serves when asked to; as an ordinary test it only checks that it was not.
#[tokio::test]
async fn the_child_serves_only_when_asked() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let settings = ServerSettings {
        connection: ConnectionBounds {
            reserved_files: 8,
            ..Default::default()
        },
        ..Default::default()
    };
    let shutdown = Shutdown::on_signals().unwrap();
    let listener = grpc_kit::bind(&settings).await.unwrap();
    // Read by the parent; the test harness must not hold it back.
    let line = format!("listening {}\n", listener.local_addr().unwrap());
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    let server = Server::new(settings, services(&Probe::default()));
    if role == "no-files" {
        let mut held = Vec::new();
        tokio::spawn(async move {
            // Takes every file that is left, holds them a while, and gives them back.
            tokio::time::sleep(Duration::from_millis(300)).await;
            while let Ok(file) = File::open("/dev/null") {
                held.push(file);
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        });
    }
    let served = server.serve(listener, shutdown).await.unwrap();
    std::process::exit(if served.unfinished_connections == 0 {
        0
    } else {
        9
    });
}

struct ChildServer {
    child: Child,
    address: SocketAddr,
    _stderr: BufReader<std::process::ChildStderr>,
}

impl ChildServer {
    fn start(role: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""])
            .arg(program)
            .args([
                "--exact",
                "child::the_child_serves_only_when_asked",
                "--nocapture",
            ])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the child ended");
            if let Some(address) = line.trim().strip_prefix("listening ") {
                break address.parse().unwrap();
            }
        };
        Self {
            child,
            address,
            _stderr: stderr,
        }
    }

    fn client(&self) -> Client {
        let settings = grpc_kit::ClientSettings::to(format!("http://{}", self.address));
        Client::new(grpc_kit::remote(&settings).unwrap())
    }

    fn signal(&self) {
        let done = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(done.unwrap().success());
    }

    async fn code(mut self) -> Option<i32> {
        soon("the end of the child", async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status.code();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

#[tokio::test]
async fn the_first_signal_lets_calls_finish() {
    let server = ChildServer::start("serve");
    let mut client = server.client();
    assert_eq!(client.say("echo up").await.unwrap(), "up");
    // The first text means that the call has begun, the second that it has seen the drain.
    let mut begun = client.tell("drain").await.unwrap();
    assert_eq!(begun.message().await.unwrap().as_deref(), Some("first"));
    server.signal();
    let last = soon("the drain record", begun.message()).await;
    assert_eq!(last.unwrap().as_deref(), Some("drain"));
    assert_eq!(begun.message().await.unwrap(), None);
    assert_eq!(server.code().await, Some(0));
    assert_eq!(
        client.say("echo x").await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn the_second_signal_ends_at_once() {
    let server = ChildServer::start("serve");
    let mut texts = server.client().tell("forever").await.unwrap();
    texts.message().await.unwrap();
    server.signal();
    // Signals that arrive together are one, so ask again until the end.
    let mut server = server;
    soon("the end of the child", async {
        while server.child.try_wait().unwrap().is_none() {
            server.signal();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(server.code().await, Some(9));
}

#[tokio::test]
async fn accepting_survives_running_out_of_files() {
    let server = ChildServer::start("no-files");
    // Connections are asked for before, while and after the child has no file left for them.
    let mut answered = 0;
    soon("answers after the shortage", async {
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(1_500) || answered < 2 {
            let asked = tokio::time::timeout(Duration::from_secs(5), async {
                server.client().say("echo x").await
            });
            if matches!(asked.await, Ok(Ok(text)) if text == "x") {
                answered += 1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(server.client().say("echo x").await.unwrap(), "x");
    server.signal();
    assert_eq!(server.code().await, Some(0));
}
