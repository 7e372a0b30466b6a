//! The commands, from their command line to their files.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use clap::Parser;
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use tempfile::TempDir;

use super::certificate::read_key;
use super::subject::Subject;
use super::*;

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// A directory in which the commands work.
struct Place {
    temporary: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            temporary: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// Makes a directory with a CA.
    fn with_ca() -> Self {
        let place = Self::new();
        place.run("init").expect("a new directory has no CA");
        place
    }

    fn path(&self) -> PathBuf {
        self.temporary.path().join("certs")
    }

    /// Executes a command, and returns whether its exit code is 0.
    fn run(&self, line: &str) -> Result<bool, String> {
        let out = self.temporary.path().join("out").display().to_string();
        let line = line.replace("OUT", &out);
        let dir = self.path().display().to_string();
        let words = ["certs"].into_iter().chain(line.split_whitespace());
        let words = words.chain(["--dir", &dir]);
        let read = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let executed = read.command.execute(false);
        let code = executed.map_err(|error| format!("{error:#}"))?;
        Ok(code == ExitCode::SUCCESS)
    }

    /// Executes a command that fails, and returns its error.
    fn refusal(&self, line: &str) -> String {
        self.run(line).expect_err(line)
    }

    fn certificate(&self, name: &str) -> Certificate {
        let (path, _) = files(&self.path(), name);
        Certificate::read(&path).expect(name).remove(0)
    }

    /// Puts a certificate that ends after a number of seconds in the place of a name, signed by the CA.
    fn put_leaf(&self, name: &str, begin: i64, end: i64) {
        let directory = Directory::open(&self.path()).expect("no other command works");
        let ca_key = read_key(&self.path().join(authority::KEY)).expect("the CA has a key");
        let ca = Authority::open(&directory).expect("the directory has a CA");
        let issuer = Issuer::from_ca_cert_der(&ca.certificate.der().into(), ca_key);
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let uri = format!("spiffe://tavern.internal/tavern/{name}");
        let uri = rcgen::SanType::URI(uri.try_into().expect("a plain text"));
        params.subject_alt_names.push(uri);
        params.distinguished_name.push(DnType::CommonName, name);
        let at = |seconds: i64| time::OffsetDateTime::from_unix_timestamp(now() + seconds);
        params.not_before = at(begin).expect("a time");
        params.not_after = at(end).expect("a time");
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &issuer.expect("the CA signs"));
        let pem = signed.expect("it is signed").pem();
        let number = format!("{begin}{end}");
        let pair = (pem.as_str(), key.serialize_pem());
        let put = directory.put_pair(name, &number, (pair.0, &pair.1));
        put.expect("the directory takes a pair");
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn each_service_gets_a_certificate_of_its_identity_and_a_key_that_only_its_owner_reads() {
    let place = Place::with_ca();
    assert_eq!(
        place
            .run("issue gateway registry workflow sandbox agent gateway --host tavern.example.com"),
        Ok(true)
    );
    let ca = place.certificate("ca");
    assert!(ca.is_ca);
    for (name, program) in [
        ("gateway", "gateway"),
        ("registry", "tool-registry"),
        ("workflow", "workflow-execution"),
        ("sandbox", "script-sandbox"),
        ("agent", "agent-runtime"),
    ] {
        let leaf = place.certificate(name);
        assert_eq!(
            leaf.uris,
            [format!("spiffe://tavern.internal/tavern/{name}")]
        );
        let hosts: Vec<_> = leaf.hosts.iter().map(ToString::to_string).collect();
        for host in [
            name,
            program,
            "localhost",
            "127.0.0.1",
            "::1",
            "tavern.example.com",
        ] {
            assert!(hosts.iter().any(|named| named == host), "{host}: {hosts:?}");
        }
        assert!(leaf.is_signed_by(&ca) && !leaf.is_ca);
        assert_eq!(authority::lifetime(leaf.validity), days(30));
        let (_, key) = files(&place.path(), name);
        assert_eq!(mode(&key), 0o600);
        assert!(leaf.has_key(&read_key(&key).unwrap()));
    }
    assert_eq!(mode(&place.path().join("ca.key")), 0o600);
    assert_eq!(place.run("show"), Ok(true));
}

#[test]
fn a_client_gets_a_certificate_that_names_no_service() {
    let place = Place::with_ca();
    assert_eq!(place.run("issue --client ada"), Ok(true));
    let leaf = place.certificate("ada");
    assert_eq!(leaf.uris, ["spiffe://tavern.internal/client/ada"]);
    assert!(matches!(leaf.subject(), Some(Subject::Client(..))));
}

#[test]
fn nothing_that_exists_is_overwritten_unless_it_is_requested() {
    let place = Place::with_ca();
    assert!(
        place
            .refusal("init")
            .contains("ca.key exists, and is not overwritten")
    );
    place.run("issue gateway").unwrap();
    let first = place.certificate("gateway");
    let refused = place.refusal("issue agent gateway");
    assert!(refused.contains("gateway.pem exists: "), "{refused}");
    let (agent, _) = files(&place.path(), "agent");
    assert!(!agent.exists(), "a refused command issues nothing");
    assert_eq!(
        place.certificate("gateway").serial_digits(),
        first.serial_digits()
    );
    place.run("issue gateway --replace").unwrap();
    assert_ne!(
        place.certificate("gateway").serial_digits(),
        first.serial_digits()
    );
}

#[test]
fn certificates_with_less_than_a_third_of_their_time_left_are_renewed_with_their_names() {
    const DAYS: i64 = 86_400;
    let place = Place::with_ca();
    place.run("issue gateway").unwrap();
    let fresh = place.certificate("gateway");
    place.put_leaf("agent", -20 * DAYS, 9 * DAYS);
    place.put_leaf("sandbox", -19 * DAYS, 11 * DAYS);
    place.put_leaf("workflow", -31 * DAYS, -DAYS);
    let kept = place.certificate("sandbox");
    assert_eq!(place.run("show"), Ok(false));
    place.run("renew").unwrap();
    assert_eq!(place.run("show"), Ok(true));
    assert_eq!(place.certificate("gateway").der(), fresh.der());
    assert_eq!(place.certificate("sandbox").der(), kept.der());
    for name in ["agent", "workflow"] {
        let renewed = place.certificate(name);
        assert!(!renewed.is_due(now()));
        let hosts: Vec<_> = renewed.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["localhost"]);
        let (_, key) = files(&place.path(), name);
        assert!(renewed.has_key(&read_key(&key).unwrap()));
    }
    place.run("renew --all").unwrap();
    assert_ne!(place.certificate("gateway").der(), fresh.der());
}

#[test]
fn a_ca_is_replaced_by_the_next_without_a_time_in_which_a_leaf_is_not_believed() {
    let place = Place::with_ca();
    place.run("issue gateway agent").unwrap();
    let believed = || {
        let all = Certificate::read(&place.path().join(CERTIFICATES)).unwrap();
        let leaf = place.certificate("agent");
        let signers: Vec<_> = all.iter().map(|ca| leaf.is_signed_by(ca)).collect();
        (all.len(), signers.iter().position(|signed| *signed))
    };
    assert_eq!(believed(), (1, Some(0)));
    assert!(
        place
            .refusal("renew --next")
            .contains("ca-next.key does not exist")
    );
    place.run("init --next").unwrap();
    assert!(place.refusal("init --next").contains("ca-next.key exists"));
    assert_eq!(believed(), (2, Some(0)));
    place.run("issue sandbox").unwrap();
    place.run("init --retire").unwrap();
    assert_eq!(
        believed(),
        (2, Some(0)),
        "the CA that signs and the next one stay"
    );
    place.run("renew --next").unwrap();
    assert_eq!(believed(), (2, Some(1)));
    assert_eq!(place.run("show"), Ok(true));
    place.run("init --retire").unwrap();
    assert_eq!(believed(), (1, Some(0)));
    assert_eq!(place.run("show"), Ok(true));
}

#[test]
fn leaves_of_the_ca_before_are_renewed_and_keep_it_from_being_retired() {
    let place = Place::with_ca();
    place.run("issue gateway agent").unwrap();
    place.run("init --next").unwrap();
    // The command was killed when the next CA had its key in place.
    std::fs::rename(
        place.path().join("ca-next.key"),
        place.path().join("ca.key"),
    )
    .unwrap();
    let refused = place.refusal("init --retire");
    assert!(
        refused.contains("not signed by the CA that stays: agent, gateway"),
        "{refused}"
    );
    place.run("renew").unwrap();
    place.run("init --retire").unwrap();
    assert_eq!(place.run("show"), Ok(true));
}

#[test]
fn a_time_that_the_end_of_a_ca_cut_short_is_not_passed_on_by_a_renewal() {
    let place = Place::new();
    place.run("init --days 2").unwrap();
    place.run("issue gateway").unwrap();
    let days = || {
        let leaf = Certificate::read(&place.path().join("gateway.pem")).unwrap();
        (leaf[0].validity.1 - authority::now()) / (24 * 60 * 60)
    };
    assert!(days() <= 2, "{}", days());
    place.run("init --next").unwrap();
    place.run("renew --next").unwrap();
    assert!(days() >= 29, "{}", days());
}

#[test]
fn a_service_can_be_given_its_files_without_the_key_of_the_ca() {
    let place = Place::with_ca();
    place.run("issue agent --out OUT").unwrap();
    let out = place.temporary.path().join("out");
    let held = |out: &Path| {
        let entries = std::fs::read_dir(out).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(held(&out), [".agent", "agent.key", "agent.pem", "ca.pem"]);
    place.run("init --next").unwrap();
    place.run("renew --out OUT").unwrap();
    let copied = Certificate::read(&out.join(CERTIFICATES)).unwrap();
    assert_eq!(
        copied.len(),
        2,
        "the directory of the service has the next CA too"
    );
    assert_eq!(held(&place.path()), ["ca-next.key", "ca.key", "ca.pem"]);
}

#[test]
fn hostile_input_is_refused_with_its_place_and_a_remedy() {
    let place = Place::with_ca();
    place.run("issue gateway").unwrap();
    for (line, expected) in [
        (
            "issue ../gateway",
            "\"../gateway\" is no service: name some of gateway, registry, ",
        ),
        (
            "issue --client ../ada",
            "\"../ada\" is no name of a client: give 1 to 63 small letters",
        ),
        (
            "issue --client ca",
            "\"ca\" is no name of a client: its files are those of a CA",
        ),
        ("issue --client gateway", "its files are those of a service"),
        (
            "issue agent tool-registry x",
            "\"tool-registry\" is no service",
        ),
        (
            "issue agent --host a/b --host c:d",
            "neither the name of a host nor an address: \"a/b\", \"c:d\"",
        ),
        ("issue agent --days 0", "0 is not in 1..=398"),
        ("issue", "required arguments were not provided"),
        (
            "init --domain a/b",
            "is not a domain of 1 to 255 small letters",
        ),
        ("init --next --retire", "cannot be used with"),
    ] {
        let refused = place.refusal(line);
        assert!(refused.contains(expected), "{line}: {refused}");
    }
    let key = place.path().join("ca.key");
    let text = std::fs::read_to_string(&key).unwrap();
    set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    assert!(
        place
            .refusal("issue agent")
            .contains("ca.key is open to others (mode 0640): `chmod 600")
    );
    set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    for (written, expected) in [
        ("no key", "ca.key holds no private key in PEM"),
        (
            &KeyPair::generate().unwrap().serialize_pem(),
            "has no certificate of this key",
        ),
    ] {
        std::fs::write(&key, written).unwrap();
        let refused = place.refusal("issue agent");
        assert!(refused.contains(expected), "{refused}");
    }
    std::fs::write(&key, text).unwrap();
    let big = "x".repeat(2 << 20);
    for (written, expected) in [
        ("no certificate", "ca.pem holds no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "ca.pem: holds a broken certificate",
        ),
        (
            &big,
            "ca.pem cannot be read: it has more than 1048576 bytes",
        ),
    ] {
        std::fs::write(place.path().join(CERTIFICATES), written).unwrap();
        let refused = place.refusal("issue agent");
        assert!(refused.contains(expected), "{refused}");
        assert!(!place.refusal("show").is_empty());
    }
}

#[test]
fn a_ca_that_expired_signs_nothing_and_names_the_way_to_the_next() {
    let place = Place::with_ca();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let uri = rcgen::SanType::URI("spiffe://tavern.internal".try_into().unwrap());
    params.subject_alt_names.push(uri);
    params.not_after = time::OffsetDateTime::from_unix_timestamp(now() - 1).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    std::fs::write(place.path().join("ca.pem"), pem).unwrap();
    std::fs::write(place.path().join("ca.key"), key.serialize_pem()).unwrap();
    let refused = place.refusal("issue gateway");
    assert!(refused.contains("the CA expired at "), "{refused}");
    assert_eq!(place.run("show"), Ok(false));
    place.run("init --next").unwrap();
    place.run("renew --next").unwrap();
    place.run("issue gateway").unwrap();
    place.run("init --retire").unwrap();
    assert_eq!(place.run("show"), Ok(true));
}

#[test]
fn a_directory_that_is_none_is_named() {
    let place = Place::with_ca();
    let file = place.path().join("ca.pem").display().to_string();
    let run = |line: &str| {
        let words = ["certs"]
            .into_iter()
            .chain(line.split(' '))
            .chain(["--dir", &file]);
        let read = Line::try_parse_from(words).unwrap();
        format!("{:#}", read.command.execute(false).unwrap_err())
    };
    for line in ["init", "init --next", "issue gateway", "renew", "show"] {
        let refused = run(line);
        assert!(refused.contains(&file), "{line}: {refused}");
    }
    let refused = place.refusal(&format!("issue gateway --out {file}"));
    assert!(refused.contains("cannot be made"), "{refused}");
}

#[test]
fn certificates_that_prove_nothing_are_shown_as_such() {
    let place = Place::with_ca();
    let other = Place::with_ca();
    for (name, put) in [
        ("agent", "of another CA"),
        ("gateway", "with the key of another"),
    ] {
        assert_eq!(place.run("show"), Ok(true), "{put}");
        other.run(&format!("issue {name}")).unwrap();
        place.run(&format!("issue {name}")).unwrap();
        let (certificate, key) = files(&place.path(), name);
        let (other_certificate, other_key) = files(&other.path(), name);
        match name {
            "agent" => std::fs::copy(other_certificate, certificate).unwrap(),
            _ => std::fs::copy(other_key, key).unwrap(),
        };
        assert_eq!(place.run("show"), Ok(false), "{put}");
        place.run(&format!("issue {name} --replace")).unwrap();
    }
    place.put_leaf("registry", 3_600, 7_200);
    assert_eq!(place.run("show"), Ok(false), "not valid yet");
}
