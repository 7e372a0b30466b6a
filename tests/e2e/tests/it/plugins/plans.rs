//! Plans, as far as the other services have a part in them.

use contracts::tavern::registry::v1::UninstallPluginRequest;
use contracts::tavern::workflow::v1::PutWorkflowRequest;
use serde_json::{Value, json};
use testkit::Stack;

use super::{files, install, package, plan};

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_and_a_removal_name_the_documents_that_use_the_tools() -> anyhow::Result<()> {
    for builder in [Stack::builder(), Stack::builder().separate()] {
        let stack = builder.start().await?;
        let dice = package(files("dice", "", &[("roll", "print(4)")]))?;
        install(&stack, &dice).await?;
        let profile = json!({
            "id": "player",
            "name": "Player",
            "tool_ids_inventory": ["dice:roll"],
            "custom_metadata": {"tavern": {"model": "scripted"}},
        });
        put_profile(&stack, &profile).await?;
        let definition = json!({
            "name": "Rolls",
            "nodes": [{
                "id": "roll",
                "type": "core:ExecuteTool",
                "inputValues": {"tool_id": "dice:roll"},
            }],
        });
        let request = PutWorkflowRequest {
            workflow_id: "rolls".into(),
            definition_json: definition.to_string(),
            ..PutWorkflowRequest::default()
        };
        stack.workflow().put_workflow(request).await?;
        let other = package(files("dice", "", &[("roll", "print(5)")]))?;
        let planned = plan(&stack, &other).await?;
        let json: Value = serde_json::from_str(&planned.plan_json)?;
        assert_eq!(json["dependents"]["profiles"], json!(["player"]));
        assert_eq!(json["dependents"]["workflows"], json!(["rolls"]));
        for name in ["player", "rolls"] {
            assert!(planned.text.contains(name), "{}", planned.text);
        }
        let request = UninstallPluginRequest {
            name: "dice".into(),
            validate_only: true,
            ..UninstallPluginRequest::default()
        };
        let removal = stack
            .plugins()
            .uninstall_plugin(request)
            .await?
            .into_inner();
        assert_eq!(
            (removal.profile_ids, removal.workflow_ids),
            (vec!["player".to_owned()], vec!["rolls".to_owned()])
        );
    }
    Ok(())
}

async fn put_profile(stack: &Stack, profile: &Value) -> anyhow::Result<()> {
    use contracts::tavern::agent::v1::PutProfileRequest;
    use contracts::tavern::agent::v1::profile_service_client::ProfileServiceClient;
    let transport = stack.transport_with(stack.key());
    let request = PutProfileRequest {
        profile_json: profile.to_string(),
        ..PutProfileRequest::default()
    };
    ProfileServiceClient::new(transport.outermost())
        .put_profile(request)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_refuses_what_the_sandbox_cannot_carry_out() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let mut all = files(
        "wishes",
        "dependencies: {runtime: python, lock: none.lock}\n\
         permissions: {packages: [nosuch], resources: {wall_seconds: 1800}}\n",
        &[
            ("set", "print(1)"),
            ("language", "puts 1"),
            ("unasked", "print(2)"),
        ],
    );
    for file in &mut all {
        let text = String::from_utf8(std::mem::take(&mut file.content))?;
        let text = match &*file.path {
            "tools/set.tool.json" => {
                text.replace("\"type\":", "\"packages\": \"nosuch\", \"type\":")
            }
            "tools/unasked.tool.json" => {
                text.replace("\"type\":", "\"packages\": \"other\", \"type\":")
            }
            "tools/language.tool.json" => text.replace("python3", "ruby"),
            _ => text,
        };
        file.content = text.into_bytes();
    }
    let refused = plan(&stack, &package(all)?).await.err();
    let refused = refused.map(|error| error.to_string()).unwrap_or_default();
    for part in [
        "its lock 'none.lock' is not a file of the plugin",
        "asks for 1800, and the sandbox allows at most 600",
        "its interpreter 'ruby' cannot be used here",
        "its package set 'nosuch' is not built",
        "add permissions.packages with it",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    Ok(())
}
