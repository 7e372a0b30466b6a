//! The CA of an installation: the key that signs, and the certificates that are believed.
//!
//! `ca.pem` holds each CA that services believe, and `ca.key` the key of the one that signs. A next CA has its
//! certificate in `ca.pem` beforehand and its key in `ca-next.key`. A CA is found by its key, so that each step of the
//! change from one to the next is the change of one file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use grpc_kit::TrustDomain;
use prost_types::Timestamp;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use uuid::Uuid;

use super::certificate::{Certificate, read_key};
use grpc_kit::tls::CA_KEYS;

use super::directory::{Directory, PRIVATE, PUBLIC};
use super::subject::{Host, Subject};
use crate::program;

/// The file with the certificate of each CA that is believed.
pub(super) const CERTIFICATES: &str = "ca.pem";

/// The key of the CA that signs.
pub(super) const KEY: &str = CA_KEYS[0];

/// The key of the next CA.
pub(super) const NEXT_KEY: &str = CA_KEYS[1];

/// The time before now from which a certificate is valid, for hosts whose clocks are late.
const BACKDATED: Duration = Duration::from_secs(5 * 60);

/// A CA that signs.
#[derive(Debug)]
pub(super) struct Authority {
    /// The certificate of the CA.
    pub(super) certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    /// The domain whose services it signs.
    pub(super) domain: TrustDomain,
}

/// A certificate to sign.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) subject: Subject,
    pub(super) hosts: Vec<Host>,
    pub(super) lifetime: Duration,
}

/// A certificate that was signed, and its key.
pub(super) struct Signed {
    pub(super) certificate: Certificate,
    pub(super) key: KeyPair,
}

impl Authority {
    /// Makes the first CA of a directory.
    pub(super) fn found(
        directory: &Directory,
        domain: &TrustDomain,
        lifetime: Duration,
    ) -> anyhow::Result<Certificate> {
        for name in [KEY, CERTIFICATES] {
            let path = directory.path().join(name);
            ensure!(
                !directory.has(name)?,
                "{} exists, and is not overwritten: a CA that takes its place is made by `{} certs init --next`",
                path.display(),
                program::name()
            );
        }
        let (certificate, key) = make(domain, lifetime)?;
        directory.create_file(KEY, &key.serialize_pem(), PRIVATE)?;
        directory.create_file(CERTIFICATES, &certificate.pem(), PUBLIC)?;
        Ok(certificate)
    }

    /// Makes the next CA beside the one that signs.
    pub(super) fn prepare(
        directory: &Directory,
        lifetime: Duration,
    ) -> anyhow::Result<Certificate> {
        let present = Self::open(directory)?;
        let path = directory.path().join(NEXT_KEY);
        ensure!(
            !directory.has(NEXT_KEY)?,
            "{} exists: `{} certs renew --next` lets that CA sign, or delete the file to make another",
            path.display(),
            program::name()
        );
        let (certificate, key) = make(&present.domain, lifetime)?;
        let mut believed = certificates(directory)?;
        believed.push(certificate.clone());
        // Signing begins with the key, so the certificate is believed before.
        directory.replace_file(CERTIFICATES, &text_of(&believed), PUBLIC)?;
        directory.create_file(NEXT_KEY, &key.serialize_pem(), PRIVATE)?;
        Ok(certificate)
    }

    /// Lets the next CA sign. The one before is believed further, and its key is gone.
    pub(super) fn advance(directory: &Directory) -> anyhow::Result<Self> {
        ensure!(
            directory.has(NEXT_KEY)?,
            "{} does not exist: `{} certs init --next` makes the next CA",
            directory.path().join(NEXT_KEY).display(),
            program::name()
        );
        Self::of_key(directory, NEXT_KEY)?;
        directory.rename_file(NEXT_KEY, KEY)?;
        Self::open(directory)
    }

    /// Opens the CA that signs.
    pub(super) fn open(directory: &Directory) -> anyhow::Result<Self> {
        ensure!(
            directory.has(KEY)?,
            "{} does not exist: `{} certs init` makes a CA",
            directory.path().join(KEY).display(),
            program::name()
        );
        Self::of_key(directory, KEY)
    }

    fn of_key(directory: &Directory, name: &str) -> anyhow::Result<Self> {
        let path = directory.path().join(name);
        let key = read_key(&path)?;
        let of_key = |certificate: &Certificate| certificate.has_key(&key);
        let certificate = certificates(directory)?.into_iter().find(of_key);
        let shown = path.display();
        let certificate = certificate.with_context(|| {
            format!("{CERTIFICATES} beside {shown} has no certificate of this key: put it back from a copy")
        })?;
        ensure!(
            certificate.is_ca,
            "the certificate of {shown} is not one of a CA"
        );
        let domain = certificate.domain().with_context(|| {
            format!(
                "the CA of {shown} names no domain: use one that `{} certs init` has made",
                program::name()
            )
        })?;
        let der = certificate.der().into();
        let issuer = Issuer::from_ca_cert_der(&der, key);
        Ok(Self {
            issuer: issuer.with_context(|| format!("the CA of {shown} cannot sign"))?,
            certificate,
            domain,
        })
    }

    /// Signs a certificate for a new key. It ends with the CA at the latest.
    pub(super) fn sign(&self, leaf: &Leaf) -> anyhow::Result<Signed> {
        let now = now();
        let (_, end) = self.certificate.validity;
        if end <= now {
            bail!(
                "the CA expired at {}: `{program} certs init --next` makes another, and `{program} certs renew --next` \
                 lets it sign",
                in_words(end),
                program = program::name()
            );
        }
        let mut params = CertificateParams::default();
        let name = leaf.subject.name();
        params.distinguished_name.push(DnType::CommonName, name);
        let uri = SanType::URI(Ia5String::try_from(leaf.subject.uri())?);
        params.subject_alt_names.push(uri);
        for host in &leaf.hosts {
            params.subject_alt_names.push(host.written()?);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match leaf.subject {
            Subject::Service(_) => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
            Subject::Client(..) => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, leaf.lifetime, end)?;
        let key = KeyPair::generate()?;
        let signed = params.signed_by(&key, &self.issuer)?;
        let certificate = Certificate::of_der(signed.der().to_vec())?;
        Ok(Signed { certificate, key })
    }
}

/// Reads the certificate of each CA that is believed.
pub(super) fn certificates(directory: &Directory) -> anyhow::Result<Vec<Certificate>> {
    Certificate::read(&directory.path().join(CERTIFICATES))
}

/// Returns the text of a file with certificates.
pub(super) fn text_of(certificates: &[Certificate]) -> String {
    certificates.iter().map(Certificate::pem).collect()
}

/// Takes each CA that neither signs nor will sign next out of the believed ones, and returns these.
pub(super) fn retire(directory: &Directory) -> anyhow::Result<Vec<Certificate>> {
    let signs = Authority::open(directory)?.certificate;
    let next = match directory.has(NEXT_KEY)? {
        true => Some(Authority::of_key(directory, NEXT_KEY)?.certificate),
        false => None,
    };
    let kept: Vec<_> = [Some(signs), next].into_iter().flatten().collect();
    let is_retired = |certificate: &Certificate| {
        let is_kept = |kept: &Certificate| kept.der() == certificate.der();
        !kept.iter().any(is_kept)
    };
    let mut retired = certificates(directory)?;
    retired.retain(is_retired);
    if !retired.is_empty() {
        directory.replace_file(CERTIFICATES, &text_of(&kept), PUBLIC)?;
    }
    Ok(retired)
}

/// Makes the certificate of a CA that signs for a domain, and its key.
fn make(domain: &TrustDomain, lifetime: Duration) -> anyhow::Result<(Certificate, KeyPair)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // Two CAs with one name would be mistaken for each other.
    let name = format!("Tavern CA {}", &Uuid::new_v4().simple().to_string()[..8]);
    params.distinguished_name.push(DnType::CommonName, name);
    let uri = SanType::URI(Ia5String::try_from(domain.uri())?);
    params.subject_alt_names.push(uri);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now(), lifetime, i64::MAX)?;
    let made = params.self_signed(&key)?;
    Ok((Certificate::of_der(made.der().to_vec())?, key))
}

/// Sets a serial number and the time in which a certificate is valid, which ends at `latest`.
fn set_validity(
    params: &mut CertificateParams,
    now: i64,
    lifetime: Duration,
    latest: i64,
) -> anyhow::Result<()> {
    let begin = now - i64::try_from(BACKDATED.as_secs())?;
    let end = now.saturating_add(i64::try_from(lifetime.as_secs())?);
    params.not_before = time::OffsetDateTime::from_unix_timestamp(begin)?;
    params.not_after = time::OffsetDateTime::from_unix_timestamp(end.min(latest))?;
    let mut serial = *Uuid::new_v4().as_bytes();
    // A serial number is positive, and has no leading zeros.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}

/// Returns the time for which a certificate was issued, given the seconds in which it is valid.
pub(super) fn lifetime((begin, end): (i64, i64)) -> Duration {
    let whole = Duration::from_secs(u64::try_from(end.saturating_sub(begin)).unwrap_or_default());
    whole.saturating_sub(BACKDATED)
}

/// Returns the seconds since 1970.
pub(super) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Returns a time as text.
pub(super) fn in_words(seconds: i64) -> String {
    Timestamp { seconds, nanos: 0 }.to_string()
}
