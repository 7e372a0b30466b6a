//! The worked knowledge base over SQLite, a Python program with the generated stubs.

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::{
    DeleteKnowledgeBaseRequest, DeleteKnowledgeEntryRequest, ListKnowledgeBasesRequest,
    ListKnowledgeEntriesRequest, PutKnowledgeBaseRequest, QueryKnowledgeRequest,
    WriteKnowledgeEntryRequest, knowledge_service_client::KnowledgeServiceClient,
};
use contracts::tavern::common::v1::{CallStatus, ErrorReason, RunState, run_event::Kind};
use contracts::tavern::registry::v1::{
    GetBackendRequest, RollbackPluginRequest, SetPluginStateRequest, UninstallPluginRequest,
};
use grpc_kit::Outbound;
use serde_json::{Value, json};
use testkit::{PythonServer, Stack, eventually, invoke, python_stubs};
use tonic::{Code, Status};

use super::plugin;
use crate::{
    plugins::{call, code_of, file, install, package, planned, register},
    text::user_message,
};

/// Starts the worked backend with its database in a directory.
async fn start(directory: &Path, listen: &str) -> anyhow::Result<PythonServer> {
    let stubs = directory.join("stubs");
    if !stubs.exists() {
        std::fs::create_dir(&stubs)?;
        python_stubs(&stubs)?;
    }
    let server = testkit::python_program("../../deploy/backends/sqlite-knowledge/server.py");
    let database = directory.join("knowledge.db").display().to_string();
    let arguments = [&server, "--database", &database, "--listen", listen];
    let environment = [("PYTHONPATH".to_owned(), stubs.display().to_string())];
    PythonServer::run("server.py", &arguments, &environment, directory).await
}

/// Returns the package of the worked plugin.
fn worked() -> anyhow::Result<plugin_package::PluginFiles> {
    let manifest =
        include_str!("../../../../../../deploy/backends/sqlite-knowledge/plugin/plugin.yaml");
    package(vec![file("plugin.yaml", manifest)])
}

async fn switch_off(stack: &Stack) -> anyhow::Result<()> {
    let off = SetPluginStateRequest {
        name: "sqlite-knowledge".to_owned(),
        enabled: false,
    };
    stack.plugins().set_plugin_state(off).await?;
    Ok(())
}

fn knowledge(stack: &Stack) -> KnowledgeServiceClient<Outbound> {
    KnowledgeServiceClient::new(stack.transport_with(stack.key()).outermost())
}

/// Stores a knowledge base of two entries.
async fn put(stack: &Stack, etag: &str) -> Result<String, Status> {
    let document = json!({"kb_id": "herbs", "kb_displayName": "Herbs", "entries": [
        {"id": "sage", "content": {"value": "Sage eases a cough."}, "tags": ["cough"]},
        {"id": "moss", "content": {"value": "月光苔藓在夜里发光。"}},
    ]});
    let request = PutKnowledgeBaseRequest {
        knowledge_json: document.to_string(),
        etag: etag.to_owned(),
        validate_only: false,
    };
    let put = knowledge(stack).put_knowledge_base(request).await?;
    Ok(put.into_inner().knowledge_base.unwrap_or_default().etag)
}

async fn find(stack: &Stack, words: &str) -> Result<Vec<String>, Status> {
    let request = QueryKnowledgeRequest {
        query: words.to_owned(),
        kb: "herbs".to_owned(),
        ..QueryKnowledgeRequest::default()
    };
    let found = knowledge(stack).query_knowledge(request).await?;
    let found = found.into_inner().entries.into_iter();
    Ok(found
        .map(|found| found.entry.unwrap_or_default().caiu_id)
        .collect())
}

async fn write(
    stack: &Stack,
    (caiu_id, text): (&str, &str),
    request_id: &str,
) -> Result<(String, u64, bool), Status> {
    let request = WriteKnowledgeEntryRequest {
        kb: "herbs".to_owned(),
        caiu_id: caiu_id.to_owned(),
        text: text.to_owned(),
        request_id: request_id.to_owned(),
        ..WriteKnowledgeEntryRequest::default()
    };
    let written = knowledge(stack).write_knowledge_entry(request).await?;
    let written = written.into_inner();
    Ok((written.caiu_id, written.version, written.replayed))
}

async fn entries(stack: &Stack) -> Result<Vec<String>, Status> {
    let mut client = knowledge(stack);
    let mut request = ListKnowledgeEntriesRequest {
        kb_id: "herbs".to_owned(),
        page_size: 2,
        ..ListKnowledgeEntriesRequest::default()
    };
    let mut all = Vec::new();
    loop {
        let page = client.list_knowledge_entries(request.clone()).await?;
        let page = page.into_inner();
        all.extend(page.entries.into_iter().map(|entry| entry.caiu_id));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(all);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_python_knowledge_base_serves_every_method_of_clients() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let stack = Stack::all_in_one().await?;
    let before = put(&stack, "").await?;
    let server = start(directory.path(), "127.0.0.1:0").await?;
    register(&stack, "sqlite-knowledge", server.uri()).await?;
    install(&stack, &worked()?).await?;
    // Nothing is migrated.
    eventually("the override to be in force", || async {
        let found = find(&stack, "cough").await;
        found.is_err().then_some(())
    })
    .await?;
    let etag = put(&stack, "").await?;
    ensure!(etag == before, "the etag is that of the document");
    let other = put(&stack, "other").await.err().context("another etag")?;
    ensure!(grpc_kit::reason(&other) == Some(ErrorReason::EtagMismatch));
    ensure!(find(&stack, "coughs").await? == ["sage"]);
    ensure!(find(&stack, "苔藓").await? == ["moss"]);
    ensure!(find(&stack, "\"sage\" OR (").await? == ["sage"]);
    let (id, version, replayed) = write(&stack, ("", "Thyme is for cooking."), "r1").await?;
    ensure!(version == 1 && !replayed);
    ensure!(write(&stack, ("", "Thyme is for cooking."), "r1").await? == (id.clone(), 1, true));
    let reused = write(&stack, ("", "Rosemary."), "r1").await.err();
    let reused = reused.context("the request id was used")?;
    ensure!(grpc_kit::reason(&reused) == Some(ErrorReason::RequestIdReused));
    ensure!(write(&stack, (&id, "Thyme heals."), "r2").await?.1 == 2);
    let mut expected = vec![id.clone(), "moss".to_owned(), "sage".to_owned()];
    expected.sort();
    ensure!(entries(&stack).await? == expected);
    let delete = DeleteKnowledgeEntryRequest {
        kb_id: "herbs".to_owned(),
        caiu_id: id,
    };
    let mut client = knowledge(&stack);
    client.delete_knowledge_entry(delete.clone()).await?;
    let gone = client.delete_knowledge_entry(delete).await.err();
    let gone = gone.context("the entry is gone")?;
    ensure!(grpc_kit::reason(&gone) == Some(ErrorReason::KnowledgeBaseNotFound));
    let listed = client.list_knowledge_bases(ListKnowledgeBasesRequest::default());
    let listed = listed.await?.into_inner().knowledge_bases;
    ensure!(
        listed.len() == 1 && listed[0].entry_count == 2,
        "{listed:?}"
    );
    // A tenant that switches the plugin off has the platform's own again, with its own entries.
    switch_off(&stack).await?;
    let own = client.list_knowledge_bases(ListKnowledgeBasesRequest::default());
    ensure!(own.await?.into_inner().knowledge_bases.len() > 1);
    ensure!(entries(&stack).await? == ["moss", "sage"]);
    stack
        .plugins()
        .uninstall_plugin(UninstallPluginRequest {
            name: "sqlite-knowledge".to_owned(),
            ..UninstallPluginRequest::default()
        })
        .await?;
    let deleted = client.delete_knowledge_base(DeleteKnowledgeBaseRequest {
        kb_id: "herbs".to_owned(),
        etag,
    });
    deleted.await?;
    Ok(())
}

/// Writes an agent that looks a word up, writes a note, and may not write elsewhere.
fn prepare(deploy: &Path) -> anyhow::Result<()> {
    for directory in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(deploy.join(directory))?;
    }
    let block = |tool: &str, fields: &[(&str, &str)]| {
        let fields = fields.iter();
        let fields: String = fields
            .map(|(name, value)| format!("<{name}>{value}</{name}>"))
            .collect();
        format!("<ACTION><{tool}>{fields}</{tool}></ACTION>")
    };
    let query = block("kb:Query", &[("query", "cough"), ("kb", "remedies")]);
    let note = [("kb", "remedies"), ("text", "Ginger warms a cough.")];
    let write = block("kb:WriteEntry", &note);
    let foreign = [
        ("kb", "remedies"),
        ("caiu_id", "sage"),
        ("text", "Sage is useless."),
    ];
    let foreign = block("kb:WriteEntry", &foreign);
    let turns = json!([
        {"answer": {"text": query}},
        {"expect": {"last_contains": ["Sage eases a cough."]}, "answer": {"text": write}},
        {"expect": {"last_contains": ["caiu_"]}, "answer": {"text": foreign}},
        {"expect": {"last_contains": ["was not written by this agent"]}, "answer": {"text": "Done."}},
    ]);
    let profile = json!({
        "id": "herbalist",
        "name": "herbalist",
        "tool_ids_inventory": ["kb:Query", "kb:WriteEntry"],
        "knowledge_base_references": [
            {"source_id": "herbs", "alias": "remedies", "access_permissions": ["read", "write_caiu"]},
        ],
        "custom_metadata": {"tavern": {"model": "herbalist"}},
    });
    std::fs::write(deploy.join("agents/herbalist.json"), profile.to_string())?;
    let script = json!({ "turns": turns });
    std::fs::write(deploy.join("models/herbalist.json"), script.to_string())?;
    let models = "[models.herbalist]\nprovider = \"scripted\"\nscript = \"herbalist.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_agents_read_and_write_the_backend_with_the_rights_of_their_profile()
-> anyhow::Result<()> {
    let (deploy, directory) = (tempfile::tempdir()?, tempfile::tempdir()?);
    prepare(deploy.path())?;
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let server = start(directory.path(), "127.0.0.1:0").await?;
    register(&stack, "sqlite-knowledge", server.uri()).await?;
    install(&stack, &worked()?).await?;
    put(&stack, "").await?;
    let ended = invoke(&stack.gateway(), user_message("herbalist", "I cough.")).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    let results = ended.events.iter().filter_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    let results: Vec<_> = results.collect();
    let found: Value = serde_json::from_str(&results[0].output_json)?;
    ensure!(
        found[0]["kb"] == "remedies" && found[0]["caiu_id"] == "sage",
        "{found}"
    );
    ensure!(results[1].status() == CallStatus::Succeeded);
    let denied = results[2].error.as_ref().context("the third is refused")?;
    ensure!(denied.code == "kb_denied", "{denied:?}");
    ensure!(find(&stack, "ginger").await?.len() == 1);
    drop(server);
    let place = ("QueryKnowledgeBaseTool", ended.run.conversation_id.as_str());
    let failed = call(&stack, place, json!({"query": "cough"})).await?;
    ensure!(code_of(&failed) == "override_failed", "{failed:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r208_while_the_backend_is_gone_calls_fail_and_nothing_reaches_the_own_store()
-> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let stack = Stack::all_in_one().await?;
    let server = start(directory.path(), "127.0.0.1:0").await?;
    let listen = server.uri().trim_start_matches("http://").to_owned();
    register(&stack, "sqlite-knowledge", server.uri()).await?;
    install(&stack, &worked()?).await?;
    put(&stack, "").await?;
    drop(server);
    let failed = write(&stack, ("", "Lost."), "r1").await.err();
    let failed = failed.context("the backend is gone")?;
    ensure!(failed.code() == Code::Unavailable, "{failed:?}");
    ensure!(grpc_kit::reason(&failed) == Some(ErrorReason::OverrideFailed));
    let named = grpc_kit::metadata(&failed);
    ensure!(named["plugin"] == "sqlite-knowledge" && named["service"] == "knowledge-base");
    ensure!(find(&stack, "cough").await.is_err() && put(&stack, "").await.is_err());
    let _server = start(directory.path(), &listen).await?;
    eventually("the backend to be back", || async {
        write(&stack, ("", "Found."), "r1").await.ok()
    })
    .await?;
    ensure!(find(&stack, "found").await?.len() == 1);
    ensure!(find(&stack, "lost").await?.is_empty());
    switch_off(&stack).await?;
    let own = entries(&stack)
        .await
        .err()
        .context("the own store has none")?;
    ensure!(grpc_kit::reason(&own) == Some(ErrorReason::KnowledgeBaseNotFound));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn r207_a_plan_names_the_methods_that_a_backend_lacks_and_the_other_owner()
-> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let stack = Stack::all_in_one().await?;
    let unregistered = refusals(&stack, &worked()?).await?;
    ensure!(unregistered.contains("not registered"), "{unregistered}");
    let server = start(directory.path(), "127.0.0.1:0").await?;
    register(&stack, "sqlite-knowledge", server.uri()).await?;
    let get = GetBackendRequest {
        name: "sqlite-knowledge".to_owned(),
    };
    let backend = stack
        .registry()
        .get_backend(get)
        .await?
        .into_inner()
        .backend;
    let methods = backend.unwrap_or_default().methods;
    let served = "tavern.plugin.v1.KnowledgeBaseService/";
    ensure!(
        methods.len() == 8 && methods.iter().all(|method| method.starts_with(served)),
        "{methods:?}"
    );
    // The server has a knowledge base, and brings no questions to people.
    register(&stack, "asks", server.uri()).await?;
    let lacks = refusals(&stack, &plugin("asks", "interaction")?).await?;
    ensure!(lacks.contains("lacks Ask, Withdraw of"), "{lacks}");
    install(&stack, &worked()?).await?;
    register(&stack, "second", server.uri()).await?;
    let taken = refusals(&stack, &plugin("second", "knowledge-base")?).await?;
    ensure!(
        taken.contains("is taken by plugin:sqlite-knowledge"),
        "{taken}"
    );
    // A version that overrides nothing lets another plugin have the service, and cannot take it back.
    let without = "name: sqlite-knowledge\nversion: 1.1.0\n";
    install(&stack, &package(vec![file("plugin.yaml", without)])?).await?;
    install(&stack, &plugin("second", "knowledge-base")?).await?;
    let back = RollbackPluginRequest {
        name: "sqlite-knowledge".to_owned(),
        ..RollbackPluginRequest::default()
    };
    let refused = stack.plugins().rollback_plugin(back).await.err();
    let refused = refused.context("the service has another owner")?;
    ensure!(
        refused.message().contains("the plugin second has it"),
        "{refused:?}"
    );
    Ok(())
}

/// Plans a package, and returns the reasons for which it cannot be installed.
async fn refusals(stack: &Stack, files: &plugin_package::PluginFiles) -> anyhow::Result<String> {
    let plan = planned(stack, files).await?;
    ensure!(plan.plan_digest.is_empty(), "{}", plan.text);
    let found = plan.violations.into_iter().map(|found| found.message);
    Ok(found.collect::<Vec<_>>().join("\n"))
}
