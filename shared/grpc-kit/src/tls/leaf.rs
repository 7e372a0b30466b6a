//! The certificate of a service itself: its end, the service that it names, and the key that no service needs.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;

use super::{
    error::TlsError,
    files::Content,
    peer, pem,
    settings::{ServerTls, is_none},
};
use crate::{ServiceId, ServiceName};

/// The names of the files with the key of the CA that signs and of the next one, as `tavern certs` writes them.
pub const CA_KEYS: [&str; 2] = ["ca.key", "ca-next.key"];

/// Reports the end of a certificate that was read from a file, for the metric of the time that is left.
pub(super) fn observe(path: &Path, pair: &CertifiedKey) {
    // A certificate that rustls accepts and this parser does not is in force without a metric.
    if let Some(leaf) = pair.cert.first()
        && let Ok((_, read)) = parse_x509_certificate(leaf)
    {
        let end = read.validity().not_after.timestamp();
        telemetry::metrics::certificate_ends(path, end);
    }
}

/// Checks that the certificate by which services prove themselves names `service`.
pub(super) fn check(settings: &ServerTls, service: ServiceName) -> Result<(), TlsError> {
    let Ok(domain) = settings.domain.parse() else {
        return Ok(());
    };
    let path = &settings.cert;
    let chain = pem::certificates(&Content::read(path)?)?;
    let leaf = chain
        .first()
        .and_then(|leaf| peer::service_of(leaf, &domain).ok());
    let expected = ServiceId { domain, service };
    match leaf {
        Some(named) if named == expected => Ok(()),
        named => Err(TlsError::OtherService {
            path: path.clone(),
            expected: expected.to_string(),
            named: named.map_or("no service of the domain".to_owned(), |id| id.to_string()),
        }),
    }
}

/// Returns the file with the key of a CA, if one lies beside the files of a server and the process may read it.
pub(crate) fn readable_ca_key(settings: &ServerTls) -> Option<PathBuf> {
    let files = [&settings.cert, &settings.key, &settings.peer_ca];
    let files = files.into_iter().filter(|path| !is_none(path));
    let mut keys = files.flat_map(|path| CA_KEYS.map(|key| path.with_file_name(key)));
    keys.find(|key| access(key, Access::READ_OK).is_ok())
}
