//! The client's side of TLS.

use std::{
    future::Future,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    sign::SingleCertAndKey,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;

use super::{
    error::TlsError,
    failures::Failures,
    files::{Content, FromFiles, Look},
    leaf, peer, pem, provider,
    settings::{ClientTls, is_none},
};
use crate::ServiceId;

/// The shortest time between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the files once.
pub(super) fn check(settings: &ClientTls) -> Result<(), TlsError> {
    match settings.is_empty() {
        true => Ok(()),
        false => Shared::new(settings).map(drop),
    }
}

/// Connects to a server with TLS, for a client of gRPC. Clones share their files.
#[derive(Clone, Debug)]
pub struct Connector {
    tcp: HttpConnector,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: FromFiles<ClientConfig>,
    name: Expected,
    /// Locked for a comparison.
    looked: Mutex<Instant>,
    /// The log of servers that are not believed.
    failures: Failures,
}

/// The name that the certificate of the server must have.
#[derive(Clone, Debug)]
enum Expected {
    /// The host of the address.
    Host,
    /// The name of another host.
    Name(ServerName<'static>),
    /// The URI of a service.
    Service(ServiceId),
}

impl Expected {
    fn of(name: &str) -> Result<Self, TlsError> {
        if name.is_empty() {
            return Ok(Self::Host);
        }
        if let Some(service) = ServiceId::of_uri(name) {
            return Ok(Self::Service(service));
        }
        let bad = |_| TlsError::Name {
            name: name.to_owned(),
        };
        ServerName::try_from(name.to_owned())
            .map(Self::Name)
            .map_err(bad)
    }
}

impl Connector {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// [`TlsError`] when a file cannot be used.
    pub fn new(settings: &ClientTls) -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let shared = Arc::new(Shared::new(settings)?);
        Ok(Self { tcp, shared })
    }
}

impl Shared {
    fn new(settings: &ClientTls) -> Result<Self, TlsError> {
        let name = Expected::of(&settings.name)?;
        let has_ca = !is_none(&settings.ca);
        let mut paths: Vec<PathBuf> = Vec::new();
        if has_ca {
            paths.push(settings.ca.clone());
        }
        if !is_none(&settings.cert) {
            paths.extend([settings.cert.clone(), settings.key.clone()]);
        }
        let service = match &name {
            Expected::Service(service) => Some(service.clone()),
            Expected::Host | Expected::Name(_) => None,
        };
        let make = move |files: &[Content]| config(files, has_ca, service.as_ref());
        Ok(Self {
            config: FromFiles::new(paths, make)?,
            name,
            looked: Mutex::new(Instant::now()),
            failures: Failures::default(),
        })
    }

    /// Returns the configuration that the files state now, or stated last where they are unfit.
    fn config(&self) -> Arc<ClientConfig> {
        let is_due = {
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = looked.elapsed() >= LOOK_INTERVAL;
            if is_due {
                *looked = Instant::now();
            }
            is_due
        };
        if is_due {
            match self.config.look() {
                Look::Renewed => tracing::info!("the certificates of a client are renewed"),
                Look::Refused(error) => tracing::warn!(
                    error = crate::failure::chain(&error),
                    "the certificates of a client are refused; earlier ones stay in force"
                ),
                Look::Unchanged | Look::Restored => {}
            }
        }
        self.config.get()
    }

    fn server_name(&self, address: &Uri) -> io::Result<ServerName<'static>> {
        if let Expected::Name(name) = &self.name {
            return Ok(name.clone());
        }
        let host = address.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ServerName::try_from(host.to_owned()).map_err(io::Error::other)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(io::Error::other)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let connecting = self.tcp.call(address.clone());
        Box::pin(async move {
            let name = shared.server_name(&address)?;
            let stream = connecting.await.map_err(io::Error::other)?;
            let connector = TlsConnector::from(shared.config());
            let connected = connector.connect(name, stream.into_inner()).await;
            let stream =
                connected.inspect_err(|error| shared.failures.record_server(error, &address))?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// Makes the configuration of the file with CAs, if there is one, and the pair of certificate and key, if there is one.
fn config(
    files: &[Content],
    has_ca: bool,
    service: Option<&ServiceId>,
) -> Result<ClientConfig, TlsError> {
    let (ca, pair) = files.split_at(usize::from(has_ca));
    let roots = match ca {
        [file, ..] => pem::roots(file)?,
        [] => of_machine()?,
    };
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider());
    let chain = chain.build().map_err(TlsError::Verifier)?;
    let verifier: Arc<dyn ServerCertVerifier> = match service {
        Some(service) => Arc::new(CalledService {
            signatures: chain,
            roots,
            service: service.clone(),
        }),
        None => chain,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Config)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match pair {
        [cert, key] => {
            let pair = pem::pair(cert, key)?;
            leaf::observe(&cert.path, &pair);
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Returns the CAs of this machine.
fn of_machine() -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    // A certificate among many that cannot be read is no reason to believe none.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(TlsError::NoRoots),
        false => Ok(Arc::new(roots)),
    }
}

/// Accepts the one service of a URI, at whatever host.
#[derive(Debug)]
struct CalledService {
    signatures: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
    service: ServiceId,
}

impl ServerCertVerifier for CalledService {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            provider().signature_verification_algorithms.all,
        )?;
        let service = peer::service_of(end_entity, &self.service.domain)?;
        match service == self.service {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}
