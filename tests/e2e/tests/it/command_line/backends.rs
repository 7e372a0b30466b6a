//! The commands for where tools come from: backends and plugins.

use serde_json::{Value, json};
use testkit::{Certificates, Stack};

use super::{printed, tavern, text};
use crate::ledger::{World, append};

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_is_stored_from_a_file_listed_shown_and_deleted() -> anyhow::Result<()> {
    let world = World::new(Stack::all_in_one().await?).await?;
    let stack = &world.stack;
    let shown = printed(stack, &["backends", "show", "ledger", "--json"])?;
    let ledger: Value = serde_json::from_str(&shown)?;
    let endpoint = ledger["endpoint"].as_str().unwrap_or_default();

    let file = stack.directory().join("backend.json");
    let path = file.to_string_lossy().into_owned();
    let put = ["backends", "put", &path];
    let mut backend = json!({"name": "copy", "endpoint": endpoint, "validateOnly": true});
    std::fs::write(&file, backend.to_string())?;
    let checked = printed(stack, &put)?;
    assert!(
        checked.contains("tavern.test.v1.Ledger/Append"),
        "{checked}"
    );
    assert!(!printed(stack, &["backends", "list"])?.contains("copy"));

    backend["validateOnly"] = json!(false);
    std::fs::write(&file, backend.to_string())?;
    let stored = printed(stack, &put)?;
    assert_eq!(printed(stack, &["backends", "show", "copy"])?, stored);
    for part in [
        "backend       copy\n".to_owned(),
        format!("endpoint      {endpoint}\n"),
        "tavern.test.v1.Ledger/Append\n".to_owned(),
    ] {
        assert!(stored.contains(&part), "{part} is not in {stored}");
    }
    let listed = printed(stack, &["backends", "list"])?;
    let names = listed.lines().map(|line| line.split(' ').next());
    let names: Vec<&str> = names.flatten().collect();
    assert_eq!(names, ["BACKEND", "copy", "ledger"], "{listed}");

    printed(stack, &["backends", "delete", "copy"])?;
    let gone = tavern(stack, &["backends", "show", "copy"])?;
    let said = text(&gone.stderr);
    assert!(
        !gone.status.success() && said.contains("`copy`"),
        "{gone:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_found_by_words() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let found = printed(&stack, &["tools", "search", "query", "knowledge"])?;
    let names = found.lines().map(|line| line.split(' ').next());
    let names: Vec<&str> = names.flatten().collect();
    assert_eq!(names[..2], ["TOOL", "QueryKnowledgeBaseTool"], "{found}");
    let wrong = tavern(&stack, &["tools", "search"])?;
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("<WORDS>"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_file_that_is_wrong_is_named_with_its_fault() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let file = stack.directory().join("backend.json");
    let path = file.to_string_lossy().into_owned();
    for (written, fault) in [
        ("crm", format!("{path} is not a backend file: ")),
        (
            r#"{"name": "crm"} 1"#,
            format!("{path} is not a backend file: "),
        ),
        (r#"{"name": "crm", "address": "x"}"#, "'address'".to_owned()),
        (r#"{"name": "crm"}"#, "endpoint".to_owned()),
        (
            r#"{"name": "crm", "endpoint": "http://127.0.0.1:1"}"#,
            "127.0.0.1:1".to_owned(),
        ),
    ] {
        std::fs::write(&file, written)?;
        let refused = tavern(&stack, &["backends", "put", &path])?;
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{written}: {said}");
        assert!(said.contains(&fault), "{written}: {said}");
    }
    assert_eq!(printed(&stack, &["backends", "list", "--json"])?, "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_at_an_https_address_is_believed_by_the_ca_of_the_settings_alone()
-> anyhow::Result<()> {
    const CA: &str = "TAVERN_REGISTRY__BACKEND_CA";
    let directory = tempfile::tempdir()?;
    let make = |name: &str| Certificates::make(directory.path().join(name));
    let (own, other) = (make("own")?, make("other")?);
    let stack = Stack::builder().env(CA, own.ca()).start().await?;
    let mut world = World::encrypted(stack, &own).await?;
    assert!(world.endpoint.starts_with("https://"), "{}", world.endpoint);
    let call = |note: &str| append("ledger.append", note, 0);
    printed(&world.stack, &["invoke", &call("believed")])?;
    assert_eq!(world.effects("believed")?.len(), 1);

    // The address of the ledger in a form that its certificate does not have.
    let elsewhere = world.endpoint.replace("127.0.0.1", "[::ffff:127.0.0.1]");
    let file = world.stack.directory().join("backend.json");
    let path = file.to_string_lossy().into_owned();
    let put = |stack: &Stack, endpoint: &str, reason: &str| {
        let backend = json!({"name": "copy", "endpoint": endpoint});
        std::fs::write(&file, backend.to_string())?;
        let refused = tavern(stack, &["backends", "put", &path])?;
        let said = text(&refused.stderr);
        anyhow::ensure!(
            refused.status.code() == Some(1) && said.contains(reason),
            "{said}"
        );
        anyhow::Ok(())
    };
    put(
        &world.stack,
        &elsewhere,
        "the certificate names another host",
    )?;

    world.stack.set_env(CA, other.ca());
    world.stack.restart().await?;
    let reason = "the certificate is not signed by a trusted CA";
    put(&world.stack, &world.endpoint, reason)?;
    let refused = tavern(&world.stack, &["invoke", &call("refused")])?;
    let said = text(&refused.stdout);
    assert!(!refused.status.success() && said.contains(reason), "{said}");
    assert_eq!(world.effects("refused")?.len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_are_listed_and_shown_with_what_is_wrong_in_them() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    for (plugin, manifest) in [
        ("broken", "{"),
        (
            "greeter",
            r#"{"name": "greeter", "version": "1.2.0", "description": "Greets."}"#,
        ),
    ] {
        let plugin = deploy.path().join("plugins").join(plugin);
        std::fs::create_dir_all(&plugin)?;
        std::fs::write(plugin.join("plugin.yaml"), manifest)?;
    }
    for part in ["workflows", "agents", "models"] {
        std::fs::create_dir(deploy.path().join(part))?;
    }
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let listed = printed(&stack, &["plugins", "list"])?;
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(
        rows[0],
        ["PLUGIN", "NAME", "VERSION", "STATE", "TOOLS", "FINDINGS"]
    );
    assert_eq!(rows[1], ["broken", "left out", "0", "1"]);
    assert_eq!(rows[2], ["greeter", "greeter", "1.2.0", "loaded", "0", "0"]);
    let shown = printed(&stack, &["plugins", "show", "broken"])?;
    assert!(
        shown.starts_with("plugin        broken\nstate         left out\n"),
        "{shown}"
    );
    let finding = shown.lines().last().unwrap_or_default();
    assert!(finding.contains("plugin.yaml"), "{shown}");
    let shown = printed(&stack, &["plugins", "show", "greeter", "--json"])?;
    let plugin: Value = serde_json::from_str(&shown)?;
    assert_eq!(plugin["description"], "Greets.");
    let unknown = tavern(&stack, &["plugins", "show", "no_such_plugin"])?;
    assert!(
        text(&unknown.stderr).contains("`no_such_plugin`"),
        "{unknown:?}"
    );
    Ok(())
}
