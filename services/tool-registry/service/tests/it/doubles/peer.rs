//! An HTTP/2 server, frame by frame: the answers of proxies and servers that break in the middle of
//! a request.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const PREFACE_BYTES: usize = 24;

/// The response of the peer to a request that it has read whole.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Resets the stream with this code.
    Reset(u32),
    /// Goes away: whether it took the stream, and hangs up if so.
    GoAway { took_it: bool },
    /// Announces that it closes the connection, and answers nothing.
    Drain,
    /// Hangs up.
    HangUp,
    /// Answers with headers alone.
    Headers(&'static str, Vec<(&'static str, &'static str)>),
    /// Announces a message of this many bytes.
    Announce(u32),
    /// Answers with an empty message.
    Succeed,
    /// Answers nothing.
    Silence,
}

impl Answer {
    /// A status in the headers of an answer without a message.
    pub(crate) fn status(code: &'static str) -> Self {
        Self::Headers("200", vec![("grpc-status", code)])
    }
}

/// A peer that gives one answer after another, and the last one again and again.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Peer {
    pub(crate) async fn start(answers: Vec<Answer>) -> Self {
        Self::with_settings(answers, Vec::new()).await
    }

    /// Starts a peer that takes one request at a time on a connection.
    pub(crate) async fn narrow(answers: Vec<Answer>) -> Self {
        let at_once = [
            &MAX_CONCURRENT_STREAMS.to_be_bytes()[..],
            &1_u32.to_be_bytes(),
        ];
        Self::with_settings(answers, at_once.concat()).await
    }

    async fn with_settings(answers: Vec<Answer>, settings: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let connections = Arc::new(AtomicUsize::new(0));
        let (answers, count) = (Arc::new(answers), Arc::clone(&requests));
        let settings = frame(SETTINGS, 0, 0, &settings);
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (answers, count) = (Arc::clone(&answers), Arc::clone(&count));
                let settings = settings.clone();
                // A client that hangs up ends its connection.
                tokio::spawn(async move { drop(serve(socket, &settings, &answers, &count).await) });
            }
        });
        Self {
            address,
            requests,
            connections,
        }
    }

    /// The number of requests that it has read whole.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The number of connections that it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut socket: TcpStream,
    settings: &[u8],
    answers: &[Answer],
    count: &AtomicUsize,
) -> std::io::Result<()> {
    socket.write_all(settings).await?;
    let mut preface = [0; PREFACE_BYTES];
    socket.read_exact(&mut preface).await?;
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        socket.read_exact(&mut payload).await?;
        if head[3] != DATA || head[4] & END_STREAM == 0 {
            continue;
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let place = count.fetch_add(1, Ordering::SeqCst);
        let answer = &answers[place.min(answers.len() - 1)];
        socket.write_all(&written(answer, stream)).await?;
        if matches!(answer, Answer::HangUp | Answer::GoAway { took_it: true }) {
            return socket.shutdown().await;
        }
    }
}

fn written(answer: &Answer, stream: u32) -> Vec<u8> {
    let ok = || headers("200", &[("content-type", "application/grpc")]);
    match answer {
        Answer::Reset(code) => frame(RST_STREAM, 0, stream, &code.to_be_bytes()),
        Answer::GoAway { took_it } => {
            let last = if *took_it { stream } else { 0 };
            let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
            frame(GOAWAY, 0, 0, &payload)
        }
        Answer::Drain => {
            let payload = [i32::MAX.to_be_bytes(), [0; 4]].concat();
            frame(GOAWAY, 0, 0, &payload)
        }
        Answer::HangUp | Answer::Silence => Vec::new(),
        Answer::Headers(status, rest) => {
            let mut block = headers(status, &[("content-type", "application/grpc")]);
            block.extend(headers("", rest));
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
        }
        Answer::Announce(bytes) => {
            let begin = [&[0], bytes.to_be_bytes().as_slice()].concat();
            [
                frame(HEADERS, END_HEADERS, stream, &ok()),
                frame(DATA, 0, stream, &begin),
            ]
            .concat()
        }
        Answer::Succeed => [
            frame(HEADERS, END_HEADERS, stream, &ok()),
            frame(DATA, 0, stream, &[0; 5]),
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                stream,
                &headers("", &[("grpc-status", "0")]),
            ),
        ]
        .concat(),
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [head, payload.to_vec()].concat()
}

/// Writes headers as literals without indexing; an empty status is left out.
fn headers(status: &str, rest: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut block = Vec::new();
    if !status.is_empty() {
        // The name is the eighth of the static table.
        block.push(8);
        block.extend(text(status));
    }
    for (name, value) in rest {
        block.push(0);
        block.extend(text(name));
        block.extend(text(value));
    }
    block
}
