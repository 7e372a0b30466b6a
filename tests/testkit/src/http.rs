//! Plain HTTP/1.1, byte by byte, for clients that are no library's.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request to an address (`http://host:port`) and returns the answer as far as `enough` of
/// it has arrived, or all of it. `head` is the first line, without the protocol, and the headers
/// except host, connection and the body's length, each line with its end; for an upgrade they
/// include the connection, and `body` follows them.
///
/// # Errors
/// There is no connection, or no answer in time.
pub async fn exchange(
    address: &str,
    head: &str,
    body: &[u8],
    enough: impl Fn(&str) -> bool,
) -> anyhow::Result<String> {
    let host = address.trim_start_matches("http://");
    let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let mut request = format!("{line} HTTP/1.1\r\nhost: {host}\r\n{headers}").into_bytes();
    if !headers.contains("connection: ") {
        request.extend_from_slice(b"connection: close\r\n");
    }
    if line.starts_with("POST ") {
        request.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    let answer = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(&request).await?;
        let mut answer = Vec::new();
        while !enough(&String::from_utf8_lossy(&answer)) && stream.read_buf(&mut answer).await? > 0
        {
        }
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answered = tokio::time::timeout(PATIENCE, answer).await;
    answered.with_context(|| format!("{line} has no answer"))?
}
