//! Settings of issuers that are refused.

use doubles::TestIssuer;
use serde_json::{Value, json};
use settings::{Problems, Settings};
use tool_registry::RegistrySettings;

/// Returns the problems of an issuer with changes, as text.
fn problems(issuers: &Value) -> String {
    let settings: RegistrySettings = serde_json::from_value(json!({ "issuers": issuers })).unwrap();
    let mut problems = Problems::default();
    settings.check(&mut problems);
    format!("{problems:?}")
}

#[tokio::test]
async fn each_wrong_setting_is_named() {
    let issuer = TestIssuer::start().await.unwrap();
    let good = json!({
        "name": "company", "issuer": TestIssuer::ISS, "audiences": ["tavern"],
        "keys": issuer.keys().unwrap(), "ca_file": issuer.ca_file(),
        "rules": [{"claim": "groups", "value": "devs", "roles": ["viewer"]}],
    });
    assert_eq!(problems(&json!([good])), problems(&json!([])));
    for (field, value) in [
        ("name", json!("Company")),
        ("name", json!("")),
        ("name", json!("a:b")),
        ("issuer", json!("")),
        ("audiences", json!([])),
        ("audiences", json!([""])),
        ("keys", json!("")),
        ("keys", json!("http://login.company.example/keys")),
        ("keys", json!("http://127.0.0.1.example/keys")),
        (
            "keys",
            json!("https://ada:secret@login.company.example/keys"),
        ),
        ("keys", json!("ftp://login.company.example/keys")),
        ("keys", json!("https://")),
        ("ca_file", json!("/no/such/file")),
        ("ca_file", json!(issuer.ca_file().with_file_name("keys"))),
        ("rules", json!([])),
        (
            "rules.0.claim",
            json!([{"value": "a", "roles": ["viewer"]}]),
        ),
        (
            "rules.0.value",
            json!([{"claim": "a", "roles": ["viewer"]}]),
        ),
        ("rules.0.roles", json!([{"claim": "a", "value": "a"}])),
        (
            "rules.0.roles",
            json!([{"claim": "a", "value": "a", "roles": ["root"]}]),
        ),
        (
            "rules.0.tenant",
            json!([{"claim": "a", "value": "a", "roles": ["viewer"], "tenant": "A"}]),
        ),
    ] {
        let mut issuer = good.clone();
        let name = field.split('.').next().unwrap();
        issuer[name] = value.clone();
        let found = problems(&json!([issuer]));
        assert!(
            found.contains(&format!("is wrong at 0.{field}: it ")),
            "{field} {value}: {found}"
        );
        assert!(!found.contains("secret"), "{found}");
    }
    for keys in [
        "http://127.0.0.1:1/keys",
        "http://[::1]/keys",
        "http://localhost/keys",
        "keys.json",
    ] {
        let mut issuer = good.clone();
        issuer["keys"] = json!(keys);
        issuer["ca_file"] = json!("");
        assert_eq!(problems(&json!([issuer])), problems(&json!([])), "{keys}");
    }
    let twice = problems(&json!([good, good]));
    assert!(
        twice.contains("at 1.name: it is that") && twice.contains("at 1.issuer: it is that"),
        "{twice}"
    );
}
