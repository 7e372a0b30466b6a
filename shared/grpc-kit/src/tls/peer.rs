//! The service that a certificate proves.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

use crate::{ServiceId, TrustDomain};

/// The proof that a connection gives of the service at its other end.
#[derive(Clone, Debug)]
pub(crate) enum PeerProof {
    /// No proof is asked for: the caller is in this process, or the server has no CA of services.
    NotAsked,
    /// A proof is asked for, and none was given.
    Missing,
    /// A certificate names the service.
    Service(ServiceId),
}

impl PeerProof {
    /// Whether callers have to prove themselves.
    pub(crate) const fn is_asked(&self) -> bool {
        !matches!(self, Self::NotAsked)
    }
}

/// A certificate names no service of the domain, or more than one.
#[derive(Debug, thiserror::Error)]
enum Unnamed {
    #[error("the certificate has no URI")]
    NoUri,
    #[error("the certificate has several URIs")]
    SeveralUris,
    #[error("the URI of the certificate names no service")]
    NoService,
    #[error("the certificate names a service of another domain")]
    OtherDomain,
}

impl From<Unnamed> for Error {
    fn from(reason: Unnamed) -> Self {
        let reason = OtherError(Arc::new(reason));
        Self::InvalidCertificate(CertificateError::Other(reason))
    }
}

/// Returns the service of `domain` that a certificate names by its one URI.
pub(super) fn service_of(
    certificate: &CertificateDer<'_>,
    domain: &TrustDomain,
) -> Result<ServiceId, Error> {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    let parsed = parsed.map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let mut uris = parsed.valid_uri_names();
    let uri = uris.next().ok_or(Unnamed::NoUri)?;
    if uris.next().is_some() {
        return Err(Unnamed::SeveralUris.into());
    }
    let service = ServiceId::of_uri(uri).ok_or(Unnamed::NoService)?;
    match service.domain == *domain {
        true => Ok(service),
        false => Err(Unnamed::OtherDomain.into()),
    }
}

/// Accepts, beside clients without a certificate, the services of a domain.
#[derive(Debug)]
pub(super) struct CallingServices {
    /// Verifies the certificate itself.
    pub(super) chain: Arc<dyn ClientCertVerifier>,
    pub(super) domain: TrustDomain,
}

impl ClientCertVerifier for CallingServices {
    /// Health checks need no certificate.
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .chain
            .verify_client_cert(end_entity, intermediates, now)?;
        service_of(end_entity, &self.domain)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
