//! Certificates, read from files.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use grpc_kit::TrustDomain;
use rcgen::{KeyPair, PublicKeyData};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::subject::{Host, Subject};
use crate::credential;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The label of a certificate in a PEM file.
const LABEL: &str = "CERTIFICATE";

/// A certificate and the facts that it states.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    der: Vec<u8>,
    /// The URIs that it names.
    pub(super) uris: Vec<String>,
    /// The names and addresses of hosts.
    pub(super) hosts: Vec<Host>,
    serial: String,
    /// The first and the last second in which it is valid, since 1970.
    pub(super) validity: (i64, i64),
    /// Whether it may sign others.
    pub(super) is_ca: bool,
    public_key: Vec<u8>,
}

impl Certificate {
    /// Reads the certificates of a file, at least one.
    pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Self>> {
        let shown = path.display();
        let text = read(path).with_context(|| format!("{shown} cannot be read"))?;
        let certificates = Self::of_pem(&text).with_context(|| shown.to_string())?;
        ensure!(!certificates.is_empty(), "{shown} holds no certificate");
        Ok(certificates)
    }

    fn of_pem(text: &[u8]) -> anyhow::Result<Vec<Self>> {
        let mut certificates = Vec::new();
        for block in pem::parse_many(text).context("is no PEM file")? {
            if block.tag() == LABEL {
                certificates.push(Self::of_der(block.into_contents())?);
            }
        }
        Ok(certificates)
    }

    /// Reads a certificate.
    pub(super) fn of_der(der: Vec<u8>) -> anyhow::Result<Self> {
        let (rest, read) = X509Certificate::from_der(&der).context("holds a broken certificate")?;
        ensure!(rest.is_empty(), "holds a broken certificate");
        let names = read.subject_alternative_name();
        let names = names.context("holds a certificate with broken names")?;
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::URI(uri) => uris.push((*uri).to_owned()),
                GeneralName::DNSName(name) => hosts.push(Host::Name((*name).to_owned())),
                GeneralName::IPAddress(bytes) => {
                    let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    let v6 = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                    let address = v4.or_else(|_| v6());
                    hosts.push(Host::Address(address.context("holds a broken address")?));
                }
                _ => {}
            }
        }
        let validity = read.validity();
        let facts = Self {
            uris,
            hosts,
            serial: hex::encode(read.raw_serial()),
            validity: (
                validity.not_before.timestamp(),
                validity.not_after.timestamp(),
            ),
            is_ca: read.is_ca(),
            public_key: read.public_key().raw.to_vec(),
            der: Vec::new(),
        };
        Ok(Self { der, ..facts })
    }

    /// Returns the text of a PEM file with the certificate.
    pub(super) fn pem(&self) -> String {
        pem::encode(&pem::Pem::new(LABEL, self.der.as_slice()))
    }

    /// Returns the serial number in hexadecimal digits.
    pub(super) fn serial_digits(&self) -> &str {
        &self.serial
    }

    /// Returns the encoded certificate.
    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the SHA-256 of the certificate, in hexadecimal digits.
    pub(super) fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(&self.der))
    }

    /// Returns the domain whose services the certificate signs; `None` where it names none.
    pub(super) fn domain(&self) -> Option<TrustDomain> {
        let domains = self.uris.iter().filter_map(|uri| TrustDomain::of_uri(uri));
        let mut domains = domains.filter(|(_, path)| path.is_empty());
        domains.next().map(|(domain, _)| domain)
    }

    /// Returns the subject; `None` unless the certificate names exactly one.
    pub(super) fn subject(&self) -> Option<Subject> {
        match self.uris.as_slice() {
            [uri] => Subject::of_uri(uri),
            _ => None,
        }
    }

    /// Whether `key` is the key of the certificate.
    pub(super) fn has_key(&self, key: &KeyPair) -> bool {
        self.public_key == key.subject_public_key_info()
    }

    /// Whether `authority` has signed the certificate.
    pub(super) fn is_signed_by(&self, authority: &Self) -> bool {
        let (own, signer) = (parsed(&self.der), parsed(&authority.der));
        let (Some(own), Some(signer)) = (own, signer) else {
            return false;
        };
        own.issuer() == signer.subject() && own.verify_signature(Some(signer.public_key())).is_ok()
    }

    /// Whether less than a third of the time from begin to end is left at `now`.
    pub(super) fn is_due(&self, now: i64) -> bool {
        let (begin, end) = self.validity;
        end.saturating_sub(now).saturating_mul(3) < end.saturating_sub(begin)
    }
}

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, read)| read)
}

/// Reads a small file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let error = format!("it has more than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(bytes)
}

/// Reads the key of a file.
///
/// # Errors
/// A file that cannot be read, is open to others, or holds no key. The key is in no error.
pub(super) fn read_key(path: &Path) -> anyhow::Result<KeyPair> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("the key file {shown} cannot be read"))?;
    credential::check_closed(path, "key", &file)?;
    let text = read(path).with_context(|| format!("the key file {shown} cannot be read"))?;
    // The cause may quote the text.
    let key = str::from_utf8(&text)
        .ok()
        .and_then(|text| KeyPair::from_pem(text).ok());
    key.with_context(|| format!("the key file {shown} holds no private key in PEM"))
}
