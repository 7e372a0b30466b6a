//! Tavern behind nginx with TLS: the page, the edges and gRPC on one port.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::{Process, Stack, StackBuilder, eventually, repository};
use tokio::net::TcpStream;

use crate::text::failing_agents;
use crate::{a2a, console, edges, foreign};

/// The path of the program on Debian.
const NGINX: &str = "/usr/sbin/nginx";

/// nginx with the configuration that ships, in front of a stack; it ends with this.
struct Proxy {
    address: String,
    certificate: String,
    _process: Process,
}

impl Proxy {
    async fn before(stack: &Stack) -> anyhow::Result<Self> {
        ensure!(
            Path::new(NGINX).exists(),
            "{NGINX} is missing; on Debian: apt-get install nginx-light"
        );
        let directory = stack.directory().join("nginx");
        std::fs::create_dir(&directory)?;
        let upstream = stack.address().replace("http://", "");
        let host = upstream.split(':').next().unwrap_or_default();
        let certificate = certify(host, &directory)?;
        let listen = format!("{host}:8443");
        let path = directory.join("nginx.conf");
        std::fs::write(&path, configuration(&upstream, &listen, &directory)?)?;
        let path = path.display().to_string();
        let prefix = directory.display().to_string();
        // One process, which a kill leaves no workers of.
        let global = format!("daemon off; master_process off; pid {prefix}/nginx.pid;");
        let arguments = ["-p", &prefix, "-c", &path, "-e", "stderr", "-g", &global];
        let none: &[(String, String)] = &[];
        let mut process = Process::start("nginx", Path::new(NGINX), &arguments, none, &directory)?;
        let listening = eventually("nginx to listen", || {
            let ended = process.ensure_alive();
            let connect = TcpStream::connect(listen.clone());
            async move {
                match ended {
                    Err(error) => Some(Err(error)),
                    Ok(()) => connect.await.ok().map(|_| Ok(())),
                }
            }
        });
        listening.await??;
        Ok(Self {
            address: format!("https://{listen}"),
            certificate,
            _process: process,
        })
    }

    /// Lets a client trust the certificate.
    fn trusted_by(&self, client: Command) -> Command {
        edges::believing(client, &self.certificate)
    }

    async fn play(&self, name: &str) -> anyhow::Result<()> {
        let client = self.trusted_by(edges::part(&self.address, name)?);
        edges::run(client).await.map(drop)
    }
}

/// Returns the configuration that ships with the places of this test.
fn configuration(upstream: &str, listen: &str, directory: &Path) -> anyhow::Result<String> {
    let mut text = std::fs::read_to_string(repository().join("deploy/nginx.conf"))?;
    let prefix = directory.display();
    // Not every user may write to Debian's directory for bodies too large for memory.
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let kept = kinds.map(|kind| format!("{kind}_temp_path {prefix}/{kind};"));
    let places = [
        ("127.0.0.1:7401", upstream.to_owned()),
        ("listen 443 ", format!("listen {listen} ")),
        ("/etc/nginx/tavern.", format!("{prefix}/tavern.")),
        (
            "\nhttp {",
            format!("\nhttp {{ access_log off; {}", kept.concat()),
        ),
    ];
    for (shipped, here) in places {
        ensure!(text.contains(shipped), "{shipped} is not in nginx.conf");
        text = text.replace(shipped, &here);
    }
    Ok(text)
}

/// Creates a certificate for a host and its key, and returns the path of the certificate.
fn certify(host: &str, directory: &Path) -> anyhow::Result<String> {
    let certificate = directory.join("tavern.crt");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
        .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-subj", "/CN=tavern", "-addext"])
        .arg(format!("subjectAltName=IP:{host}"))
        .args(["-addext", "keyUsage=critical,digitalSignature,keyCertSign"])
        .arg("-keyout")
        .arg(directory.join("tavern.key"))
        .arg("-out")
        .arg(&certificate)
        .output()
        .context("openssl does not run; on Debian: apt-get install openssl")?;
    let errors = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "{errors}");
    Ok(certificate.display().to_string())
}

/// Describes a stack that knows its proxy, by the prefix of the settings of its server.
fn known(stack: StackBuilder, prefix: &str) -> StackBuilder {
    let unlimited = format!("{prefix}__SERVER__UNLIMITED_CONNECTIONS_FROM_LOOPBACK");
    stack
        .env("TAVERN_GATEWAY__HTTP__PROXIES", "[\"127.0.0.1\"]")
        .env(unlimited, "true")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_reaches_five_processes_behind_nginx() -> anyhow::Result<()> {
    let stack = known(Stack::builder().separate(), "TAVERN_GATEWAY");
    let stack = stack.start().await?;
    let proxy = Proxy::before(&stack).await?;
    foreign::play(proxy.trusted_by(foreign::client(&proxy.address)?)).await?;
    for part in ["openai", "session", "cuts"] {
        proxy.play(part).await?;
    }
    edges::play_in_a_browser(&proxy.address).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_client_that_closes_its_stream_behind_nginx_ends_the_turn() -> anyhow::Result<()> {
    let stack = known(Stack::builder().deploy(failing_agents()), "TAVERN");
    let stack = stack.start().await?;
    Proxy::before(&stack).await?.play("closing").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_client_of_a2a_uses_agents_behind_nginx() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    a2a::prepare(deploy.path())?;
    let stack = known(Stack::builder().deploy(deploy.path()), "TAVERN");
    let stack = stack.start().await?;
    let proxy = Proxy::before(&stack).await?;
    let client = proxy.trusted_by(a2a::official_client(&proxy.address)?);
    edges::run(client).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_behind_nginx() -> anyhow::Result<()> {
    let stack = known(Stack::builder(), "TAVERN").start().await?;
    let proxy = Proxy::before(&stack).await?;
    let client = console::client("browser.mjs", &proxy.address, "pictures_behind_nginx")?;
    console::play(stack, proxy.trusted_by(client)).await
}
