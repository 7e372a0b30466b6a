//! The options of plugins (rules R111 and R112).

use contracts::tavern::registry::v1::{
    GetPluginOptionsRequest, GetPluginOptionsResponse, UpdatePluginOptionsRequest,
};

use super::*;

const OPTIONS: &str = "configOptions:
  - {key: extensions.dice.sides, type: integer, minimum: 2, maximum: 100, required: true}
  - {key: extensions.dice.names, type: string_list, default: [], maxItems: 2}
  - {key: extensions.dice.mood, type: enum, options: [kind, grim], default: kind}
";

fn with_options() -> Vec<u8> {
    let mut files = dice("open(__import__('os').environ['TAVERN_OPTIONS']).read()");
    files[0].1 = format!("{MANIFEST}{OPTIONS}");
    zip(files)
}

async fn update(
    fixture: &Fixture,
    values: Value,
    texts: &[(&str, &str)],
    etag: &str,
) -> Result<GetPluginOptionsResponse, Status> {
    let texts = texts
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
    let request = UpdatePluginOptionsRequest {
        name: "dice".into(),
        values_json: if values.is_null() {
            String::new()
        } else {
            values.to_string()
        },
        etag: etag.into(),
        texts: texts.collect(),
    };
    let updated = service(fixture)
        .update_plugin_options(request)
        .await?
        .into_inner();
    Ok(GetPluginOptionsResponse {
        options: updated.options,
        etag: updated.etag,
    })
}

#[tokio::test]
async fn the_tools_of_a_plugin_wait_for_its_options_and_their_scripts_read_them() {
    let mut fixture = empty().await;
    let installed = put(&fixture, with_options()).await;
    assert_eq!(installed.plugin.unwrap().missing_options, ["sides"]);
    let waiting = roll(&fixture).await;
    assert_eq!(code_of(&waiting), "plugin_not_configured");
    let message = waiting.error.unwrap().message;
    assert!(
        message.contains("tavern plugins options dice sides="),
        "{message}"
    );
    let request = GetPluginOptionsRequest {
        name: "dice".into(),
    };
    let before = service(&fixture)
        .get_plugin_options(request)
        .await
        .unwrap()
        .into_inner();
    assert!(before.options[0].is_missing && !before.options[1].is_set);
    let after = update(
        &fixture,
        json!({"extensions.dice.sides": 6}),
        &[],
        &before.etag,
    )
    .await;
    let after = after.unwrap();
    assert_ne!(after.etag, before.etag);
    assert_eq!(
        (
            after.options[0].value_json.as_str(),
            after.options[0].is_set
        ),
        ("6", true)
    );
    for _ in 0..2 {
        let expected = json!({"sides": 6, "names": [], "mood": "kind"});
        assert_eq!(rolled(&fixture).await, expected);
        fixture.crash_and_restart().await;
    }
    let texts = [("names", r#"["a", "b"]"#), ("mood", "grim")];
    update(&fixture, Value::Null, &texts, "").await.unwrap();
    let expected = json!({"sides": 6, "names": ["a", "b"], "mood": "grim"});
    assert_eq!(rolled(&fixture).await, expected);
    update(&fixture, json!({"mood": null}), &[], "")
        .await
        .unwrap();
    assert_eq!(rolled(&fixture).await["mood"], "kind");
}

#[tokio::test]
async fn options_are_refused_with_all_violations_and_under_another_etag() {
    let fixture = empty().await;
    put(&fixture, with_options()).await;
    let wrong = json!({"sides": 1, "names": ["a", "b", "c"], "mood": "odd", "size": 2});
    let refused = update(&fixture, wrong, &[], "").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let fields: Vec<String> = grpc_kit::violations(&refused)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    for field in ["sides", "names", "mood", "size"] {
        assert!(
            fields.iter().any(|found| found.contains(field)),
            "{field}: {fields:?}"
        );
    }
    assert_eq!(code_of(&roll(&fixture).await), "plugin_not_configured");
    let stale = update(&fixture, json!({"sides": 6}), &[], "other")
        .await
        .unwrap_err();
    let reason = grpc_kit::reason(&stale).unwrap();
    assert_eq!(reason.as_str_name(), "ERROR_REASON_ETAG_MISMATCH");
}

/// Installs the plugin once more, and returns its missing options.
async fn install_again(fixture: &Fixture) -> Vec<String> {
    let planned = plan(fixture, with_options()).await;
    let request = InstallPluginRequest {
        plan_digest: planned.plan_digest,
        request_id: String::new(),
    };
    service(fixture).install_plugin(request).await.unwrap();
    the_dice(fixture).await.missing_options
}

#[tokio::test]
async fn options_outlive_a_removal_and_a_purge_removes_them() {
    let fixture = empty().await;
    put(&fixture, with_options()).await;
    update(&fixture, json!({"sides": 6}), &[], "")
        .await
        .unwrap();
    let remove = async |purge| {
        let request = UninstallPluginRequest {
            name: "dice".into(),
            purge,
            ..UninstallPluginRequest::default()
        };
        service(&fixture).uninstall_plugin(request).await.unwrap();
        install_again(&fixture).await
    };
    assert_eq!(remove(false).await, Vec::<String>::new());
    assert_eq!(remove(true).await, ["sides"]);
}

#[tokio::test]
async fn options_of_a_removed_plugin_are_kept_for_thirty_days() {
    for (days, missing) in [(29, vec![]), (30, vec!["sides".to_owned()])] {
        let mut fixture = empty().await;
        put(&fixture, with_options()).await;
        let set = update(&fixture, json!({"sides": 6}), &[], "").await;
        set.unwrap();
        let request = UninstallPluginRequest {
            name: "dice".into(),
            ..UninstallPluginRequest::default()
        };
        service(&fixture).uninstall_plugin(request).await.unwrap();
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        fixture.clock.advance(day * days);
        fixture.crash_and_restart().await;
        fixture.recover().await;
        // Values whose time is over are gone before a scan finds another plugin.
        let marker = fixture.plugins.join("marker");
        std::fs::create_dir(&marker).unwrap();
        std::fs::write(marker.join("plugin.yaml"), "name: marker").unwrap();
        while listed(&fixture)
            .await
            .iter()
            .all(|plugin| plugin.name != "marker")
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(install_again(&fixture).await, missing, "{days}");
    }
}
