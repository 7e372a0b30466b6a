//! `tavern keys`, from the first key to its end.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, ensure};
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use serde_json::{Value, json};
use testkit::{APPROVER_KEY, Process, Stack, binary, eventually, exchange, repository};

use super::text;
use crate::text::write_file;

/// A Tavern, and the commands of people with key files.
struct Keys {
    stack: Stack,
    files: tempfile::TempDir,
}

impl Keys {
    async fn open() -> anyhow::Result<Self> {
        Ok(Self {
            stack: Stack::all_in_one().await?,
            files: tempfile::tempdir()?,
        })
    }

    /// Starts a Tavern whose first principal is `admin`.
    async fn closed() -> anyhow::Result<Self> {
        let keys = Self::open().await?;
        let out = keys.file("admin");
        keys.done("", &["keys", "bootstrap", "--out", &out])?;
        Ok(keys)
    }

    /// Returns the path of the key file of a name.
    fn file(&self, name: &str) -> String {
        let path = self.files.path().join(name).with_extension("key");
        path.display().to_string()
    }

    fn data(&self) -> PathBuf {
        self.stack.directory().join("data")
    }

    /// Returns a command with the key file of `who`, or without a key.
    fn command(&self, who: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(binary("tavern")?);
        command
            .args(arguments)
            .env("TAVERN_ADDRESS", self.stack.address());
        if !who.is_empty() {
            command.env("TAVERN_KEY_FILE", self.file(who));
        }
        Ok(command)
    }

    fn run(&self, who: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        Ok(self.command(who, arguments)?.output()?)
    }

    /// Returns the output of a command that succeeds.
    fn done(&self, who: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(who, arguments)?;
        ensure!(output.status.success(), "{who} {arguments:?}: {output:?}");
        Ok(text(&output.stdout))
    }

    /// Returns the error of a command that fails.
    fn refused(&self, who: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(who, arguments)?;
        let error = text(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && error.starts_with("error: "),
            "{who} {arguments:?}: {output:?}"
        );
        Ok(error)
    }

    /// Makes a key for a principal, and its file.
    fn create(&self, name: &str, options: &[&str]) -> anyhow::Result<String> {
        let out = self.file(name);
        let create = ["keys", "create", name, "--out", &out];
        self.done("admin", &[&create[..], options].concat())
    }

    /// Returns the message that a command prints as one line of JSON.
    fn json(&self, who: &str, arguments: &[&str]) -> anyhow::Result<Value> {
        let printed = self.done(who, &[arguments, &["--json"]].concat())?;
        Ok(serde_json::from_str(&printed)?)
    }

    /// Returns the text of a key.
    fn secret(&self, who: &str) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.file(who))?.trim().to_owned())
    }

    /// Returns the status of a request of plain HTTP with the key of `who`.
    async fn models(&self, who: &str) -> anyhow::Result<String> {
        let key = self.secret(who)?;
        let head = format!("GET /v1/models\r\nauthorization: Bearer {key}\r\n");
        let answer = exchange(&self.stack.address(), &head, b"", |_| false).await?;
        let status = answer.split_whitespace().nth(1).unwrap_or_default();
        Ok(status.to_owned())
    }
}

/// Checks that a text has each part.
fn check(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_made_used_and_revoked() -> anyhow::Result<()> {
    let keys = Keys::open().await?;
    check(
        &keys.done("", &["keys", "whoami"])?,
        &["principal     local", "`tavern keys bootstrap` makes"],
    );
    let (data, out) = (keys.data().display().to_string(), keys.file("admin"));
    let made = keys.done(
        "",
        &["keys", "bootstrap", "--data-dir", &data, "--out", &out],
    )?;
    check(
        &made,
        &[
            "0 open runs and 0 schedules of local act for admin",
            &format!("{out} holds the key of admin: "),
        ],
    );
    let mode = std::fs::metadata(&out)?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    check(
        &keys.refused("", &["runs", "list"])?,
        &["asks for a key", "--key-file", "TAVERN_KEY_FILE"],
    );
    keys.create("ada", &["--role", "invoker", "--days", "30"])?;
    check(
        &keys.done("ada", &["keys", "whoami"])?,
        &[
            "principal     ada",
            "roles         invoker",
            "permissions   read, invoke",
        ],
    );
    let inputs = r#"{"prices": [1, 2.5]}"#;
    let run = ["workflows", "run", "price_list", inputs];
    check(&keys.done("ada", &run)?, &["succeeded", "\"failed\": 0"]);
    let file = repository().join("deploy/workflows/price_list.json");
    let file = file.display().to_string();
    check(
        &keys.refused("ada", &["workflows", "put", &file])?,
        &["`ada` may not", "`define`"],
    );
    check(&keys.refused("ada", &["keys", "list"])?, &["`administer`"]);
    assert_eq!(keys.models("ada").await?, "200");
    keys.done("admin", &["keys", "revoke", "ada"])?;
    let revoked = eventually("the end of the key", || async {
        keys.refused("ada", &["runs", "list"]).ok()
    });
    check(
        &revoked.await?,
        &["does not accept the key in ", &keys.file("ada")],
    );
    assert_eq!(keys.models("ada").await?, "401");
    // The server answers a probe without a key.
    keys.done("", &["healthcheck"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_a_key_is_in_no_file_of_the_server() -> anyhow::Result<()> {
    let mut keys = Keys::closed().await?;
    keys.create("ada", &["--role", "invoker"])?;
    keys.done("ada", &["invoke", &write_file("a.txt", "one")])?;
    keys.models("ada").await?;
    let mut secrets = Vec::new();
    for who in ["admin", "ada"] {
        let key = keys.secret(who)?;
        let secret = key.split('_').nth(2).unwrap_or_default().to_owned();
        assert_eq!(secret.len(), 64, "a secret has 32 bytes");
        secrets.push(secret);
    }
    keys.stack.terminate()?;
    let mut directories = vec![keys.stack.directory().to_owned()];
    let mut read = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path())?;
            read += bytes.len();
            for secret in &secrets {
                let is_in =
                    |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|it| it == text);
                assert!(!is_in(&bytes, secret.as_bytes()), "{entry:?}");
            }
        }
    }
    assert!(read > 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_to_a_terminal_or_a_new_file_and_else_no_key_is_made() -> anyhow::Result<()> {
    let keys = Keys::open().await?;
    for arguments in [&["keys", "bootstrap"][..], &["keys", "bootstrap", "--json"]] {
        check(
            &keys.refused("", arguments)?,
            &["--out FILE", "no key was made"],
        );
    }
    let taken = keys.file("admin");
    std::fs::write(&taken, "another")?;
    check(
        &keys.refused("", &["keys", "bootstrap", "--out", &taken])?,
        &["no key was made"],
    );
    assert_eq!(std::fs::read_to_string(&taken)?, "another");
    assert_eq!(keys.json("", &["keys", "whoami"])?["open"], true);
    std::fs::remove_file(&taken)?;

    // Python's terminal is one.
    let on_a_terminal = |arguments: &[&str]| -> anyhow::Result<String> {
        let spawn =
            "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        let tavern = keys.command("admin", arguments)?;
        let mut command = Command::new("python3");
        command
            .args(["-c", spawn])
            .arg(tavern.get_program())
            .args(tavern.get_args());
        for (name, value) in tavern.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = command.output()?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(text(&output.stdout))
    };
    keys.done("", &["keys", "bootstrap", "--out", &taken])?;
    let shown = on_a_terminal(&["keys", "create", "ada", "--role", "viewer"])?;
    let key = shown
        .split_whitespace()
        .find(|word| word.starts_with("tvk_"));
    check(&shown, &["The key of ada", "not shown again"]);
    std::fs::write(keys.file("ada"), key.unwrap_or_default())?;
    std::fs::set_permissions(keys.file("ada"), PermissionsExt::from_mode(0o600))?;
    check(
        &keys.done("ada", &["keys", "whoami"])?,
        &["principal     ada"],
    );
    let shown = on_a_terminal(&["keys", "create", "ada", "--json"])?;
    check(&shown, &["\"secretKey\":\"tvk_"]);
    let printed = keys.json(
        "admin",
        &["keys", "create", "ada", "--out", &keys.file("b")],
    )?;
    assert_eq!(printed["key"]["keyId"].as_str().map(str::len), Some(16));
    assert_eq!(printed["secretKey"], Value::Null);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_file_that_others_may_read_is_refused_before_it_is_sent() -> anyhow::Result<()> {
    let keys = Keys::closed().await?;
    std::fs::set_permissions(keys.file("admin"), PermissionsExt::from_mode(0o644))?;
    check(
        &keys.refused("admin", &["runs", "list"])?,
        &["is open to others (mode 0644)", "chmod 600 "],
    );
    check(
        &keys.refused("eve", &["runs", "list"])?,
        &["cannot be read: No such file"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_a_principal_are_set_part_by_part() -> anyhow::Result<()> {
    let keys = Keys::closed().await?;
    keys.create(
        "ada",
        &[
            "--role",
            "invoker",
            "--group",
            "keepers",
            "--allow-tool",
            "workflow:*",
        ],
    )?;
    let rights = |who: &str| -> anyhow::Result<Value> {
        let shown = keys.json("admin", &["keys", "show", who])?;
        Ok(json!([
            shown["roles"],
            shown["groups"],
            shown["allowedTools"],
            shown["deniedTools"]
        ]))
    };
    assert_eq!(
        rights("ada")?,
        json!([["invoker"], ["keepers"], ["workflow:*"], null])
    );
    let bind = |options: &[&str]| keys.done("admin", &[&["keys", "bind", "ada"], options].concat());
    bind(&["--role", "developer", "--deny-tool", "workflow:grant_item"])?;
    assert_eq!(
        rights("ada")?,
        json!([
            ["developer"],
            ["keepers"],
            ["workflow:*"],
            ["workflow:grant_item"]
        ])
    );
    bind(&["--allow-tool", "", "--group", ""])?;
    assert_eq!(
        rights("ada")?,
        json!([["developer"], null, null, ["workflow:grant_item"]])
    );
    // A new key changes no rights.
    let again = keys.file("again");
    let create = |options: &[&str]| {
        let create = ["keys", "create", "ada", "--out", &again];
        keys.refused("admin", &[&create[..], options].concat())
    };
    check(&create(&["--group", "others"])?, &["keys bind ada"]);
    check(&create(&["--role", "viewer"])?, &["developer"]);
    assert!(!Path::new(&again).exists());
    check(
        &keys.refused("admin", &["keys", "bind", "admin", "--role", "viewer"])?,
        &["last administrator"],
    );
    check(
        &keys.refused("admin", &["keys", "show", "eve"])?,
        &["there is no principal eve"],
    );
    let wrong = keys.run("admin", &["keys", "bind", "ada", "--role", "admins"])?;
    check(&text(&wrong.stderr), &["'admin'"]);
    bind(&["--role", ""])?;
    assert_eq!(rights("ada")?[0], Value::Null);
    check(
        &keys.refused("ada", &["runs", "list"])?,
        &["no role", "`read`"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_and_its_successor_overlap() -> anyhow::Result<()> {
    let keys = Keys::closed().await?;
    keys.create("ada", &["--role", "viewer", "--scope", "read"])?;
    let next = keys.file("next");
    let rotate = [
        "keys",
        "rotate",
        "ada",
        "--overlap-hours",
        "1",
        "--out",
        &next,
    ];
    keys.done("admin", &rotate)?;
    for who in ["ada", "next"] {
        let caller = keys.json(who, &["keys", "whoami"])?;
        assert_eq!(caller["principal"], "ada", "{who}");
    }
    let shown = keys.json("admin", &["keys", "show", "ada"])?;
    assert_eq!(shown["keys"].as_array().map(Vec::len), Some(2), "{shown}");
    let earlier = shown["keys"][1]["keyId"].as_str().unwrap_or_default();
    keys.done("admin", &["keys", "revoke", earlier])?;
    eventually("the end of the earlier key", || async {
        keys.refused("ada", &["runs", "list"]).ok()
    })
    .await?;
    keys.done("next", &["runs", "list"])?;
    check(
        &keys.refused("admin", &["keys", "revoke", "admin"])?,
        &["last administrator"],
    );
    check(
        &keys.refused("admin", &["keys", "revoke", "0000"])?,
        &["neither a principal nor a key 0000"],
    );
    keys.done("admin", &["keys", "revoke", "admin", "--really"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_principal_takes_over_what_was_open() -> anyhow::Result<()> {
    let keys = Keys::open().await?;
    let request = StartRunRequest {
        target: Some(Target::WorkflowId("await_delivery".to_owned())),
        inputs_json: json!({"parcel": "p1"}).to_string(),
        ..StartRunRequest::default()
    };
    let started = keys.stack.workflow().start_run(request).await?.into_inner();
    let run_id = started.run.context("the run was started")?.run_id;
    let schedule = [
        "schedules",
        "put",
        "prices",
        "price_list",
        "{\"prices\": [1]}",
    ];
    keys.done("", &[&schedule[..], &["--every", "86400"]].concat())?;
    let out = keys.file("admin");
    let made = keys.done("", &["keys", "bootstrap", "--name", "ada", "--out", &out])?;
    check(
        &made,
        &[
            "1 open run and 1 schedule of local act for ada",
            &run_id,
            "prices",
        ],
    );
    check(
        &keys.refused("", &["keys", "bootstrap", "--out", &keys.file("second")])?,
        &["has its first key"],
    );
    check(
        &keys.done("admin", &["schedules", "trigger", "prices"])?,
        &["TIME"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_made_and_replaced_in_a_stopped_data_directory() -> anyhow::Result<()> {
    let mut keys = Keys::open().await?;
    let data = keys.data().display().to_string();
    let bootstrap = |keys: &Keys, name: &str, options: &[&str]| {
        let out = keys.file(name);
        let bootstrap = ["keys", "bootstrap", "--data-dir", &data, "--out", &out];
        keys.run("", &[&bootstrap[..], options].concat())
    };
    // A running Tavern that has another directory is not meant.
    let other = keys.files.path().join("other").display().to_string();
    check(
        &keys.refused(
            "",
            &[
                "keys",
                "bootstrap",
                "--data-dir",
                &other,
                "--out",
                &keys.file("o"),
            ],
        )?,
        &["is not its data directory"],
    );
    let lost = bootstrap(&keys, "l", &["--lost"])?;
    check(&text(&lost.stderr), &["of a stopped Tavern"]);
    keys.stack.terminate()?;
    let made = bootstrap(&keys, "admin", &[])?;
    assert!(made.status.success(), "{made:?}");
    let again = bootstrap(&keys, "again", &[])?;
    check(&text(&again.stderr), &["has its first key"]);
    keys.stack.restart().await?;
    check(
        &keys.stack.processes()[0].output(),
        &["keys: none yet", "keys: asked for"],
    );
    check(&keys.refused("", &["runs", "list"])?, &["asks for a key"]);
    keys.done("admin", &["runs", "list"])?;
    keys.stack.terminate()?;
    let replaced = bootstrap(&keys, "found", &["--lost"])?;
    assert!(replaced.status.success(), "{replaced:?}");
    keys.stack.restart().await?;
    keys.done("found", &["keys", "list"])?;
    check(
        &keys.refused("admin", &["keys", "list"])?,
        &["does not accept the key"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_its_own_refuses_to_start_with_keys() -> anyhow::Result<()> {
    let mut keys = Keys::closed().await?;
    keys.stack.terminate()?;
    let data = keys.data().display().to_string();
    let environment = [("TAVERN_REGISTRY__DATA_DIR".to_owned(), data)];
    let registry = binary("tool-registry")?;
    let directory = keys.files.path();
    let mut process = Process::start("tool-registry", &registry, &[], &environment, directory)?;
    let ended = process.wait()?;
    assert_eq!(ended.code(), Some(78), "{}", process.output());
    check(&process.output(), &["has keys", "tavern serve"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approvers_of_a_file_become_principals() -> anyhow::Result<()> {
    let keys = Keys::closed().await?;
    let file = keys.stack.directory().join("approvals.json");
    let file = file.display().to_string();
    let imported = keys.done("admin", &["keys", "import-approvers", &file])?;
    check(&imported, &["tester", "approver", "storykeeper"]);
    assert_eq!(
        keys.done("admin", &["keys", "import-approvers", &file])?,
        imported
    );
    std::fs::write(keys.file("tester"), APPROVER_KEY)?;
    std::fs::set_permissions(keys.file("tester"), PermissionsExt::from_mode(0o600))?;
    check(
        &keys.done("tester", &["keys", "whoami"])?,
        &["principal     tester", "read, approve", "storykeeper"],
    );
    check(
        &keys.refused(
            "tester",
            &["invoke", "<ACTION><system:get_current_time/></ACTION>"],
        )?,
        &["`invoke`"],
    );

    // A caller does not decide about a call that it started; an imported approver does.
    let roles = ["--role", "invoker", "--role", "approver"];
    keys.create("ada", &[&roles[..], &["--group", "storykeeper"]].concat())?;
    let gift = json!({"item": "lantern", "to": "player", "value": 70}).to_string();
    let calling = keys
        .command("ada", &["tools", "call", "workflow:grant_item", &gift])?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let waiting = eventually("the call to wait", || async {
        let listed = keys.done("tester", &["approvals", "list", "--json"]).ok()?;
        let approval: Value = serde_json::from_str(listed.lines().next()?).ok()?;
        Some(approval["approvalId"].as_str()?.to_owned())
    })
    .await?;
    let approve = ["approvals", "approve", &waiting];
    check(
        &keys.refused("ada", &approve)?,
        &["acts for the approver itself"],
    );
    check(&keys.done("tester", &approve)?, &["approve", "tester"]);
    let called = calling.wait_with_output()?;
    assert!(called.status.success(), "{called:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_transcripts_pass_with_keys() -> anyhow::Result<()> {
    let keys = Keys::closed().await?;
    // A transcript names the publisher of an event, which is the caller.
    keys.create("mara", &["--role", "invoker"])?;
    keys.create("ada", &["--role", "approver", "--group", "storykeeper"])?;
    let examples = repository().join("deploy/examples").display().to_string();
    let decider = keys.file("ada");
    let played = keys.done(
        "mara",
        &[
            "play",
            "--examples",
            &examples,
            "--approver-key-file",
            &decider,
        ],
    )?;
    check(&played, &["transcripts gave the expected result"]);
    Ok(())
}
