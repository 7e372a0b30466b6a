//! Who may call which method: every method of the contract, for every role and every kind of credential.

use anyhow::{Context, ensure};
use contracts::access::Role;
use contracts::tavern::registry::v1::{CreateKeyRequest, CreateKeyResponse, RevokeKeysRequest};
use http::{HeaderMap, HeaderName, HeaderValue};
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};
use testkit::{Decision, Stack, decision_with, differences};

/// Sets the end of the keys of a principal to a time that has passed.
const EXPIRE: &str = "UPDATE principal SET account_json = \
    json_set(account_json, '$.keys[0].expires', json_extract(account_json, '$.keys[0].created')) \
    WHERE name = ?";

async fn create(stack: &Stack, role: Role, principal: &str) -> anyhow::Result<CreateKeyResponse> {
    let request = CreateKeyRequest {
        principal: principal.to_owned(),
        roles: vec![role.name().to_owned()],
        ..CreateKeyRequest::default()
    };
    let created = stack.identities().create_key(request).await;
    Ok(created?.into_inner())
}

/// Returns a key with another character in its secret, and the checksum that belongs to it no longer.
fn mistyped(key: &str) -> String {
    let place = key.len() / 2;
    let other = if &key[place..=place] == "0" { "1" } else { "0" };
    format!("{}{other}{}", &key[..place], &key[place + 1..])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_decides_about_every_caller_as_the_contract_states() -> anyhow::Result<()> {
    let mut stack = Stack::builder().with_keys().start().await?;
    let mut callers = vec![("no credential", None, None)];
    for role in Role::ALL {
        let key = create(&stack, role, role.name()).await?.secret_key;
        callers.push((role.name(), Some(key), Some(role)));
    }
    // The principal of the first key administers the installation, and another administrator its tenant.
    let other = create(&stack, Role::Admin, "other").await?.secret_key;
    callers.push(("another admin", Some(other), Some(Role::Admin)));
    let of_admin = callers[6].1.clone().context("the last role has a key")?;
    callers.push(("a mistyped key", Some(mistyped(&of_admin)), None));
    let revoked = create(&stack, Role::Admin, "revoked").await?;
    let request = RevokeKeysRequest {
        principal: "revoked".to_owned(),
        ..RevokeKeysRequest::default()
    };
    stack.identities().revoke_keys(request).await?;
    callers.push(("a revoked key", Some(revoked.secret_key), None));
    let expired = create(&stack, Role::Admin, "expired").await?.secret_key;
    callers.push(("an expired key", Some(expired), None));
    let unknown = Stack::builder().with_keys().start().await?;
    let unknown = create(&unknown, Role::Admin, "admin").await?.secret_key;
    callers.push(("a key of another installation", Some(unknown), None));
    callers.push(("no key at all", Some("x".repeat(40)), None));

    stack.terminate()?;
    let file = stack.directory().join("data/tool-registry.db");
    let mut database = SqliteConnectOptions::new().filename(file).connect().await?;
    let expire = sqlx::query(EXPIRE).bind("expired");
    ensure!(expire.execute(&mut database).await?.rows_affected() == 1);
    drop(database);
    stack.restart().await?;

    let mut wrong = Vec::new();
    for (caller, key, role) in callers {
        let transport = stack.transport_with(key.as_deref());
        let differences = differences(&transport, role, caller == "admin").await;
        let differences = differences.with_context(|| caller.to_owned())?;
        wrong.extend(differences.iter().map(|found| format!("{caller}: {found}")));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Calls reflection, in each of its versions, as the client that a proxy states. The versions decide alike.
async fn reflected(
    stack: &Stack,
    key: Option<&str>,
    stated: &[(&'static str, &'static str)],
) -> anyhow::Result<Decision> {
    let transport = stack.transport_with(key);
    let header = |(name, value): &(&'static str, &'static str)| {
        let (name, value) = (*name, *value);
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    let headers: HeaderMap = stated.iter().map(header).collect();
    let [first, second] = ["v1", "v1alpha"].map(async |version| {
        let method = format!("grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        decision_with(&transport, &method, &headers).await
    });
    let (first, second) = tokio::try_join!(first, second)?;
    ensure!(first == second, "{first:?} and {second:?}");
    Ok(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_beyond_loopback_needs_a_credential() -> anyhow::Result<()> {
    let mut stack = Stack::builder().with_keys().start().await?;
    let reads = create(&stack, Role::Viewer, "ada").await?.secret_key;
    let wrong = mistyped(&reads);
    assert_eq!(reflected(&stack, None, &[]).await?, Decision::Reached);
    // No peer but a listed proxy can state another client.
    let claimed = reflected(&stack, None, &[("x-forwarded-for", "192.0.2.1")]).await?;
    assert_eq!(claimed, Decision::Reached);

    stack.set_env(
        "TAVERN__SERVER__TLS__TERMINATED_BY_PROXY",
        "[\"127.0.0.1\"]",
    );
    stack.restart().await?;
    for stated in [
        &[("x-forwarded-for", "192.0.2.1")][..],
        &[("forwarded", "for=192.0.2.1")],
        &[("x-forwarded-for", "127.0.0.1")],
        &[("x-forwarded-for", "127.0.0.2")],
        &[("x-forwarded-for", "::1")],
        &[("x-forwarded-for", "::ffff:127.0.0.1")],
        &[
            ("forwarded", "for=127.0.0.1"),
            ("x-forwarded-for", "127.0.0.1"),
        ],
        &[],
    ] {
        for (key, expected) in [
            (None, Decision::Unauthenticated),
            (Some(&*wrong), Decision::Unauthenticated),
            (Some(&*reads), Decision::Reached),
        ] {
            let decided = reflected(&stack, key, stated).await?;
            ensure!(
                decided == expected,
                "{stated:?}: {decided:?}, not {expected:?}"
            );
        }
    }
    Ok(())
}
