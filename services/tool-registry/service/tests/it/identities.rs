//! Principals and keys: the first one, others, and their ends (rules S602, S605, S606, S612).

mod installation;
mod offline;

use std::time::Duration;

use contracts::tavern::{
    access::v1::Permission,
    common::v1::ErrorReason,
    registry::v1::{
        BootstrapRequest, CreateKeyRequest, CreateKeyResponse, GetCallerRequest,
        ImportApproversRequest, ImportedApprover, Key, ListPrincipalsRequest, PutPrincipalRequest,
        RevokeKeysRequest, RotateKeyRequest, RotateKeyResponse,
        identity_service_client::IdentityServiceClient,
        {self as registry},
    },
};
use core_types::Principal;
use grpc_kit::Outbound;
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use crate::{credentials::id_of, fixture::Fixture};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * HOUR.as_secs());

impl Fixture {
    fn identities(&self) -> IdentityServiceClient<Outbound> {
        self.identities_for(&Principal::LOCAL)
    }

    async fn create(&self, request: CreateKeyRequest) -> Result<CreateKeyResponse, Status> {
        Ok(self.identities().create_key(request).await?.into_inner())
    }

    async fn rotate(&self, key_id: &str) -> Result<RotateKeyResponse, Status> {
        let request = RotateKeyRequest {
            key_id: key_id.to_owned(),
            ..RotateKeyRequest::default()
        };
        Ok(self.identities().rotate_key(request).await?.into_inner())
    }

    async fn put(
        &self,
        principal: registry::Principal,
        really: bool,
    ) -> Result<registry::Principal, Status> {
        let request = PutPrincipalRequest {
            set_system_roles: false,
            principal: Some(principal),
            really,
        };
        let put = self.identities().put_principal(request).await?;
        Ok(put.into_inner().principal.unwrap())
    }

    /// Lists every principal, a page at a time.
    async fn principals(&self) -> Vec<registry::Principal> {
        let mut request = ListPrincipalsRequest {
            page_size: 1,
            ..ListPrincipalsRequest::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.identities().list_principals(request.clone()).await;
            let page = page.unwrap().into_inner();
            all.extend(page.principals);
            if page.next_page_token.is_empty() {
                return all;
            }
            request.page_token = page.next_page_token;
        }
    }

    async fn is_known(&self, credential: &str) -> bool {
        self.resolve(credential).await.is_ok()
    }
}

fn of_principal(name: &str, roles: &[&str]) -> registry::Principal {
    registry::Principal {
        name: name.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..registry::Principal::default()
    }
}

fn key_for(name: &str, roles: &[&str]) -> CreateKeyRequest {
    CreateKeyRequest {
        principal: name.to_owned(),
        roles: of_principal(name, roles).roles,
        ..CreateKeyRequest::default()
    }
}

fn reason(status: &Status) -> ErrorReason {
    grpc_kit::reason(status).unwrap()
}

fn days_of(key: &Key) -> i64 {
    let life = key.expire_time.unwrap().seconds - key.create_time.unwrap().seconds;
    life / (24 * 60 * 60)
}

#[tokio::test]
async fn s602_the_first_key_is_an_administrators_and_is_made_once() {
    let fixture = Fixture::new().await;
    let (mut one, mut other) = (fixture.identities(), fixture.identities());
    let requests = [
        Default::default(),
        BootstrapRequest {
            principal: "bob".into(),
            days: 7,
        },
    ];
    let [first, second] = requests;
    let (first, second) = tokio::join!(one.bootstrap(first), other.bootstrap(second));
    let results = [first, second];
    let refused = results.iter().find_map(|made| made.as_ref().err()).unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason(refused), ErrorReason::BootstrapRefused);
    let made: Vec<_> = results.into_iter().flatten().collect();
    let [made] = made.as_slice() else {
        panic!("{} first keys", made.len());
    };
    let made = made.get_ref();
    let (key, principal) = (made.key.as_ref().unwrap(), made.principal.as_ref().unwrap());
    assert_eq!(days_of(key), if principal.name == "bob" { 7 } else { 365 });
    assert_eq!(principal.roles, ["admin"]);
    assert_eq!(&fixture.principals().await, std::slice::from_ref(principal));
    let caller = fixture.resolve(&made.secret_key).await.unwrap();
    assert_eq!(caller.principal, principal.name);
}

#[tokio::test]
async fn before_the_first_key_no_other_is_made() {
    let fixture = Fixture::new().await;
    let status = fixture
        .create(key_for("ada", &["admin"]))
        .await
        .unwrap_err();
    assert_eq!(reason(&status), ErrorReason::LastAdministrator);
    assert!(
        status.message().contains("tavern keys bootstrap"),
        "{status}"
    );
    let status = fixture.import(&[("mara", "k")]).await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::LastAdministrator);
    fixture
        .put(of_principal("admin", &["viewer"]), false)
        .await
        .unwrap();
    assert!(fixture.resolve("").await.unwrap().open);
    fixture.bootstrap().await;
    let [admin] = fixture.principals().await.try_into().unwrap();
    assert_eq!(admin.roles, ["viewer", "admin"]);
}

#[tokio::test]
async fn s605_a_principal_has_the_permissions_of_its_roles_within_the_scopes_of_its_key() {
    let fixture = Fixture::new().await;
    fixture.bootstrap().await;
    let request = CreateKeyRequest {
        scopes: vec!["read".into(), "define".into()],
        ..key_for("ada", &["invoker", "approver"])
    };
    let made = fixture.create(request).await.unwrap();
    assert_eq!(days_of(made.key.as_ref().unwrap()), 90);
    let caller = fixture.resolve(&made.secret_key).await.unwrap();
    assert_eq!(caller.permissions, ["read"]);
    let identities = fixture.registry.as_ref().unwrap().identities();
    let ada = identities.rights(&Principal::new("ada").unwrap());
    let permissions: Vec<Permission> = ada.permissions().collect();
    let expected = [Permission::Read, Permission::Invoke, Permission::Approve];
    assert_eq!(
        permissions, expected,
        "its runs have the rights of the principal"
    );
    assert!(!ada.permits(Permission::Peer) && !ada.permits(Permission::Public));
    let carl = identities.rights(&Principal::new("carl").unwrap());
    assert_eq!(carl.permissions().count(), 0);
    assert!(carl.principal().is_none() && !carl.is_open());
    let heir = identities.rights(&Principal::LOCAL);
    assert_eq!(heir.principal().unwrap().as_str(), "admin");
    fixture
        .put(of_principal("ada", &["viewer"]), false)
        .await
        .unwrap();
    let ada = identities.rights(&Principal::new("ada").unwrap());
    assert!(!ada.permits(Permission::Invoke));
}

#[tokio::test]
async fn a_caller_reads_its_own_rights() {
    let fixture = Fixture::new().await;
    let caller = async |name: &str| {
        let principal = Principal::new(name).unwrap();
        let mut identities = fixture.identities_for(&principal);
        let caller = identities.get_caller(GetCallerRequest {}).await?;
        Ok::<_, Status>(caller.into_inner().caller.unwrap())
    };
    assert!(caller("local").await.unwrap().open);
    fixture.bootstrap().await;
    fixture.key_of("ada", "viewer", 1).await;
    let ada = registry::Principal {
        groups: vec!["keeper".into()],
        ..of_principal("ada", &["viewer"])
    };
    fixture.put(ada, false).await.unwrap();
    let ada = caller("ada").await.unwrap();
    assert!(!ada.open && ada.principal == "ada");
    assert_eq!(
        (ada.roles, ada.groups),
        (vec!["viewer".into()], vec!["keeper".into()])
    );
    let status = caller("carl").await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::Unauthenticated);
}

#[tokio::test]
async fn a_key_expires_and_stays_listed_for_thirty_days() {
    let fixture = Fixture::new().await;
    fixture.bootstrap().await;
    let key = fixture.key_of("ada", "viewer", 3).await;
    let (token, _) = fixture.login(&key).await.unwrap();
    assert!(fixture.is_known(&token).await);
    fixture.clock.advance(12 * HOUR);
    assert!(!fixture.is_known(&token).await && fixture.is_known(&key).await);
    fixture.clock.advance(DAY * 2);
    let (late, caller) = fixture.login(&key).await.unwrap();
    let key_end = fixture.resolve(&key).await.unwrap().expire_time;
    assert_eq!(
        caller.expire_time.unwrap().seconds,
        key_end.unwrap().seconds
    );
    fixture.clock.advance(12 * HOUR);
    assert!(!fixture.is_known(&key).await && !fixture.is_known(&late).await);
    let listed = async || fixture.principals().await[0].keys.len();
    fixture.clock.advance(DAY * 29);
    assert_eq!(listed().await, 1);
    fixture.clock.advance(DAY);
    assert_eq!(listed().await, 0);
}

#[tokio::test]
async fn s602_a_replaced_key_works_until_its_overlap_is_over_and_two_work_at_most() {
    let fixture = Fixture::new().await;
    fixture.bootstrap().await;
    let first = fixture.key_of("ada", "viewer", 30).await;
    let independent = fixture.key_of("ada", "viewer", 30).await;
    let second = fixture.rotate(id_of(&first)).await.unwrap();
    let replaced = second.replaced.unwrap();
    assert_eq!(replaced.key_id, id_of(&first));
    assert_eq!(days_of(&replaced), 1);
    assert_eq!(days_of(second.key.as_ref().unwrap()), 30);
    let second = second.secret_key;
    assert!(fixture.is_known(&first).await && fixture.is_known(&second).await);

    let third = fixture.rotate(id_of(&first)).await.unwrap().secret_key;
    assert!(fixture.is_known(&first).await && fixture.is_known(&third).await);
    assert!(!fixture.is_known(&second).await, "its secret was lost");
    let fourth = fixture.rotate(id_of(&third)).await.unwrap().secret_key;
    assert!(!fixture.is_known(&first).await);
    fixture.clock.advance(DAY);
    assert!(!fixture.is_known(&third).await && fixture.is_known(&fourth).await);
    assert!(fixture.is_known(&independent).await);

    let request = RotateKeyRequest {
        principal: "ada".to_owned(),
        overlap_hours: 1,
        ..RotateKeyRequest::default()
    };
    let newest = fixture
        .identities()
        .rotate_key(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(newest.replaced.unwrap().key_id, id_of(&fourth));
    fixture.clock.advance(HOUR);
    assert!(!fixture.is_known(&fourth).await && fixture.is_known(&newest.secret_key).await);
    let status = fixture.rotate(id_of(&first)).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&status)[0].0, "key_id");
    let status = fixture.rotate("0").await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::KeyNotFound);
}

#[tokio::test]
async fn a_revoked_key_and_all_keys_of_a_principal_are_at_their_end() {
    let fixture = Fixture::new().await;
    fixture.bootstrap().await;
    let one = fixture.key_of("ada", "viewer", 30).await;
    let two = fixture.key_of("ada", "viewer", 30).await;
    let (token, _) = fixture.login(&two).await.unwrap();
    fixture.revoke(&one).await.unwrap();
    assert!(!fixture.is_known(&one).await && fixture.is_known(&two).await);
    let revoked = |keys: &[Key]| keys.iter().map(|key| key.revoke_time).collect::<Vec<_>>();
    let earlier = revoked(&fixture.principals().await[0].keys);
    let all = RevokeKeysRequest {
        principal: "ada".to_owned(),
        ..RevokeKeysRequest::default()
    };
    fixture.clock.advance(HOUR);
    for _ in 0..2 {
        let keys = fixture.identities().revoke_keys(all.clone()).await.unwrap();
        let keys = revoked(&keys.into_inner().keys);
        assert_eq!(keys[1], earlier[1], "the earlier one was revoked before");
        assert!(keys.len() == 2 && keys[0].is_some());
    }
    assert!(!fixture.is_known(&two).await && !fixture.is_known(&token).await);
    let status = fixture.revoke("tvk_0_").await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::KeyNotFound);
    let carl = RevokeKeysRequest {
        principal: "carl".to_owned(),
        ..RevokeKeysRequest::default()
    };
    let status = fixture.identities().revoke_keys(carl).await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::PrincipalNotFound);
}

#[tokio::test]
async fn the_last_administrator_keeps_role_and_key_unless_really() {
    let fixture = Fixture::new().await;
    let admin = fixture.bootstrap().await;
    let narrow = CreateKeyRequest {
        scopes: vec!["read".into()],
        ..key_for("ops", &["admin"])
    };
    fixture.create(narrow).await.unwrap();
    let of_admin = RevokeKeysRequest {
        principal: "admin".to_owned(),
        ..RevokeKeysRequest::default()
    };
    let refused = [
        fixture.revoke(&admin).await,
        fixture
            .identities()
            .revoke_keys(of_admin.clone())
            .await
            .map(drop),
        fixture
            .put(of_principal("admin", &["viewer"]), false)
            .await
            .map(drop),
    ];
    for status in refused {
        let status = status.unwrap_err();
        assert_eq!(reason(&status), ErrorReason::LastAdministrator);
        assert_eq!(grpc_kit::metadata(&status)["principal"], "admin");
    }
    assert!(fixture.is_known(&admin).await);
    let other = fixture.key_of("boss", "admin", 1).await;
    // The other one administers the tenant, and not the installation yet.
    assert!(fixture.revoke(&admin).await.is_err());
    let request = PutPrincipalRequest {
        principal: Some(registry::Principal {
            system_roles: vec!["admin".to_owned()],
            ..of_principal("boss", &["admin"])
        }),
        set_system_roles: true,
        ..PutPrincipalRequest::default()
    };
    let put = fixture.identities().put_principal(request).await;
    put.unwrap();
    let demoted = fixture.put(of_principal("admin", &["viewer"]), false).await;
    demoted.unwrap();
    fixture.revoke(&admin).await.unwrap();
    assert!(fixture.revoke(&other).await.is_err());
    let really = RevokeKeysRequest {
        key_id: id_of(&other).to_owned(),
        really: true,
        ..RevokeKeysRequest::default()
    };
    fixture.identities().revoke_keys(really).await.unwrap();
    assert!(!fixture.is_known(&other).await);
    assert!(
        !fixture.is_known("").await,
        "without keys it is not open again"
    );
}

#[tokio::test]
async fn everything_that_is_wrong_is_named_with_near_names() {
    let fixture = Fixture::new().await;
    fixture.bootstrap().await;
    let violations = |status: Status| {
        assert_eq!(reason(&status), ErrorReason::InvalidFields);
        grpc_kit::violations(&status)
    };
    let request = CreateKeyRequest {
        scopes: vec!["reed".into()],
        ..key_for("Ada", &["viewer", "amdin"])
    };
    let found = violations(fixture.create(request).await.unwrap_err());
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["principal", "roles[1]", "scopes[0]"]);
    assert!(found[1].1.contains("Did you mean `admin`?"), "{found:?}");
    assert!(found[2].1.contains("Did you mean `read`?"), "{found:?}");

    let principal = registry::Principal {
        groups: vec![String::new()],
        allowed_tools: ["FileOperator*", "a*b", "SleepTol"].map(Into::into).into(),
        denied_tools: ["workflow:later", "", "Sleep\u{7}"].map(Into::into).into(),
        ..of_principal("local", &["Viewer"])
    };
    let found = violations(fixture.put(principal, false).await.unwrap_err());
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "principal.name",
            "principal.roles[0]",
            "principal.groups[0]",
            "principal.allowed_tools[1]",
            "principal.allowed_tools[2]",
            "principal.denied_tools[1]",
            "principal.denied_tools[2]",
        ]
    );
    assert!(
        found[3].1.contains("`a*`") && found[4].1.contains("`SleepTool`"),
        "{found:?}"
    );

    fixture.key_of("ada", "viewer", 1).await;
    let status = fixture
        .create(key_for("ada", &["admin"]))
        .await
        .unwrap_err();
    assert_eq!(violations(status)[0].0, "roles");
    fixture.create(key_for("ada", &["viewer"])).await.unwrap();
    fixture.create(key_for("ada", &[])).await.unwrap();
    let status = fixture.create(key_for("bob", &[])).await.unwrap_err();
    assert_eq!(reason(&status), ErrorReason::PrincipalNotFound);
    for (key_id, principal, field) in [("", "", "key_id"), ("k", "ada", "principal")] {
        let request = RevokeKeysRequest {
            tenant: String::new(),
            key_id: key_id.to_owned(),
            principal: principal.to_owned(),
            really: false,
        };
        let status = fixture.identities().revoke_keys(request).await.unwrap_err();
        assert_eq!(violations(status)[0].0, field);
    }
}

impl Fixture {
    /// Imports approvers of a file with their keys.
    async fn import(&self, approvers: &[(&str, &str)]) -> Result<Vec<registry::Principal>, Status> {
        let approvers = approvers.iter().map(|(name, key)| ImportedApprover {
            name: (*name).to_owned(),
            roles: vec!["keeper".into()],
            key_sha256: hex::encode_upper(Sha256::digest(key)),
        });
        let request = ImportApproversRequest {
            tenant: String::new(),
            approvers: approvers.collect(),
        };
        let imported = self.identities().import_approvers(request).await?;
        Ok(imported.into_inner().principals)
    }
}

#[tokio::test]
async fn s612_an_approver_of_a_file_becomes_a_principal_whose_key_stays() {
    let mut fixture = Fixture::new().await;
    fixture.bootstrap().await;
    let file = [("Mara Keeper", "an old key"), ("Bo", "")];
    let imported = fixture.import(&file).await.unwrap();
    let names: Vec<&str> = imported.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["bo", "mara-keeper"]);
    let caller = fixture.resolve("an old key").await.unwrap();
    assert_eq!(caller.principal, "mara-keeper");
    assert_eq!(caller.permissions, ["read", "approve"]);
    assert_eq!(caller.groups, ["keeper"]);
    assert!(
        !fixture.is_known("").await,
        "no credential proves no one, whatever is imported"
    );
    let digest = hex::encode(Sha256::digest("an old key"));
    assert!(!fixture.is_known(&digest).await, "the digest is not a key");
    let (token, _) = fixture.login("an old key").await.unwrap();
    assert_eq!(
        fixture.resolve(&token).await.unwrap().principal,
        "mara-keeper"
    );

    assert_eq!(
        fixture.import(&file).await.unwrap(),
        imported,
        "it changes nothing"
    );
    fixture.crash_and_restart().await;
    assert!(fixture.is_known("an old key").await);
    for (approver, place) in [
        (("mara keeper", "another key"), "approvers[0]"),
        (("admin", "another key"), "approvers[0]"),
        (("other", "an old key"), "approvers[0]"),
        (("é", "another key"), "approvers[0].name"),
    ] {
        let status = fixture.import(&[approver]).await.unwrap_err();
        assert_eq!(grpc_kit::violations(&status)[0].0, place, "{approver:?}");
    }
    let status = fixture
        .import(&[("A b", "1"), ("a-b", "1")])
        .await
        .unwrap_err();
    assert_eq!(grpc_kit::violations(&status).len(), 2);

    let revoked = RevokeKeysRequest {
        principal: "mara-keeper".to_owned(),
        ..RevokeKeysRequest::default()
    };
    fixture.identities().revoke_keys(revoked).await.unwrap();
    fixture.import(&file).await.unwrap();
    assert!(
        !fixture.is_known("an old key").await,
        "a revoked key stays revoked"
    );
}
