//! What comes out of a script.

use tokio::{io::AsyncReadExt, net::unix::pipe, sync::mpsc};

use crate::domain::{
    outcome::Captured,
    verdict::{Stopped, Stream},
};

/// One read; the size of a pipe.
const CHUNK: usize = 64 << 10;

/// Reads a stream to its end. Memory is bounded by the limit: what is over it is read and counted,
/// so that the script does not hang while it is being killed.
pub async fn capture(
    stream: Stream,
    mut pipe: pipe::Receiver,
    limit: usize,
    overflow: mpsc::Sender<Stopped>,
) -> Captured {
    let mut captured = Captured::default();
    let mut chunk = vec![0; CHUNK];
    let mut reported = false;
    while let Ok(read) = pipe.read(&mut chunk).await
        && read > 0
    {
        if captured.take(&chunk[..read], limit) && !reported {
            reported = true;
            // The channel has room for one message of each stream.
            let observed = captured.read();
            let _ = overflow.try_send(Stopped::Output { stream, observed });
        }
    }
    captured
}
