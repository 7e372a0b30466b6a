//! The server's side of TLS.

use std::{io, sync::Arc, time::Duration};

use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::SingleCertAndKey,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{
    error::TlsError,
    files::{Content, FromFiles, Look},
    leaf,
    peer::{self, CallingServices, PeerProof},
    pem, provider,
    settings::{ServerTls, is_none},
    stream::ServerStream,
};
use crate::TrustDomain;

/// The protocols of a server that clients call, most wanted first.
const HTTP2_AND_1: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS of one server.
#[derive(Debug)]
pub(crate) struct Acceptor {
    config: FromFiles<ServerConfig>,
    /// The domain of services; missing where no proof is asked for.
    domain: Option<TrustDomain>,
}

/// A connection with the proof of its other end.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: ServerStream,
    pub(crate) proof: PeerProof,
}

impl Accepted {
    /// Returns a connection of a server without TLS.
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self {
            stream: ServerStream::Plain(stream),
            proof: PeerProof::NotAsked,
        }
    }
}

/// Reads the files once.
pub(super) fn check(settings: &ServerTls) -> Result<(), TlsError> {
    match settings.is_on() {
        true => Acceptor::new(settings, false).map(drop),
        false => Ok(()),
    }
}

impl Acceptor {
    /// Reads the files. A server for `clients` speaks HTTP/1.1 too, and asks for no certificate.
    pub(crate) fn new(settings: &ServerTls, clients: bool) -> Result<Self, TlsError> {
        let domain: TrustDomain = settings.domain.parse().map_err(|_| TlsError::Name {
            name: settings.domain.clone(),
        })?;
        let mut paths = vec![settings.cert.clone(), settings.key.clone()];
        if !is_none(&settings.peer_ca) {
            paths.push(settings.peer_ca.clone());
        }
        let asks = settings.proves_peers() && !clients;
        let domain = asks.then_some(domain);
        let (of_peers, allow_tls12) = (domain.clone(), settings.allow_tls12);
        let make = move |files: &[Content]| config(files, of_peers.as_ref(), allow_tls12, clients);
        Ok(Self {
            config: FromFiles::new(paths, make)?,
            domain,
        })
    }

    /// Shakes hands on a connection, within `bound`.
    pub(crate) async fn accept(&self, stream: TcpStream, bound: Duration) -> io::Result<Accepted> {
        let acceptor = TlsAcceptor::from(self.config.get());
        let handshake = tokio::time::timeout(bound, acceptor.accept(stream));
        let stream = handshake.await??;
        let (_, session) = stream.get_ref();
        let proof = match (&self.domain, session.peer_certificates()) {
            (None, _) => PeerProof::NotAsked,
            (Some(domain), Some([leaf, ..])) => {
                let service = peer::service_of(leaf, domain);
                PeerProof::Service(service.map_err(io::Error::other)?)
            }
            (Some(_), _) => PeerProof::Missing,
        };
        Ok(Accepted {
            stream: ServerStream::Encrypted(Box::new(stream)),
            proof,
        })
    }

    /// Reads the files again if they have changed.
    pub(crate) fn look(&self) -> Look {
        self.config.look()
    }

    /// Whether the files are refused, so that earlier ones are in force.
    pub(crate) fn is_refused(&self) -> bool {
        self.config.is_refused()
    }
}

/// Makes the configuration of certificate, key and, where there is one, the file with the CAs of services.
fn config(
    files: &[Content],
    of_peers: Option<&TrustDomain>,
    allow_tls12: bool,
    clients: bool,
) -> Result<ServerConfig, TlsError> {
    let [cert, key, rest @ ..] = files else {
        unreachable!("a server has a certificate and a key");
    };
    let pair = pem::pair(cert, key)?;
    let roots = rest.first().map(pem::roots).transpose()?;
    let versions: &[_] = match allow_tls12 {
        true => &[&rustls::version::TLS13, &rustls::version::TLS12],
        false => &[&rustls::version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(versions);
    let builder = builder.map_err(TlsError::Config)?;
    let resolver = Arc::new(SingleCertAndKey::from(Arc::clone(&pair)));
    let mut config = match (roots, of_peers) {
        (Some(roots), Some(domain)) => {
            let chain = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let chain = chain.build().map_err(TlsError::Verifier)?;
            let domain = domain.clone();
            let verifier = Arc::new(CallingServices { chain, domain });
            let mut config = builder
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(resolver);
            // A resumed session would prove a service by a certificate that may have ended since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            config
        }
        _ => builder.with_no_client_auth().with_cert_resolver(resolver),
    };
    let protocols = if clients {
        &HTTP2_AND_1[..]
    } else {
        &HTTP2_AND_1[..1]
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    leaf::observe(&cert.path, &pair);
    Ok(config)
}
