//! Models at `https` addresses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model_client::EndpointSettings;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::endpoint::{Endpoint, end, settings, stream_head, text};
use crate::model_endpoints::ask;

/// Makes a CA and the configuration of a server with a leaf of it, and returns the file with the CA.
fn authority(directory: &Path, name: &str) -> (PathBuf, ServerConfig) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let key = KeyPair::generate().unwrap();
    let file = directory.join(name);
    std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
    let leaf_key = PrivatePkcs8KeyDer::from(leaf_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth();
    let chain = vec![leaf.der().clone()];
    let config = config.with_single_cert(chain, PrivateKeyDer::Pkcs8(leaf_key));
    (file, config.unwrap())
}

/// Ends TLS in front of an endpoint, and returns the address.
async fn encrypt(endpoint: &Endpoint, config: ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let to = endpoint.base_url.trim_start_matches("http://");
    let (to, path) = to.split_once('/').map_or((to, ""), |(to, path)| (to, path));
    let base_url = format!("https://{address}/{path}");
    let (to, acceptor) = (to.to_owned(), TlsAcceptor::from(Arc::new(config)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut behind = TcpStream::connect(&to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
            }
        }
    });
    base_url
}

#[tokio::test]
async fn an_endpoint_is_believed_by_the_ca_of_its_settings_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (ca, config) = authority(directory.path(), "ca.pem");
    let (other, _) = authority(directory.path(), "other.pem");
    let answer = vec![stream_head(), text("ok"), end("stop")];
    let endpoint = Endpoint::start(vec![answer]).await;
    let base_url = encrypt(&endpoint, config).await;
    for (ca_file, is_believed) in [(Some(other), false), (None, false), (Some(ca), true)] {
        let (said, ended) = ask(EndpointSettings {
            base_url: base_url.clone(),
            ca_file,
            retries: 0,
            ..settings(&endpoint)
        })
        .await;
        assert_eq!((&*said == "ok", ended.is_ok()), (is_believed, is_believed));
    }
}
