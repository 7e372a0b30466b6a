//! The certificates of a stack, made by `tavern certs` as an operator makes them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use grpc_kit::ServiceName;
use grpc_kit::tls::ClientTls;

use crate::process::binary;

/// A directory with a private CA, and the certificates of the five services.
#[derive(Clone, Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// Makes a CA and the certificates of the services.
    ///
    /// # Errors
    /// The program is missing, or a command fails.
    pub fn make(directory: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let made = Self(directory.into());
        made.run(&["init"])?;
        let services = ServiceName::ALL.map(ServiceName::word);
        made.run(&[&["issue"][..], &services].concat())?;
        Ok(made)
    }

    /// Executes a command of `tavern certs` on the directory.
    ///
    /// # Errors
    /// The program is missing, or the command fails.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(binary("tavern")?);
        let command = command.arg("certs").args(arguments);
        let output = command.arg("--dir").arg(&self.0).output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(())
    }

    /// Issues the certificate of a service anew, for further hosts.
    ///
    /// # Errors
    /// As [`Certificates::run`].
    pub(crate) fn name_hosts(&self, service: ServiceName, hosts: &[&str]) -> anyhow::Result<()> {
        let hosts = hosts.iter().flat_map(|host| ["--host", host]);
        let issue = ["issue", service.word(), "--replace"]
            .into_iter()
            .chain(hosts);
        self.run(&issue.collect::<Vec<_>>())
    }

    /// Returns the files with the certificate and the key of a service.
    pub fn pair(&self, service: ServiceName) -> [String; 2] {
        ["pem", "key"].map(|ending| self.file(&format!("{}.{ending}", service.word())))
    }

    /// Returns the file with the certificate of the CA.
    pub fn ca(&self) -> String {
        self.file("ca.pem")
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the settings of a program that calls `peers`: the certificate of its server, or of its clients where the
    /// server is for clients without certificates.
    pub(crate) fn settings(&self, program: &str, peers: &[&str]) -> Vec<(String, String)> {
        let service = ServiceName::of_program(program).unwrap_or(ServiceName::Gateway);
        let (sections, ca) = match service {
            ServiceName::Gateway => (peers, "CA"),
            _ => (&["SERVER"][..], "PEER_CA"),
        };
        let [cert, key] = self.pair(service);
        let files = [("CERT", cert), ("KEY", key), (ca, self.ca())];
        let settings = sections.iter().flat_map(|section| {
            let files = files.iter();
            files.map(move |(key, file)| (format!("{section}__TLS__{key}"), file.clone()))
        });
        settings.collect()
    }

    /// Returns the settings of a client that has the certificate of a name, and expects a service.
    pub fn client(&self, name: &str, expected: ServiceName) -> ClientTls {
        ClientTls {
            cert: self.0.join(format!("{name}.pem")),
            key: self.0.join(format!("{name}.key")),
            ..self.believing(expected)
        }
    }

    /// Returns the settings of a client without a certificate that expects a service.
    pub fn believing(&self, expected: ServiceName) -> ClientTls {
        ClientTls {
            name: format!("spiffe://tavern.internal/tavern/{}", expected.word()),
            ..self.ca_alone()
        }
    }

    /// Returns the settings of a client without a certificate that expects the host that it calls.
    pub(crate) fn ca_alone(&self) -> ClientTls {
        ClientTls {
            ca: self.0.join("ca.pem"),
            ..ClientTls::default()
        }
    }
}
