//! Documents that cannot work: the refused and the remarked ones. Files as editors write
//! them.

mod goldens;

use std::path::Path;

use contracts::tavern::agent::v1::{
    GenerateRequest, ListKnowledgeBasesRequest, ListProfilesRequest, ListScenesRequest,
    PutProfileRequest, PutSceneRequest, knowledge_service_client::KnowledgeServiceClient,
    profile_service_client::ProfileServiceClient, scene_service_client::SceneServiceClient,
};
use contracts::tavern::common::v1::{ChatMessage, ChatRole, LoadDiagnostic, Severity};
use contracts::tavern::registry::v1::{
    GetPluginRequest, GetToolRequest, ListPluginsRequest, PutToolRequest,
};
use contracts::tavern::workflow::v1::{
    ListWorkflowsRequest, PutWorkflowRequest, ValidateWorkflowRequest,
};
use grpc_kit::{ClientSettings, Transport};
use serde_json::{Value, json};
use testkit::Stack;
use tonic::Status;

fn transport(stack: &Stack) -> anyhow::Result<Transport> {
    Ok(grpc_kit::remote(&ClientSettings::to(stack.address()))?)
}

/// Returns the places of the findings about missing references.
fn missing(found: &[LoadDiagnostic]) -> Vec<&str> {
    let of_references = found
        .iter()
        .filter(|found| found.code == "missing_reference" && found.severity() == Severity::Warning);
    of_references.map(|found| found.path.as_str()).collect()
}

/// Returns the places that a refusal names.
fn refused(status: &Status) -> Vec<String> {
    let violations = grpc_kit::violations(status).into_iter();
    violations.map(|(field, _)| field).collect()
}

fn every_workflow() -> ListWorkflowsRequest {
    ListWorkflowsRequest {
        page_size: 500,
        with_references: true,
        ..ListWorkflowsRequest::default()
    }
}

/// A workflow with these inputs and outputs, and a node.
fn workflow(inputs: &Value, outputs: &Value, nodes: &Value) -> String {
    json!({"nodes": nodes, "edges": [], "interfaceInputs": inputs, "interfaceOutputs": outputs})
        .to_string()
}

fn text(is_required: bool) -> Value {
    json!({"dataFlowType": "STRING", "required": is_required})
}

async fn put_workflow(
    stack: &Stack,
    id: &str,
    definition: String,
) -> Result<Vec<LoadDiagnostic>, Status> {
    let request = PutWorkflowRequest {
        workflow_id: id.to_owned(),
        definition_json: definition,
        ..PutWorkflowRequest::default()
    };
    let put = stack.workflow().put_workflow(request).await?.into_inner();
    Ok(put.workflow.unwrap_or_default().diagnostics)
}

#[tokio::test(flavor = "multi_thread")]
async fn g108_a_profile_is_stored_with_a_remark_on_each_name_that_stands_for_nothing()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut profiles = ProfileServiceClient::new(transport(&stack)?.outermost());
    let mut put = async |profile: Value| {
        let request = PutProfileRequest {
            profile_json: profile.to_string(),
            ..PutProfileRequest::default()
        };
        let put = profiles.put_profile(request).await?.into_inner();
        Ok::<_, Status>(put.profile.unwrap_or_default().diagnostics)
    };
    let lost = json!({
        "id": "lost",
        "tool_ids_inventory": ["kb:Query", "no_tool", "agent:found", "workflow:later"],
        "skill_workflow_ids_inventory": ["workflows/later.json", "workflows/greet_everyone.json"],
        "core_deliberation_workflow_id": "workflows/later.json",
        "knowledge_base_references": [{"source_id": "kb_later"}],
        "custom_metadata": {"tavern": {
            "model": "later", "fallbacks": ["steward_script", "never"],
            "compaction": {"workflow": "later"},
            "reduction": [{"tools": ["*", "no_tool"], "workflow": "later"}],
        }},
    });
    let places = [
        "/tool_ids_inventory/1",
        "/tool_ids_inventory/2",
        "/tool_ids_inventory/3",
        "/skill_workflow_ids_inventory/0",
        "/core_deliberation_workflow_id",
        "/knowledge_base_references/0/source_id",
        "/custom_metadata/tavern/model",
        "/custom_metadata/tavern/fallbacks/1",
        "/custom_metadata/tavern/compaction/workflow",
        "/custom_metadata/tavern/reduction/0/workflow",
        "/custom_metadata/tavern/reduction/0/tools/1",
    ];
    let found = put(lost.clone()).await?;
    assert_eq!(missing(&found), places, "{found:?}");
    let nameless = put(json!({"id": "nameless"})).await?;
    assert_eq!(missing(&nameless), ["/custom_metadata/tavern/model"]);
    let found = put(json!({
        "id": "found",
        "tool_ids_inventory": ["agent:lost", "kb:Query"],
        "custom_metadata": {"tavern": {"model": "steward_script"}},
    }));
    assert_eq!(missing(&found.await?), [""; 0]);
    let listed = profiles
        .list_profiles(ListProfilesRequest::default())
        .await?;
    let listed = listed.into_inner().profiles;
    let again = listed.iter().find(|profile| profile.profile_id == "lost");
    let rest: Vec<&str> = places
        .into_iter()
        .filter(|place| !place.ends_with("inventory/2"))
        .collect();
    assert_eq!(missing(&again.unwrap().diagnostics), rest);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g201_a_profile_whose_workflow_cannot_deliberate_is_refused() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut profiles = ProfileServiceClient::new(transport(&stack)?.outermost());
    let mut put = async |id: &str| {
        let profile = json!({"id": "thinker", "core_deliberation_workflow_id": id});
        let request = PutProfileRequest {
            profile_json: profile.to_string(),
            ..PutProfileRequest::default()
        };
        profiles.put_profile(request).await
    };
    let nothing = json!({});
    let answer = json!({"full_text": text(false)});
    let with_default =
        json!({"dataFlowType": "STRING", "required": true, "config": {"default": "a"}});
    for (id, inputs, outputs, problem) in [
        ("unasked", json!({"mood": text(true)}), &answer, "`mood`"),
        (
            "mute",
            nothing.clone(),
            &nothing,
            "no output for the answer",
        ),
        (
            "fine",
            json!({"userQuery": text(true), "mood": text(false), "style": with_default}),
            &answer,
            "",
        ),
    ] {
        put_workflow(&stack, id, workflow(&inputs, outputs, &json!([]))).await?;
        match (put(id).await, problem) {
            (Ok(_), "") => {}
            (Err(status), problem) if !problem.is_empty() => {
                let place = "profile_json/core_deliberation_workflow_id";
                assert_eq!(refused(&status), [place], "{id}: {status:?}");
                assert!(status.message().contains(problem), "{id}: {status:?}");
            }
            (put, _) => panic!("{id}: {put:?}"),
        }
    }
    Ok(())
}

/// The nodes of a workflow with one node.
fn node(full_type: &str, config: &Value, presets: &Value) -> Value {
    json!([{"id": "a", "type": full_type, "configValues": config, "inputValues": presets}])
}

fn call(tool_id: &str) -> Value {
    node("core:ExecuteTool", &json!({}), &json!({"tool_id": tool_id}))
}

fn ask(config: &Value) -> Value {
    node("core:LLM", config, &json!({}))
}

fn run(language: &str) -> Value {
    let presets = json!({"language": language, "code": "1"});
    node("core:Script", &json!({}), &presets)
}

#[tokio::test(flavor = "multi_thread")]
async fn w29_a_workflow_with_an_unknown_tool_is_refused_and_what_may_come_is_remarked_on()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let tool = "/nodes/0/inputValues/tool_id";
    let model = "/nodes/0/configValues/profileId";
    let language = "/nodes/0/inputValues/language";
    let tools = "/nodes/0/configValues/toolIds";
    for (nodes, violated, remarked) in [
        (call("workflow:stored"), None, Some(tool)),
        (call("no_tool"), Some(tool), None),
        (call("node:core:NoSuchNode"), Some(tool), None),
        (call("workflow:later"), None, Some(tool)),
        (call("agent:later"), None, Some(tool)),
        (call("system:get_current_time"), None, None),
        (ask(&json!({"profileId": "never"})), None, Some(model)),
        (ask(&json!({"profileId": "steward_script"})), None, None),
        (
            ask(&json!({"profileId": "steward_script", "toolIds": ["no_tool"]})),
            Some(tools),
            None,
        ),
        (
            ask(&json!({"profileId": "steward_script", "toolIds": ["agent:later"]})),
            None,
            Some(tools),
        ),
        (
            node(
                "core:LlmApiRequest",
                &json!({}),
                &json!({"model": "never", "messages": []}),
            ),
            None,
            Some("/nodes/0/inputValues/model"),
        ),
        (run("cobol"), None, Some(language)),
        (run("python"), None, None),
    ] {
        let definition = workflow(&json!({}), &json!({}), &nodes);
        let request = ValidateWorkflowRequest {
            definition_json: definition.clone(),
            ..ValidateWorkflowRequest::default()
        };
        let checked = stack
            .workflow()
            .validate_workflow(request)
            .await?
            .into_inner();
        let violations: Vec<&str> = checked
            .violations
            .iter()
            .map(|it| it.pointer.as_str())
            .collect();
        assert_eq!(violations, Vec::from_iter(violated), "{nodes}");
        assert_eq!(
            missing(&checked.diagnostics),
            Vec::from_iter(remarked),
            "{nodes}"
        );
        match put_workflow(&stack, "stored", definition).await {
            Ok(found) => assert_eq!(missing(&found), Vec::from_iter(remarked), "{nodes}"),
            Err(status) => {
                let place = format!("definition_json{}", violated.unwrap_or_default());
                assert_eq!(refused(&status), [place], "{nodes}");
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_workflows_has_the_remarks_if_they_are_asked_for() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let later = workflow(&json!({}), &json!({}), &call("agent:later"));
    put_workflow(&stack, "stored", later).await?;
    let listed = stack.workflow().list_workflows(every_workflow()).await?;
    let listed = listed.into_inner().workflows;
    let stored = listed.iter().find(|it| it.workflow_id == "stored").unwrap();
    assert_eq!(
        missing(&stored.diagnostics),
        ["/nodes/0/inputValues/tool_id"]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_read_of_the_tools_of_a_node_is_remarked_on() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let scoped = json!({"profileId": "steward_script", "dynamicTools":
        {"toolIds": ["system:get_current_time"], "scope": "workflow", "describedBy": ""}});
    let definition = workflow(&json!({}), &json!({}), &ask(&scoped));
    let found = put_workflow(&stack, "scoped", definition).await?;
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|it| (it.path.as_str(), it.code.as_str()))
        .collect();
    let dynamic = "/nodes/0/configValues/dynamicTools";
    let expected = [
        (format!("{dynamic}/scope"), "not_supported"),
        (format!("{dynamic}/describedBy"), "unknown_key"),
    ];
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .map(|(path, code)| (path.as_str(), *code))
        .collect();
    assert_eq!(found, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g108_a_scene_is_stored_with_a_remark_on_each_name_that_stands_for_nothing()
-> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut scenes = SceneServiceClient::new(transport(&stack)?.outermost());
    let scene = json!({
        "id": "lost",
        "agent_instances": [
            {"instance_id": "a", "profile_id": "steward"},
            {"instance_id": "b", "profile_id": "not_there", "custom_runtime_config": {"tavern": {"model": "never"}}},
        ],
        "scene_lifecycle_workflows": {"on_scene_start": "workflows/later.json", "on_scene_end": "greet_everyone"},
    });
    let request = PutSceneRequest {
        scene_json: scene.to_string(),
        ..PutSceneRequest::default()
    };
    let put = scenes.put_scene(request).await?.into_inner();
    let expected = [
        "/agent_instances/1/profile_id",
        "/agent_instances/1/custom_runtime_config/tavern/model",
        "/scene_lifecycle_workflows/on_scene_start",
    ];
    assert_eq!(
        missing(&put.scene.unwrap_or_default().diagnostics),
        expected
    );
    let listed = scenes
        .list_scenes(ListScenesRequest::default())
        .await?
        .into_inner();
    let mut listed = listed.scenes.iter();
    let lost = listed.find(|scene| scene.scene_id == "lost").unwrap();
    assert_eq!(missing(&lost.diagnostics), expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_bound_to_nothing_is_remarked_on_and_one_pinned_to_nonsense_is_refused()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    for directory in ["agents", "models", "workflows"] {
        std::fs::create_dir(deploy.path().join(directory))?;
    }
    write(
        deploy.path(),
        "plugins/lost/plugin.yaml",
        "name: lost\nversion: 1.0.0\ndescription: Lost.\ntools:\n  entry: ./tools\n",
        |text| text.as_bytes().to_vec(),
    )?;
    let tool = |id: &str, implementation: Value| {
        json!({"id": id, "description": "A tool.", "implementation": implementation,
               "parameters": {"type": "object", "properties": {}}})
    };
    let of_workflow = json!({"type": "workflow", "workflowId": "later"});
    let of_node = |config: Value| json!({"type": "node", "nodeType": "core:MathOperation", "configValues": config});
    let pinned = of_node(json!({"operationMode": "cube"}));
    for (id, implementation) in [
        ("of_workflow", of_workflow.clone()),
        (
            "of_backend",
            json!({"type": "service", "service": "ledger", "method": "ledger.v1.Ledger/Append"}),
        ),
        (
            "of_node",
            json!({"type": "node", "nodeType": "core:NoSuchNode"}),
        ),
        ("pinned", pinned.clone()),
    ] {
        let path = format!("plugins/lost/tools/{id}.tool.json");
        let text = tool(id, implementation).to_string();
        write(deploy.path(), &path, &text, |text| text.as_bytes().to_vec())?;
    }
    let stack = Stack::builder().deploy(deploy.path()).start().await?;
    let directory = "lost".to_owned();
    let plugin = stack
        .registry()
        .get_plugin(GetPluginRequest {
            directory,
            ..GetPluginRequest::default()
        })
        .await?
        .into_inner();
    let found = plugin.plugin.unwrap_or_default().diagnostics;
    let mut found: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
    found.sort_unstable();
    let expected = [
        "tools/of_backend.tool.json/implementation/service",
        "tools/of_node.tool.json/implementation/nodeType",
        "tools/of_workflow.tool.json/implementation/workflowId",
        "tools/pinned.tool.json/implementation/configValues/operationMode",
    ];
    assert_eq!(found, expected);

    let put = async |definition: Value| {
        let request = PutToolRequest {
            definition_json: definition.to_string(),
            ..PutToolRequest::default()
        };
        let put = stack.registry().put_tool(request).await?.into_inner();
        Ok::<_, Status>(put.tool.unwrap_or_default().diagnostics)
    };
    assert_eq!(
        missing(&put(tool("mine", of_workflow)).await?),
        ["/implementation/workflowId"]
    );
    let unread = put(tool("mine", of_node(json!({"operationMod": "add"})))).await?;
    assert_eq!(unread[0].code, "unknown_key", "{unread:?}");
    let nonsense = put(tool("mine", pinned)).await.unwrap_err();
    assert_eq!(
        refused(&nonsense),
        ["definition_json/implementation/configValues/operationMode"]
    );
    Ok(())
}

/// Writes a file with the directories above it.
fn write(
    root: &Path,
    path: &str,
    text: &str,
    encode: impl Fn(&str) -> Vec<u8>,
) -> anyhow::Result<()> {
    let path = root.join(path);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(std::fs::write(path, encode(text))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_as_each_editor_writes_them() -> anyhow::Result<()> {
    let notepad = |text: &str| format!("\u{FEFF}{text}").into_bytes();
    let powershell = |text: &str| {
        let units = format!("\u{FEFF}{text}");
        units.encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    for encode in [notepad as fn(&str) -> Vec<u8>, powershell] {
        let deploy = tempfile::tempdir()?;
        let profile = json!({"id": "marked", "custom_metadata": {"tavern": {"model": "marked"}}});
        let scene = json!({"id": "marked", "agent_instances": [{"instance_id": "a", "profile_id": "marked"}]});
        let knowledge = json!({"kb_id": "marked", "entries": []});
        let tool = json!({"id": "marked", "description": "Greets.",
            "implementation": {"type": "script", "command": "python3 greet.py"},
            "parameters": {"type": "object", "properties": {}}});
        let models = "[models.marked]\nprovider = \"scripted\"\nscript = \"marked.json\"\n";
        let plugin =
            "name: marked\nversion: 1.0.0\ndescription: Greets.\ntools:\n  entry: ./tools\n";
        for (path, text) in [
            ("agents/marked.json", profile.to_string()),
            ("scenes/marked.json", scene.to_string()),
            ("knowledge/marked.json", knowledge.to_string()),
            (
                "workflows/marked.json",
                workflow(&json!({}), &json!({}), &json!([])),
            ),
            (
                "models/marked.json",
                json!({"turns": [{"answer": {"text": "Hello."}}]}).to_string(),
            ),
            ("plugins/marked/plugin.yaml", plugin.to_owned()),
            ("plugins/marked/tools/marked.tool.json", tool.to_string()),
            ("plugins/marked/greet.py", "print('{}')".to_owned()),
            ("agent-runtime.toml", models.to_owned()),
        ] {
            write(deploy.path(), path, &text, encode)?;
        }
        let stack = Stack::builder().deploy(deploy.path()).start().await?;
        let profiles = ProfileServiceClient::new(transport(&stack)?.outermost())
            .list_profiles(ListProfilesRequest::default())
            .await?
            .into_inner();
        assert_eq!(profiles.diagnostics, []);
        assert_eq!(profiles.profiles[0].diagnostics, []);
        let scenes = SceneServiceClient::new(transport(&stack)?.outermost())
            .list_scenes(ListScenesRequest::default())
            .await?
            .into_inner();
        assert_eq!((scenes.scenes.len(), scenes.diagnostics), (1, vec![]));
        let known = KnowledgeServiceClient::new(transport(&stack)?.outermost())
            .list_knowledge_bases(ListKnowledgeBasesRequest::default())
            .await?
            .into_inner();
        assert_eq!(
            (known.knowledge_bases.len(), known.diagnostics),
            (1, vec![])
        );
        for tool_id in ["marked", "workflow:marked"] {
            let request = GetToolRequest {
                tool_id: tool_id.to_owned(),
            };
            stack.registry().get_tool(request).await?;
        }
        let message = ChatMessage {
            role: ChatRole::User.into(),
            text: "Hello.".to_owned(),
            ..ChatMessage::default()
        };
        let request = GenerateRequest {
            model: "marked".to_owned(),
            messages: vec![message],
            ..GenerateRequest::default()
        };
        let mut answer = stack.models().generate(request).await?.into_inner();
        assert!(answer.message().await?.is_some());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_to_be_remarked_on_what_is_shipped() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut found: Vec<(String, Vec<LoadDiagnostic>)> = Vec::new();
    let profiles = ProfileServiceClient::new(transport(&stack)?.outermost())
        .list_profiles(ListProfilesRequest::default())
        .await?
        .into_inner();
    let of_profiles = profiles.profiles.into_iter();
    found.extend(of_profiles.map(|profile| (profile.profile_id, profile.diagnostics)));
    found.push(("agents".to_owned(), profiles.diagnostics));
    let scenes = SceneServiceClient::new(transport(&stack)?.outermost())
        .list_scenes(ListScenesRequest::default())
        .await?
        .into_inner();
    let of_scenes = scenes.scenes.into_iter();
    found.extend(of_scenes.map(|scene| (scene.scene_id, scene.diagnostics)));
    found.push(("scenes".to_owned(), scenes.diagnostics));
    let workflows = stack
        .workflow()
        .list_workflows(every_workflow())
        .await?
        .into_inner();
    let of_workflows = workflows.workflows.into_iter();
    found.extend(of_workflows.map(|workflow| (workflow.workflow_id, workflow.diagnostics)));
    found.push(("workflows".to_owned(), workflows.diagnostics));
    let plugins = stack.registry().list_plugins(ListPluginsRequest {}).await?;
    let plugins = plugins.into_inner().plugins.into_iter();
    found.extend(plugins.map(|plugin| (plugin.directory, plugin.diagnostics)));
    // Its libraries are built by the operator, for the machine.
    let with_libraries = found.iter_mut().filter(|(of, _)| of == "qr-code");
    for (_, diagnostics) in with_libraries {
        diagnostics.retain(|diagnostic| diagnostic.code != "libraries_to_build");
    }
    assert!(found.len() > 40, "{found:?}");
    found.retain(|(_, diagnostics)| !diagnostics.is_empty());
    assert_eq!(found, []);
    Ok(())
}
