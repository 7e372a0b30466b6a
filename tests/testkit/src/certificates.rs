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
        let word = service.word();
        let files = [
            ("CERT", format!("{word}.pem")),
            ("KEY", format!("{word}.key")),
            (ca, "ca.pem".to_owned()),
        ];
        let settings = sections.iter().flat_map(|section| {
            files.iter().map(move |(key, file)| {
                let path = self.0.join(file).display().to_string();
                (format!("{section}__TLS__{key}"), path)
            })
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
            ca: self.0.join("ca.pem"),
            name: format!("spiffe://tavern.internal/tavern/{}", expected.word()),
            ..ClientTls::default()
        }
    }
}
