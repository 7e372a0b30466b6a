//! Reads the output of a script.

use tokio::{io::AsyncReadExt, net::unix::pipe, sync::mpsc};

use crate::domain::{limits::Limits, outcome::Captured, stream::Stream, verdict::Stopped};

/// One read; the size of a pipe.
const CHUNK: usize = 64 << 10;

/// Reads a stream to its end. The limit bounds memory: bytes beyond it are read and counted, so
/// that the script continues, and does not hang while it is ended for a flood.
pub async fn capture(
    stream: Stream,
    mut pipe: pipe::Receiver,
    limits: Limits,
    overflow: mpsc::Sender<Stopped>,
) -> Captured {
    let mut captured = Captured::default();
    let mut chunk = vec![0; CHUNK];
    let mut reported = false;
    while let Ok(read) = pipe.read(&mut chunk).await
        && read > 0
    {
        captured.take(&chunk[..read], limits.kept(stream));
        let observed = captured.read();
        if observed > limits.flood(stream) && !reported {
            reported = true;
            // The channel has a slot for one message of each stream.
            let _ = overflow.try_send(Stopped::Output { stream, observed });
        }
    }
    captured
}
