//! The places of the keys of issuers: files, and servers over HTTPS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Certificate, Client, StatusCode, Url, redirect};
use rustls::crypto::CryptoProvider;
use tokio::io::AsyncReadExt;
use tool_domain::identity::issuer::MAX_KEY_SET_BYTES;

use crate::identities::issuers::{KeySource, NotRead};

/// The longest time of a read. A call that waits for it has 5 s at the door.
const LONGEST: Duration = Duration::from_secs(4);

/// The largest file of certificates, in bytes.
const MAX_CA_BYTES: u64 = 1 << 20;

/// A set of keys in a file.
#[derive(Debug)]
struct KeyFile(PathBuf);

/// A set of keys at an address.
#[derive(Debug)]
struct KeyAddress {
    url: Url,
    /// The file of the certificates that may sign the server's; empty for those of the host.
    ca_file: PathBuf,
}

/// Returns the place of keys at an address or, if it is none, in a file.
pub(crate) fn source_of(keys: &str, ca_file: &Path) -> Box<dyn KeySource> {
    match Url::parse(keys) {
        Ok(url) if url.has_host() => Box::new(KeyAddress {
            url,
            ca_file: ca_file.to_owned(),
        }),
        _ => Box::new(KeyFile(keys.into())),
    }
}

/// Reads the certificates of a file.
///
/// # Errors
/// A file that cannot be read, or has no certificates in PEM.
pub(crate) fn certificates(file: &Path) -> Result<Vec<Certificate>, String> {
    let text = settings::text_file::read(file, MAX_CA_BYTES).map_err(|error| error.to_string())?;
    match Certificate::from_pem_bundle(text.as_bytes()) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err("it has no certificates in PEM".to_owned()),
    }
}

#[async_trait]
impl KeySource for KeyFile {
    async fn read(&self) -> Result<Vec<u8>, NotRead> {
        let read = async {
            let file = tokio::fs::File::open(&self.0).await?;
            let mut bytes = Vec::new();
            let most = MAX_KEY_SET_BYTES as u64 + 1;
            file.take(most).read_to_end(&mut bytes).await?;
            within_bound(bytes)
        };
        in_time(read).await
    }
}

#[async_trait]
impl KeySource for KeyAddress {
    async fn read(&self) -> Result<Vec<u8>, NotRead> {
        in_time(self.fetched()).await
    }
}

impl KeyAddress {
    async fn fetched(&self) -> Result<Vec<u8>, NotRead> {
        let request = self.client()?.get(self.url.clone());
        let request = request.header(reqwest::header::ACCEPT, "application/json");
        let mut response = request.send().await.map_err(unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(NotRead::Status(response.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_KEY_SET_BYTES {
                break;
            }
        }
        within_bound(bytes)
    }

    /// Returns a client for one read, which trusts the certificates that are in the file now.
    fn client(&self) -> Result<Client, NotRead> {
        if CryptoProvider::get_default().is_none() {
            // Losing the race against another installer is as good as winning it.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .https_only(self.url.scheme() == "https")
            .no_proxy()
            .user_agent(concat!("tavern/", env!("CARGO_PKG_VERSION")));
        if !self.ca_file.as_os_str().is_empty() {
            let path = self.ca_file.display();
            let certificates = certificates(&self.ca_file)
                .map_err(|reason| NotRead::Unreachable(format!("the CA file {path}: {reason}")))?;
            builder = builder.tls_certs_only(certificates);
        }
        builder.build().map_err(unreachable)
    }
}

async fn in_time(
    read: impl Future<Output = Result<Vec<u8>, NotRead>> + Send,
) -> Result<Vec<u8>, NotRead> {
    let read = tokio::time::timeout(LONGEST, read).await;
    read.unwrap_or(Err(NotRead::Slow(LONGEST.as_secs())))
}

fn within_bound(bytes: Vec<u8>) -> Result<Vec<u8>, NotRead> {
    match bytes.len() {
        ..=MAX_KEY_SET_BYTES => Ok(bytes),
        _ => Err(NotRead::Large(MAX_KEY_SET_BYTES)),
    }
}

/// Returns an error of the client with its causes.
fn unreachable(error: reqwest::Error) -> NotRead {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    NotRead::Unreachable(text)
}
