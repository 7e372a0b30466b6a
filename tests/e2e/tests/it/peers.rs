//! Five processes that believe only services: who may call which method, by its certificate.

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::access::v1::Peer;
use contracts::tavern::registry::v1::BootstrapRequest;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use grpc_kit::tls::ClientTls;
use grpc_kit::{ServiceName, Transport};
use rcgen::{CertificateParams, Issuer, KeyPair, SanType, date_time_ymd};
use testkit::{Decision, Stack, binary, decision, eventually};
use tonic::Code;

/// The services that only services call.
const BEHIND_THE_DOOR: [ServiceName; 4] = [
    ServiceName::Registry,
    ServiceName::Workflow,
    ServiceName::Sandbox,
    ServiceName::Agent,
];

/// The methods of the server itself that need a proof too.
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

fn methods() -> impl Iterator<Item = &'static str> {
    let of_contract = contracts::access::methods().map(|(method, _)| method);
    of_contract.chain([REFLECTION])
}

/// Returns each method of a service that does not answer a caller without a certificate as one that proves nothing.
async fn believed(transport: &Transport) -> anyhow::Result<Vec<String>> {
    let mut believed = Vec::new();
    for method in methods() {
        let decided = decision(transport, method).await?;
        if decided != Decision::Unauthenticated {
            believed.push(format!("{method}: {decided:?}"));
        }
    }
    let health = decision(transport, "grpc.health.v1.Health/Check").await?;
    ensure!(health == Decision::Reached, "health: {health:?}");
    Ok(believed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_or_a_stated_name_is_no_proof_of_a_service_for_any_method() -> anyhow::Result<()> {
    let stack = Stack::builder().proven().with_keys().start().await?;
    let key = format!("Bearer {}", stack.key().context("the stack has a key")?);
    let mut wrong = Vec::new();
    for service in BEHIND_THE_DOOR {
        let unproven = stack.certificates().believing(service);
        let transport = stack.transport_of(service, unproven);
        let with_key = transport.authorized(key.parse()?);
        for (caller, transport) in [
            ("with a key", with_key),
            ("by a name", transport.of_peer(Peer::Gateway)),
        ] {
            let found = believed(&transport).await;
            let found = found.with_context(|| format!("{} {caller}", service.word()))?;
            wrong.extend(
                found
                    .iter()
                    .map(|found| format!("{} {caller}: {found}", service.word())),
            );
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_calls_the_methods_that_the_contract_lists_for_it() -> anyhow::Result<()> {
    let stack = Stack::builder().proven().start().await?;
    let mut wrong = Vec::new();
    let (mut reached, mut denied) = (0, 0);
    for service in BEHIND_THE_DOOR {
        let of_gateway = stack.certificates().client("gateway", service);
        let of_gateway = stack.transport_of(service, of_gateway);
        let mut served = Vec::new();
        for (method, access) in contracts::access::methods() {
            if decision(&of_gateway, method).await.is_ok() {
                served.push((method, access));
            }
        }
        ensure!(served.len() > 3, "{} serves {served:?}", service.word());
        for caller in ServiceName::ALL {
            let tls = stack.certificates().client(caller.word(), service);
            let transport = stack.transport_of(service, tls);
            for (method, access) in &served {
                let expected = match access.admits(caller.peer()) {
                    true => Decision::Reached,
                    false => Decision::Denied,
                };
                match expected {
                    Decision::Reached => reached += 1,
                    _ => denied += 1,
                }
                let decided = decision(&transport, method).await?;
                if decided != expected {
                    let (caller, service) = (caller.word(), service.word());
                    wrong.push(format!(
                        "{caller} at {service}: {method}: {decided:?}, not {expected:?}"
                    ));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(reached > 100 && denied > 100, "{reached} {denied}");
    Ok(())
}

/// A certificate as its owner makes it with OpenSSL: its name, and the options beside a new key.
type Made = (&'static str, &'static [&'static str]);

/// Certificates that the CA of the installation has signed, but that prove no service of it.
const SIGNED: [Made; 5] = [
    ("no-name", &["-subj", "/O=stranger"]),
    ("common-name", &["-subj", "/CN=gateway"]),
    (
        "other-domain",
        &[
            "-subj",
            "/CN=gateway",
            "-addext",
            "subjectAltName=URI:spiffe://elsewhere.internal/tavern/gateway",
        ],
    ),
    (
        "other-path",
        &[
            "-subj",
            "/CN=gateway",
            "-addext",
            "subjectAltName=URI:spiffe://tavern.internal/tavern/gateway/x",
        ],
    ),
    (
        "of-a-host",
        &[
            "-subj",
            "/CN=gateway",
            "-addext",
            "subjectAltName=DNS:gateway,IP:127.0.0.1",
        ],
    ),
];

/// The name that proves the gateway, were it signed by the CA.
const OF_GATEWAY: &[&str] = &[
    "-subj",
    "/CN=gateway",
    "-addext",
    "subjectAltName=URI:spiffe://tavern.internal/tavern/gateway",
];

/// Makes a certificate with OpenSSL, signed by `ca` of the directory or, without, by itself.
fn make(directory: &Path, (name, options): Made, ca: Option<&str>) -> anyhow::Result<()> {
    let path = |ending: &str| {
        directory
            .join(format!("{name}.{ending}"))
            .display()
            .to_string()
    };
    let mut command = std::process::Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    command.args(["-days", "30", "-keyout", &path("key"), "-out", &path("pem")]);
    command.args(options);
    if let Some(ca) = ca {
        command.arg("-CA").arg(directory.join(format!("{ca}.pem")));
        command
            .arg("-CAkey")
            .arg(directory.join(format!("{ca}.key")));
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    let made = command.output()?;
    ensure!(made.status.success(), "{name}: {made:?}");
    Ok(())
}

/// Makes a certificate of the gateway that the CA has signed, and whose time is over; OpenSSL makes none.
fn make_expired(directory: &Path) -> anyhow::Result<()> {
    let read = |file: &str| std::fs::read_to_string(directory.join(file));
    let ca = KeyPair::from_pem(&read("ca.key")?)?;
    let ca = Issuer::from_ca_cert_pem(&read("ca.pem")?, ca)?;
    let mut params = CertificateParams::default();
    let uri = "spiffe://tavern.internal/tavern/gateway".try_into()?;
    params.subject_alt_names.push(SanType::URI(uri));
    params.not_after = date_time_ymd(2026, 1, 1);
    let key = KeyPair::generate()?;
    let made = params.signed_by(&key, &ca)?.pem();
    std::fs::write(directory.join("expired.pem"), made)?;
    Ok(std::fs::write(
        directory.join("expired.key"),
        key.serialize_pem(),
    )?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_proves_no_service_is_refused_in_the_handshake_and_logged_once()
-> anyhow::Result<()> {
    let mut stack = Stack::builder().proven().start().await?;
    let directory = stack.certificates().path().to_owned();
    stack.certificates().run(&["issue", "--client", "ada"])?;
    for made in SIGNED {
        make(&directory, made, Some("ca"))?;
    }
    make_expired(&directory)?;
    make(&directory, ("self-signed", OF_GATEWAY), None)?;
    make(&directory, ("other-ca", &["-subj", "/CN=Tavern CA"]), None)?;
    make(&directory, ("of-other-ca", OF_GATEWAY), Some("other-ca"))?;
    make(&directory, ("gateway-by-openssl", OF_GATEWAY), Some("ca"))?;
    let bad = SIGNED.map(|(name, _)| name);
    let names = ["ada", "expired", "self-signed", "of-other-ca"];
    const METHOD: &str = "tavern.run.v1.RunService/GetRun";
    let registry = ServiceName::Registry;
    let at_registry = |name: &str| {
        let tls = stack.certificates().client(name, registry);
        stack.transport_of(registry, tls)
    };
    // The same certificate is one of the gateway where the CA has signed it for the time being.
    let decided = decision(&at_registry("gateway-by-openssl"), METHOD).await?;
    assert_eq!(decided, Decision::Reached);
    for name in bad.into_iter().chain(names) {
        for _ in 0..3 {
            let refused = decision(&at_registry(name), METHOD).await;
            let refused = refused.map(|decided| format!("{name} is believed: {decided:?}"));
            let refused = refused
                .err()
                .context("a certificate that proves nothing is believed")?;
            assert!(
                refused.to_string().contains("is not served"),
                "{name}: {refused}"
            );
        }
    }
    let process = stack
        .processes()
        .iter()
        .find(|process| process.name() == "tool-registry");
    let process = process.context("the registry runs")?;
    let log = process.output();
    for reason in [
        "the certificate has no URI",
        "the certificate names a service of another domain",
        "the URI of the certificate names no service",
        "the certificate expired",
        "the certificate is not signed by a trusted CA",
    ] {
        let lines = log
            .lines()
            .filter(|line| line.contains("handshakes failed") && line.contains(reason));
        assert_eq!(lines.count(), 1, "{reason}: {log}");
    }
    for name in names {
        let key = std::fs::read_to_string(directory.join(format!("{name}.key")))?;
        let middle = key.lines().nth(1).context("a key has lines")?;
        assert!(!log.contains(middle), "the log has a key");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_service_is_logged_once_with_the_method_and_the_reason() -> anyhow::Result<()> {
    let mut stack = Stack::builder().proven().start().await?;
    let registry = ServiceName::Registry;
    let tls = stack.certificates().client("sandbox", registry);
    let sandbox = stack.transport_of(registry, tls);
    for transport in [sandbox.clone(), sandbox.of_peer(Peer::Gateway)] {
        for _ in 0..5 {
            decision(&transport, "tavern.registry.v1.CallService/CallTool").await?;
        }
    }
    let process = stack
        .processes()
        .iter()
        .find(|process| process.name() == "tool-registry");
    let log = process.context("the registry runs")?.output();
    for reason in [
        "script-sandbox called tavern.registry.v1.CallService/CallTool: the contract does not name the service",
        "script-sandbox called tavern.registry.v1.CallService/CallTool: the certificate names another service",
    ] {
        let lines = log.lines().filter(|line| line.contains(reason));
        assert_eq!(lines.count(), 1, "{reason}: {log}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_made_at_the_gateway_and_not_by_a_caller_behind_it() -> anyhow::Result<()>
{
    let mut stack = Stack::builder().proven().start().await?;
    let registry = ServiceName::Registry;
    let certificates = stack.certificates();
    for (tls, code) in [
        (certificates.believing(registry), Code::Unauthenticated),
        (
            certificates.client("sandbox", registry),
            Code::PermissionDenied,
        ),
        (
            certificates.client("agent", registry),
            Code::PermissionDenied,
        ),
    ] {
        let transport = stack.transport_of(registry, tls);
        let mut identities = IdentityServiceClient::new(transport.outermost());
        let refused = identities.bootstrap(BootstrapRequest::default()).await;
        assert_eq!(refused.map(drop).map_err(|status| status.code()), Err(code));
    }
    stack.bootstrap().await?;
    let refused = decision(
        &stack.transport_with(None),
        "tavern.run.v1.RunService/GetRun",
    )
    .await?;
    assert_eq!(refused, Decision::Unauthenticated);
    let key = stack.key().map(str::to_owned);
    let admitted = stack.transport_with(key.as_deref());
    let decided = decision(&admitted, "tavern.run.v1.RunService/GetRun").await?;
    assert_eq!(decided, Decision::Reached);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_the_certificate_of_another_refuses_to_start() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let certificates = testkit::Certificates::make(directory.path().join("certs"))?;
    let path = |name: &str| certificates.path().join(name);
    for (variables, expected) in [
        (
            vec![
                ("SERVER__TLS__CERT", path("agent.pem")),
                ("SERVER__TLS__KEY", path("agent.key")),
            ],
            vec![
                "server.tls.cert",
                "names spiffe://tavern.internal/tavern/agent, not spiffe://tavern.internal/tavern/registry",
            ],
        ),
        (
            vec![
                ("SERVER__TLS__CERT", path("registry.pem")),
                ("SERVER__TLS__KEY", path("registry.key")),
            ],
            vec![
                "workflow.uri",
                "sandbox.uri",
                "agent.uri",
                "where no service proves itself",
            ],
        ),
    ] {
        let mut command = std::process::Command::new(binary("tool-registry")?);
        command.env("TAVERN_REGISTRY__SERVER__TLS__PEER_CA", path("ca.pem"));
        command.env("TAVERN_REGISTRY__DATA_DIR", directory.path().join("data"));
        for (key, value) in variables {
            command.env(format!("TAVERN_REGISTRY__{key}"), value);
        }
        let ended = command.output()?;
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(78), "{error}");
        for part in expected {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn services_go_on_while_their_ca_is_replaced() -> anyhow::Result<()> {
    const METHOD: &str = "tavern.run.v1.RunService/GetRun";
    let mut stack = Stack::builder().proven().start().await?;
    let directory = stack.certificates().path().to_owned();
    let kept = directory.join("kept");
    std::fs::create_dir(&kept)?;
    for file in ["ca.pem", "gateway.pem", "gateway.key"] {
        std::fs::copy(directory.join(file), kept.join(file))?;
    }
    let registry = ServiceName::Registry;
    // A client with the first certificates, which are not renewed.
    let first = |stack: &Stack| {
        let tls = ClientTls {
            ca: kept.join("ca.pem"),
            cert: kept.join("gateway.pem"),
            key: kept.join("gateway.key"),
            ..stack.certificates().believing(registry)
        };
        stack.transport_of(registry, tls)
    };
    let present = |stack: &Stack| {
        let tls = stack.certificates().client("gateway", registry);
        stack.transport_of(registry, tls)
    };
    assert_eq!(decision(&first(&stack), METHOD).await?, Decision::Reached);
    stack.certificates().run(&["init", "--next"])?;
    renewals(&mut stack, 1).await?;
    assert_eq!(decision(&first(&stack), METHOD).await?, Decision::Reached);
    stack.certificates().run(&["renew", "--next"])?;
    renewals(&mut stack, 2).await?;
    // The registry has a certificate of the next CA, and believes those of the first one further.
    assert_eq!(decision(&present(&stack), METHOD).await?, Decision::Reached);
    assert!(decision(&first(&stack), METHOD).await.is_err());
    stack.certificates().run(&["init", "--retire"])?;
    renewals(&mut stack, 3).await?;
    assert_eq!(decision(&present(&stack), METHOD).await?, Decision::Reached);
    crate::transcripts::play(&stack)
}

/// Waits until each service behind the door has renewed its certificates a number of times.
async fn renewals(stack: &mut Stack, number: usize) -> anyhow::Result<()> {
    for process in stack
        .processes()
        .iter()
        .filter(|process| process.name() != "gateway")
    {
        let renewed = || async {
            let log = process.output();
            let lines = log
                .lines()
                .filter(|line| line.contains("the certificates are renewed"));
            (lines.count() >= number).then_some(())
        };
        eventually(&format!("renewal {number} of {}", process.name()), renewed).await?;
    }
    Ok(())
}
