//! `tavern certs`: a private CA, and the certificates by which services prove themselves. No server is needed.
//!
//! - `certificate`: certificates, read from files.
//! - `subject`: the subject of a certificate, and the hosts that it names.
//! - `authority`: the CA.
//! - `directory`: the files, each changed as a whole.
//! - `show`: certificates, shown and judged.

mod authority;
mod certificate;
mod directory;
mod show;
mod subject;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand, value_parser};
use grpc_kit::TrustDomain;

use super::print;
use crate::program;
use authority::{Authority, CERTIFICATES, Leaf, in_words, now};
use certificate::Certificate;
use directory::{Directory, PUBLIC, files};
use subject::Subject;

/// The seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// A command about certificates.
#[derive(Subcommand)]
pub enum Command {
    /// Make a private CA: `ca.pem`, which everyone may have, and `ca.key`, which no service needs.
    ///
    /// A CA is replaced in three steps: `init --next` makes the next one, which `ca.pem` has from then on too; when
    /// everyone has that file, `renew --next` renews every certificate by it; when everyone has those, `init --retire`
    /// takes the CA before out of `ca.pem`.
    Init(Init),
    /// Issue certificates to services, each with a key of its own, valid for 30 days.
    Issue(Issue),
    /// Renew the certificates that have less than a third of their time left, or are not of the CA that signs.
    Renew(Renew),
    /// Show certificates: identity, names, serial number, time left, issuer. Fails if any is due, expired or wrong.
    Show(Show),
}

/// The CA to make.
#[derive(Args)]
pub struct Init {
    #[command(flatten)]
    place: Place,
    /// The domain of the services, which their identities begin with.
    #[arg(long, default_value = TrustDomain::DEFAULT, conflicts_with_all = ["next", "retire"])]
    domain: TrustDomain,
    /// The days for which the CA is valid.
    #[arg(long, default_value = "3650", value_parser = value_parser!(u32).range(1..=7300))]
    days: u32,
    /// Make the CA that takes the place of the present one, and let `ca.pem` hold both.
    #[arg(long)]
    next: bool,
    /// Take each CA that signs no more out of `ca.pem`.
    #[arg(long, conflicts_with = "next")]
    retire: bool,
}

/// The certificates to issue.
#[derive(Args)]
pub struct Issue {
    /// The services: gateway, registry, workflow, sandbox, agent.
    #[arg(required = true, value_name = "SERVICE")]
    names: Vec<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    out: Destination,
    /// A further name or address by which the services are reached; may be repeated. Each has `localhost`, 127.0.0.1,
    /// ::1 and its own names anyway.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// The days for which the certificates are valid.
    #[arg(long, default_value_t = DEFAULT_DAYS, value_parser = value_parser!(u32).range(1..=398))]
    days: u32,
    /// Issue certificates to clients of these names, which are no services.
    #[arg(long)]
    client: bool,
    /// Issue anew where certificates exist.
    #[arg(long)]
    replace: bool,
}

/// The certificates to renew.
#[derive(Args)]
pub struct Renew {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    out: Destination,
    /// Renew every certificate.
    #[arg(long)]
    all: bool,
    /// Let the CA that `init --next` has made sign from now on.
    #[arg(long)]
    next: bool,
}

/// The certificates to show.
#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    place: Place,
}

/// The directory of a CA.
#[derive(Args)]
struct Place {
    /// The directory of the certificates.
    #[arg(long, value_name = "DIRECTORY", default_value = "certs")]
    dir: PathBuf,
}

/// The directory of certificates, apart from the key of the CA.
#[derive(Args)]
struct Destination {
    /// The directory in which the certificates stand with a copy of `ca.pem`, so that their service is given nothing
    /// else. Default: the directory of the CA.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
}

impl Command {
    /// Executes the command.
    ///
    /// # Errors
    /// The place of the fault, and the remedy.
    pub(super) fn execute(self, as_json: bool) -> anyhow::Result<ExitCode> {
        let is_show = matches!(self, Self::Show(_));
        ensure!(is_show || !as_json, "of `certs`, only `show` prints JSON");
        match self {
            Self::Init(init) => init.execute(),
            Self::Issue(issue) => issue.execute(),
            Self::Renew(renew) => renew.execute(),
            Self::Show(show) => return show::show(&show.place.dir, as_json),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The days for which a certificate is valid by default.
const DEFAULT_DAYS: u32 = 30;

/// The time of a number of days.
fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * DAY)
}

impl Init {
    fn execute(self) -> anyhow::Result<()> {
        let path = &self.place.dir;
        let shown = path.display();
        let lifetime = days(self.days);
        if self.retire {
            return retire(&Directory::open(path)?);
        }
        let made = match self.next {
            true => Authority::prepare(&Directory::open(path)?, lifetime)?,
            false => Authority::found(&Directory::create(path)?, &self.domain, lifetime)?,
        };
        let (fingerprint, end) = (made.fingerprint(), in_words(made.validity.1));
        print(&match self.next {
            true => format!(
                "{shown}/{CERTIFICATES} holds the next CA too, {fingerprint}, until {end}; when everyone has this file, \
                 `{} certs renew --next` lets that CA sign\n",
                program::name()
            ),
            false => format!(
                "{shown}/{CERTIFICATES} holds the CA of {}, {fingerprint}, until {end}; keep ca.key from services\n",
                self.domain
            ),
        });
        Ok(())
    }
}

/// Takes each CA that signs no more out of `ca.pem`, unless a certificate beside it needs one.
fn retire(directory: &Directory) -> anyhow::Result<()> {
    let signs = Authority::open(directory)?.certificate;
    let leaves = leaves(directory.path())?;
    let of_others = leaves.iter().filter(|(_, leaf)| !leaf.is_signed_by(&signs));
    let names: Vec<_> = of_others.map(|(name, _)| name.as_str()).collect();
    ensure!(
        names.is_empty(),
        "not signed by the CA that stays: {}; `{} certs renew` renews them",
        names.join(", "),
        program::name()
    );
    let retired = authority::retire(directory)?;
    let shown = directory.path().join(CERTIFICATES);
    for certificate in &retired {
        let (shown, fingerprint) = (shown.display(), certificate.fingerprint());
        print(&format!("{shown} holds the CA {fingerprint} no longer\n"));
    }
    if retired.is_empty() {
        print(&format!(
            "{} holds no CA that signs no more\n",
            shown.display()
        ));
    }
    Ok(())
}

impl Issue {
    fn execute(self) -> anyhow::Result<()> {
        let directory = Directory::open(&self.place.dir)?;
        let authority = Authority::open(&directory)?;
        let mut leaves: Vec<Leaf> = Vec::new();
        let mut wrong = Vec::new();
        for name in &self.names {
            let subject = subject::subject(authority.domain.clone(), name, self.client);
            let leaf = subject.and_then(|subject| {
                let hosts = subject::hosts(&subject, &self.hosts)?;
                let lifetime = days(self.days);
                Ok(Leaf {
                    subject,
                    hosts,
                    lifetime,
                })
            });
            match leaf {
                Ok(leaf) if leaves.iter().any(|other| other.subject == leaf.subject) => {}
                Ok(leaf) => leaves.push(leaf),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        wrong.dedup();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        let out = self.out.open(&directory)?;
        let out = out.as_ref().unwrap_or(&directory);
        for leaf in leaves.iter().filter(|_| !self.replace) {
            let name = leaf.subject.name();
            for file in [format!("{name}.pem"), format!("{name}.key")] {
                ensure!(
                    !out.has(&file)?,
                    "{} exists: `{} certs renew` renews it, and `--replace` issues it anew",
                    out.path().join(file).display(),
                    program::name()
                );
            }
        }
        leaves
            .iter()
            .try_for_each(|leaf| sign(&authority, leaf, out))
    }
}

impl Destination {
    /// Opens the directory of the certificates with the present `ca.pem` in it; `None` where it is the CA's.
    fn open(&self, directory: &Directory) -> anyhow::Result<Option<Directory>> {
        let Some(path) = &self.out else {
            return Ok(None);
        };
        let canonical = |path: &Path| fs::canonicalize(path).ok();
        if canonical(path).is_some_and(|path| Some(path) == canonical(directory.path())) {
            return Ok(None);
        }
        let out = Directory::create(path)?;
        let believed = authority::text_of(&authority::certificates(directory)?);
        let copied = certificate::read(&path.join(CERTIFICATES)).ok();
        if copied.as_deref() != Some(believed.as_bytes()) {
            out.replace_file(CERTIFICATES, &believed, PUBLIC)?;
        }
        Ok(Some(out))
    }
}

/// Signs a certificate for a new key, and puts both in place.
fn sign(authority: &Authority, leaf: &Leaf, out: &Directory) -> anyhow::Result<()> {
    let signed = authority.sign(leaf)?;
    let name = leaf.subject.name();
    let (certificate, key) = (signed.certificate.pem(), signed.key.serialize_pem());
    out.put_pair(
        name,
        signed.certificate.serial_digits(),
        (&certificate, &key),
    )?;
    let (path, _) = files(out.path(), name);
    print(&format!(
        "{} holds the certificate of {}, until {}\n",
        path.display(),
        leaf.subject.uri(),
        in_words(signed.certificate.validity.1)
    ));
    Ok(())
}

impl Renew {
    fn execute(self) -> anyhow::Result<()> {
        let directory = Directory::open(&self.place.dir)?;
        let authority = match self.next {
            true => Authority::advance(&directory)?,
            false => Authority::open(&directory)?,
        };
        let out = self.out.open(&directory)?;
        let out = out.as_ref().unwrap_or(&directory);
        let authorities = authority::certificates(&directory)?;
        let mut due = Vec::new();
        for (name, present) in leaves(out.path())? {
            let is_due = present.is_due(now()) || !present.is_signed_by(&authority.certificate);
            if !is_due && !self.all && !self.next {
                continue;
            }
            let (path, _) = files(out.path(), &name);
            let shown = path.display();
            let subject = present.subject().filter(|subject| subject.name() == name);
            let subject = subject.with_context(|| {
                format!(
                    "{shown} was not issued by `tavern certs issue {name}`, so it is not renewed"
                )
            })?;
            let of_domain = subject::subject(
                authority.domain.clone(),
                &name,
                matches!(subject, Subject::Client(..)),
            )?;
            ensure!(
                subject == of_domain,
                "{shown} is the certificate of {}, and the CA signs for {}: move it away, or give the directory of its CA",
                subject.uri(),
                authority.domain
            );
            due.push(Leaf {
                subject,
                // The end of its CA may have cut the time of the certificate short.
                lifetime: match authorities
                    .iter()
                    .any(|ca| ca.validity.1 == present.validity.1)
                {
                    true => days(DEFAULT_DAYS),
                    false => authority::lifetime(present.validity),
                },
                hosts: present.hosts,
            });
        }
        if due.is_empty() {
            print("no certificate is due\n");
        }
        due.iter().try_for_each(|leaf| sign(&authority, leaf, out))
    }
}

/// Reads the certificates of a directory that are no CA, by their names.
fn leaves(path: &Path) -> anyhow::Result<Vec<(String, Certificate)>> {
    let unread = || format!("{} cannot be read", path.display());
    let mut leaves = Vec::new();
    for entry in fs::read_dir(path).with_context(unread)? {
        let file = entry.with_context(unread)?.file_name();
        let name = file.to_str().and_then(|file| file.strip_suffix(".pem"));
        let Some(name) = name.filter(|name| !name.starts_with('.')) else {
            continue;
        };
        let certificates = Certificate::read(&path.join(&file))?;
        let leaf = certificates.into_iter().next().filter(|leaf| !leaf.is_ca);
        leaves.extend(leaf.map(|leaf| (name.to_owned(), leaf)));
    }
    leaves.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(leaves)
}
