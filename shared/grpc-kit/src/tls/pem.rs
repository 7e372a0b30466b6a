//! Certificates and keys in PEM files.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::{error::TlsError, files::Content, provider};

/// Reads a certificate with its chain and its private key, which must belong together.
pub(super) fn pair(cert: &Content, key: &Content) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(cert)?;
    let lacks_key = |_| TlsError::Lacks {
        path: key.path.clone(),
        wanted: "private key",
    };
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(lacks_key)?;
    let refused = |source| TlsError::Refused {
        path: key.path.clone(),
        source,
    };
    let pair = CertifiedKey::from_der(chain, private, &provider()).map_err(refused)?;
    Ok(Arc::new(pair))
}

/// Reads the certificates of CAs.
pub(super) fn roots(file: &Content) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added.map_err(|source| TlsError::Refused {
            path: file.path.clone(),
            source,
        })?;
    }
    Ok(Arc::new(roots))
}

pub(super) fn certificates(file: &Content) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let lacks = || TlsError::Lacks {
        path: file.path.clone(),
        wanted: "certificate",
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file.bytes).collect();
    let certificates = read.map_err(|_| lacks())?;
    match certificates.is_empty() {
        true => Err(lacks()),
        false => Ok(certificates),
    }
}
