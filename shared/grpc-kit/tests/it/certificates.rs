//! A private CA and its leaves, in a directory of their own.

use std::{fs, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// A CA whose leaves are written as `<name>.pem` and `<name>.key`.
pub(crate) struct Authority {
    pub(crate) directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Makes a CA, and writes its certificate as `ca.pem`.
    pub(crate) fn new(directory: &std::path::Path) -> Self {
        fs::create_dir_all(directory).unwrap();
        let mut params = CertificateParams::default();
        set_common_name(&mut params, "a private CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = Self {
            directory: directory.to_owned(),
            issuer: Issuer::new(params, key),
            pem,
        };
        fs::write(authority.ca(), &authority.pem).unwrap();
        authority
    }

    /// Returns the file with the CA.
    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Returns the certificate of the CA.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a leaf for 127.0.0.1 and localhost; `name` has the files, `change` whatever else is to be in it.
    pub(crate) fn issue(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let files = ["pem", "key"].map(|ending| self.directory.join(format!("{name}.{ending}")));
        let [cert, private] = files;
        fs::write(&cert, leaf.pem()).unwrap();
        fs::write(&private, key.serialize_pem()).unwrap();
        (cert, private)
    }

    /// Issues the leaf of a service of the domain `tavern.internal`.
    pub(crate) fn service(&self, service: &str) -> (PathBuf, PathBuf) {
        let uri = format!("spiffe://tavern.internal/tavern/{service}");
        self.issue(service, |params| add_uri(params, &uri))
    }
}

/// Adds a URI to the names of a leaf.
pub(crate) fn add_uri(params: &mut CertificateParams, uri: &str) {
    let uri = SanType::URI(uri.try_into().unwrap());
    params.subject_alt_names.push(uri);
}

/// Sets the common name, which proves nothing.
pub(crate) fn set_common_name(params: &mut CertificateParams, name: &str) {
    params.distinguished_name.push(DnType::CommonName, name);
}

/// Ends the validity of a leaf in the past.
pub(crate) fn expire(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 1);
}

/// Begins the validity of a leaf in the future.
pub(crate) fn postpone(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(4000, 1, 1);
    params.not_after = date_time_ymd(4000, 2, 1);
}
