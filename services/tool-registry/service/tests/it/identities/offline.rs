//! The first key at a stopped data directory, and registries in processes of their own.

use std::sync::Arc;

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        BootstrapRequest, RevokeKeysRequest, identity_service_client::IdentityServiceClient,
    },
};
use core_types::{SystemClock, SystemIds};
use data_home::DataHome;
use tool_registry::{Error, Peers, RegistrySettings, bootstrap_offline, replace_lost_keys};

use super::{key_for, reason};
use crate::{
    credentials::id_of,
    fixture::{Fixture, peers},
};

fn unproven(fixture: &Fixture) -> (RegistrySettings, Peers) {
    let settings = RegistrySettings {
        data_dir: fixture.directory.path().to_owned(),
        ..RegistrySettings::default()
    };
    let mut peers = peers(&fixture.sandbox, &fixture.workflows, &fixture.agents);
    peers.proven = false;
    (settings, peers)
}

#[tokio::test]
async fn a_registry_whose_callers_prove_nothing_makes_no_key_and_refuses_to_start_with_one() {
    let mut fixture = Fixture::new().await;
    fixture.registry.take().unwrap().shutdown().await;
    let (settings, peers) = unproven(&fixture);
    let build = async || {
        let (clock, ids) = (Arc::new(SystemClock), Arc::new(SystemIds));
        tool_registry::build_with(&settings, peers.clone(), clock, ids).await
    };
    let registry = build().await.unwrap();
    let transport = grpc_kit::local(&registry.services());
    let mut identities = IdentityServiceClient::new(transport.outermost());
    let status = identities
        .bootstrap(BootstrapRequest::default())
        .await
        .unwrap_err();
    assert_eq!(reason(&status), ErrorReason::BootstrapRefused);
    registry.shutdown().await;
    let home = DataHome::of_files(fixture.directory.path()).unwrap();
    bootstrap_offline(&home, BootstrapRequest::default())
        .await
        .unwrap();
    let refused = build().await.unwrap_err();
    assert!(matches!(refused, Error::KeysNeedProof { .. }), "{refused}");
}

#[tokio::test]
async fn the_first_key_is_made_at_the_stopped_data_directory_and_regained_there() {
    let mut fixture = Fixture::new().await;
    let home = DataHome::of_files(fixture.directory.path()).unwrap();
    let bootstrap = async || bootstrap_offline(&home, BootstrapRequest::default()).await;
    let in_use = bootstrap().await.unwrap_err();
    assert!(format!("{in_use:?}").contains("InUse"), "{in_use:?}");
    fixture.stop().await;
    let key = bootstrap().await.unwrap().secret_key;
    let refused = bootstrap().await.unwrap_err();
    assert!(
        refused.to_string().contains("has its first key"),
        "{refused}"
    );
    fixture.restart().await;
    assert_eq!(fixture.resolve(&key).await.unwrap().principal, "admin");
    let really = RevokeKeysRequest {
        key_id: id_of(&key).to_owned(),
        really: true,
        ..RevokeKeysRequest::default()
    };
    fixture.identities().revoke_keys(really).await.unwrap();
    fixture.stop().await;
    let regained = bootstrap().await.unwrap().secret_key;
    fixture.restart().await;
    assert!(!fixture.is_known(&key).await);
    assert_eq!(fixture.resolve(&regained).await.unwrap().roles, ["admin"]);
}

#[tokio::test]
async fn lost_keys_are_replaced_at_the_stopped_data_directory() {
    let mut fixture = Fixture::new().await;
    let lost = fixture.bootstrap().await;
    let other = fixture.create(key_for("ada", &["admin"])).await.unwrap();
    fixture.stop().await;
    let request = BootstrapRequest::default();
    let home = DataHome::of_files(fixture.directory.path()).unwrap();
    let found = replace_lost_keys(&home, request).await;
    let found = found.unwrap().secret_key;
    fixture.restart().await;
    assert!(!fixture.is_known(&lost).await);
    for (key, principal) in [(found, "admin"), (other.secret_key, "ada")] {
        assert_eq!(fixture.resolve(&key).await.unwrap().principal, principal);
    }
}
