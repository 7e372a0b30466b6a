//! The explanation of the rights of a principal (rule R503).

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        AvailabilityLayer, AvailabilityVerdict, ExplainAvailabilityRequest, ToolAvailability,
        tool_registry_service_client::ToolRegistryServiceClient,
    },
};
use tonic::Status;

use super::{Chosen, account, denied, identities, make_keys, named, put, texts};
use crate::fixture::{Fixture, script_tool};

/// Explains the tool `give` to a caller, for a principal that it names.
async fn explain(fixture: &Fixture, caller: &str, named: &str) -> Result<ToolAvailability, Status> {
    let request = ExplainAvailabilityRequest {
        tool_ids: texts(&["give"]),
        principal: named.into(),
        ..ExplainAvailabilityRequest::default()
    };
    let mut catalogue = ToolRegistryServiceClient::new(fixture.acting_for(caller, &[]));
    let explained = catalogue.explain_availability(request).await?;
    Ok(explained.into_inner().tools.remove(0))
}

#[tokio::test]
async fn r503_the_layer_of_the_caller_says_what_bars_the_tool_and_the_remedy() {
    let fixture = Fixture::with_scripts(&[script_tool("give")]).await;
    let open = explain(&fixture, "local", "").await.unwrap();
    assert_eq!(open.verdict(), AvailabilityVerdict::Available);
    assert!(
        open.layers[5].document.contains("no key exists"),
        "{open:?}"
    );
    make_keys(&fixture).await;
    put(&fixture, denied("bob", &["invoker"], &["g*"])).await;
    let mut root = account("root", &["admin"]);
    root.tools.allowed = texts(&["give", "kb:*"]);
    put(&fixture, root).await;
    for (caller, document) in [
        ("ada", "principal ada, the role invoker"),
        (
            "root",
            "principal root, the role admin, /allowed_tools: give",
        ),
        (
            "local",
            "principal root, the role admin, /allowed_tools: give",
        ),
    ] {
        let explained = explain(&fixture, caller, "").await.unwrap();
        assert_eq!(
            explained.verdict(),
            AvailabilityVerdict::Available,
            "{caller}"
        );
        let layer = &explained.layers[5];
        assert_eq!(layer.layer(), AvailabilityLayer::Caller);
        assert_eq!(layer.document, document);
    }
    let mut root = account("root", &["admin"]);
    root.tools.allowed = texts(&["kb:*"]);
    put(&fixture, root).await;
    for (name, document, remedy) in [
        (
            "vic",
            "principal vic, the role viewer: without the permission invoke",
            "Give vic a role with the permission invoke.",
        ),
        (
            "bob",
            "principal bob, /denied_tools: g*",
            "Remove g* from denied_tools of the principal bob, so that it may call give.",
        ),
        (
            "root",
            "principal root, /allowed_tools",
            "Add give to allowed_tools of the principal root.",
        ),
    ] {
        for (caller, named) in [(name, ""), (name, name), ("root", name)] {
            let explained = explain(&fixture, caller, named).await.unwrap();
            assert_eq!(explained.verdict(), AvailabilityVerdict::ToolNotAvailable);
            assert_eq!(explained.first_blocking(), AvailabilityLayer::Caller);
            assert_eq!(explained.layers[5].document, document, "{caller}");
            assert_eq!(explained.remedy, remedy, "{caller}");
        }
    }
}

#[tokio::test]
async fn r503_only_an_administrator_sees_the_rights_of_another_principal() {
    let fixture = Fixture::with_scripts(&[script_tool("give")]).await;
    let missing = explain(&fixture, "local", "bob").await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&missing),
        Some(ErrorReason::PrincipalNotFound)
    );
    make_keys(&fixture).await;
    for (caller, named, reason) in [
        ("ada", "bob", ErrorReason::PermissionDenied),
        ("vic", "eve", ErrorReason::PermissionDenied),
        ("root", "eve", ErrorReason::PrincipalNotFound),
        ("root", "Not a name", ErrorReason::InvalidFields),
    ] {
        let refused = explain(&fixture, caller, named).await.unwrap_err();
        assert_eq!(grpc_kit::reason(&refused), Some(reason), "{caller} {named}");
    }
}

#[tokio::test]
async fn r503_a_principal_whose_keys_were_revoked_is_explained_as_such() {
    let fixture = Fixture::with_scripts(&[script_tool("give")]).await;
    make_keys(&fixture).await;
    let ada = named("ada");
    let revoked = identities(&fixture).revoke(Chosen::Of(&ada), false).await;
    revoked.unwrap();
    let explained = explain(&fixture, "root", "ada").await.unwrap();
    assert_eq!(explained.verdict(), AvailabilityVerdict::ToolNotAvailable);
    let remedy = &explained.remedy;
    assert!(remedy.contains("Create a key for ada"), "{remedy}");
}
