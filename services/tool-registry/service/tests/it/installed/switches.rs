//! Plugins and tools that are switched off (rule R115).

use contracts::tavern::registry::v1::{
    AvailabilityLayer, ExplainAvailabilityRequest, SetPluginStateRequest, SetToolStateRequest,
    call_service_client::CallServiceClient,
};

use super::*;
use crate::fixture::finish;

async fn set_plugin(fixture: &Fixture, enabled: bool) {
    let request = SetPluginStateRequest {
        name: "dice".into(),
        enabled,
    };
    service(fixture).set_plugin_state(request).await.unwrap();
}

async fn set_tool(fixture: &Fixture, tool_id: &str, enabled: bool) -> Result<(), Status> {
    let request = SetToolStateRequest {
        tool_id: tool_id.into(),
        enabled,
    };
    service(fixture).set_tool_state(request).await.map(drop)
}

/// Checks that the tool cannot be called, and that this is explained.
async fn check_off(fixture: &Fixture, remedy: &str) {
    assert_eq!(code_of(&roll(fixture).await), "tool_not_available");
    let request = ExplainAvailabilityRequest {
        tool_ids: vec!["dice:roll".into()],
        ..ExplainAvailabilityRequest::default()
    };
    let explained = fixture
        .catalogue
        .clone()
        .explain_availability(request)
        .await;
    let explained = explained.unwrap().into_inner().tools.remove(0);
    let blocking = explained.layers.iter().find(|layer| !layer.passes).unwrap();
    assert_eq!(blocking.layer(), AvailabilityLayer::Active);
    assert!(explained.remedy.contains(remedy), "{}", explained.remedy);
}

#[tokio::test]
async fn a_plugin_that_is_switched_off_has_no_tools_until_it_is_switched_on() {
    let mut fixture = empty().await;
    put(&fixture, zip(dice("4"))).await;
    set_plugin(&fixture, false).await;
    for _ in 0..2 {
        check_off(&fixture, "tavern plugins enable dice").await;
        assert!(the_dice(&fixture).await.disabled);
        fixture.crash_and_restart().await;
    }
    set_plugin(&fixture, true).await;
    assert_eq!(rolled(&fixture).await, 4);
    let unknown = SetPluginStateRequest {
        name: "cards".into(),
        enabled: false,
    };
    let unknown = service(&fixture)
        .set_plugin_state(unknown)
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn the_choices_of_a_tenant_leave_the_others_as_they_are() {
    let fixture = empty().await;
    put(&fixture, zip(dice("4"))).await;
    let acme = fixture.acting_for("acme/bob", &[]);
    let mut plugins = PluginServiceClient::new(acme.clone());
    let request = SetPluginStateRequest {
        name: "dice".into(),
        enabled: false,
    };
    plugins.set_plugin_state(request).await.unwrap();
    let request = crate::fixture::request("dice:roll", json!({}));
    let off = finish(CallServiceClient::new(acme), request).await.unwrap();
    assert_eq!(code_of(&off.1), "tool_not_available");
    assert_eq!(rolled(&fixture).await, 4);
    assert!(!the_dice(&fixture).await.disabled);
}

#[tokio::test]
async fn one_tool_is_switched_off_and_the_others_are_not() {
    let mut fixture = empty().await;
    put(&fixture, zip(dice("4"))).await;
    set_tool(&fixture, "dice__roll", false).await.unwrap();
    for _ in 0..2 {
        check_off(&fixture, "--tool dice:roll").await;
        assert_eq!(the_dice(&fixture).await.disabled_tool_ids, ["dice:roll"]);
        fixture.crash_and_restart().await;
    }
    set_tool(&fixture, "system:get_current_time", false)
        .await
        .unwrap();
    let time = fixture.call("system:get_current_time", json!({})).await;
    assert_eq!(code_of(&time), "tool_not_available");
    for tool in ["dice:roll", "system:get_current_time"] {
        set_tool(&fixture, tool, true).await.unwrap();
    }
    assert_eq!(rolled(&fixture).await, 4);
    let unknown = set_tool(&fixture, "no_such_tool", false).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}
