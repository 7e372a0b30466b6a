//! A proxy between a client and a server that loses answers.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinHandle,
};

/// A listener whose connections lead to a server's socket.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Faults {
    /// The socket to which new connections lead.
    socket: Mutex<PathBuf>,
    /// Whether the next answer on the connection that writes events is lost.
    loses_next: AtomicBool,
    lost: AtomicU64,
    /// The number of messages of clients before the one whose connection ends.
    cut: Mutex<Option<u64>>,
    /// Whether all bytes wait, in both directions.
    holds: watch::Sender<bool>,
}

impl Proxy {
    /// Starts a proxy before a socket.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub async fn start(socket: PathBuf) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults {
            socket: Mutex::new(socket),
            ..Faults::default()
        });
        let shared = Arc::clone(&faults);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let faults = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A connection that ends badly is the point of a proxy for faults.
                    let _ = pass(client, &faults).await;
                });
            }
        });
        Ok(Self {
            address,
            faults,
            accepting,
        })
    }

    /// Returns the address of a database behind the proxy, for a role.
    pub fn url(&self, database: &str, role: &str) -> String {
        format!(
            "postgres://{role}@{}/{database}?sslmode=disable",
            self.address
        )
    }

    /// Loses the next answer on a connection that writes events: the statement is carried out, then the connection ends.
    pub fn lose_next_answer(&self) {
        self.faults.loses_next.store(true, Ordering::SeqCst);
    }

    /// Ends a client's connection after `messages` further messages of clients have passed, and one more: the server has
    /// that one, and its answer is lost. A message is a statement, or a part of one.
    pub fn cut_after(&self, messages: u64) {
        *lock(&self.faults.cut) = Some(messages);
    }

    /// Whether a connection is still to be cut.
    pub fn is_to_cut(&self) -> bool {
        lock(&self.faults.cut).is_some()
    }

    /// Leads new connections to another socket, as a name does after a failover.
    pub fn lead_to(&self, socket: PathBuf) {
        *lock(&self.faults.socket) = socket;
    }

    /// Holds all bytes, as a network or a process that is paused does, or lets those that wait pass.
    pub fn hold(&self, holds: bool) {
        self.faults.holds.send_replace(holds);
    }

    /// Returns the number of answers that were lost.
    pub fn lost(&self) -> u64 {
        self.faults.lost.load(Ordering::SeqCst)
    }
}

impl Faults {
    /// Counts a message of a client, and returns whether its connection ends.
    fn cuts(&self) -> bool {
        let mut cut = lock(&self.cut);
        let left = *cut;
        *cut = left.and_then(|left| left.checked_sub(1));
        left == Some(0)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The tag by which a server ends the answer to the statement of a group, which returns one row.
const ANSWER: &[u8] = b"SELECT 1\0";
/// A part of that statement, by which the connection that writes events is known.
const STATEMENT: &[u8] = b"INSERT INTO events";

async fn pass(mut client: TcpStream, faults: &Faults) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    let socket = { lock(&faults.socket).clone() };
    let mut server = UnixStream::connect(socket).await?;
    let (mut from_client, mut from_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut writes = false;
    let mut holds = faults.holds.subscribe();
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                holds.wait_for(|holds| !holds).await?;
                writes |= contains(&from_client[..read], STATEMENT);
                server.write_all(&from_client[..read]).await?;
                if faults.cuts() {
                    return Ok(());
                }
            }
            read = server.read(&mut from_server) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                holds.wait_for(|holds| !holds).await?;
                let answer = &from_server[..read];
                if writes && contains(answer, ANSWER) && faults.loses_next.swap(false, Ordering::SeqCst) {
                    faults.lost.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
                client.write_all(answer).await?;
            }
        }
    }
}

fn lock<T>(fault: &Mutex<T>) -> MutexGuard<'_, T> {
    fault.lock().unwrap_or_else(PoisonError::into_inner)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|bytes| bytes == part)
}
