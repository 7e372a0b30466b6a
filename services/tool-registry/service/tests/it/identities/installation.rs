//! Principals with roles for the installation, and those of other tenants, as administrators of one tenant find them.

use contracts::tavern::registry::v1::{
    CreateTenantRequest, tenant_service_client::TenantServiceClient,
};

use super::*;

/// Returns the principals and keys for the calls of a principal.
fn by(fixture: &Fixture, name: &str) -> IdentityServiceClient<Outbound> {
    fixture.identities_for(&Principal::new(name).unwrap())
}

fn of_installation(name: &str, system_roles: &[&str]) -> PutPrincipalRequest {
    let roles = of_principal(name, system_roles).roles;
    PutPrincipalRequest {
        principal: Some(registry::Principal {
            system_roles: roles,
            ..of_principal(name, &["viewer"])
        }),
        set_system_roles: true,
        ..PutPrincipalRequest::default()
    }
}

/// A registry with the first administrator `admin`, who administers the installation, and `ann`, who administers the
/// default tenant. Returns the id of the key of `admin`.
async fn administered() -> (Fixture, String) {
    let fixture = Fixture::new().await;
    let first = fixture.bootstrap().await;
    fixture.create(key_for("ann", &["admin"])).await.unwrap();
    (fixture, id_of(&first).to_owned())
}

#[tokio::test]
async fn an_administrator_of_a_tenant_gets_no_key_of_a_principal_with_roles_for_the_installation() {
    let (fixture, first) = administered().await;
    let before = fixture.principals().await;
    let mut ann = by(&fixture, "ann");
    let by_id = RotateKeyRequest {
        key_id: first,
        ..RotateKeyRequest::default()
    };
    let by_name = RotateKeyRequest {
        principal: "admin".into(),
        ..RotateKeyRequest::default()
    };
    let of_existing = ann.create_key(key_for("admin", &[])).await.map(drop);
    let with_roles = ann.create_key(key_for("admin", &["admin"])).await.map(drop);
    let by_id = ann.rotate_key(by_id).await.map(drop);
    let by_name = ann.rotate_key(by_name).await.map(drop);
    for refused in [of_existing, with_roles, by_id, by_name] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
        let metadata = grpc_kit::metadata(&refused);
        assert_eq!(
            (&*metadata["principal"], &*metadata["permission"]),
            ("ann", "administer")
        );
    }
    assert_eq!(fixture.principals().await, before);
    ann.create_key(key_for("bob", &["viewer"])).await.unwrap();
    let mut admin = by(&fixture, "admin");
    admin.create_key(key_for("admin", &[])).await.unwrap();
}

#[tokio::test]
async fn roles_for_the_installation_are_a_set_that_only_its_administrators_change() {
    let (fixture, _) = administered().await;
    let (mut admin, mut ann) = (by(&fixture, "admin"), by(&fixture, "ann"));
    let put = of_installation("max", &["viewer", "operator"]);
    let refused = ann.put_principal(put.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    admin.put_principal(put).await.unwrap();
    // The same roles in another order change nothing.
    ann.put_principal(of_installation("max", &["operator", "viewer"]))
        .await
        .unwrap();
    for others in [&["operator"][..], &["operator", "viewer", "admin"], &[]] {
        let refused = ann.put_principal(of_installation("max", others)).await;
        assert_eq!(
            refused.unwrap_err().code(),
            Code::PermissionDenied,
            "{others:?}"
        );
    }
    let left_out = PutPrincipalRequest {
        set_system_roles: false,
        ..of_installation("max", &["admin"])
    };
    let put = ann.put_principal(left_out).await.unwrap().into_inner();
    let roles = put.principal.unwrap().system_roles;
    assert_eq!(roles, ["viewer", "operator"]);
    admin
        .put_principal(of_installation("max", &[]))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_page_token_of_the_principals_of_a_tenant_is_none_of_another() {
    let (fixture, _) = administered().await;
    let mut tenants = TenantServiceClient::new(fixture.acting_for("admin", &[]));
    let request = CreateTenantRequest {
        name: "acme".into(),
        ..CreateTenantRequest::default()
    };
    tenants.create_tenant(request).await.unwrap();
    let mut admin = by(&fixture, "admin");
    let mut request = ListPrincipalsRequest {
        page_size: 1,
        ..ListPrincipalsRequest::default()
    };
    let listed = admin.list_principals(request.clone()).await.unwrap();
    request.page_token = listed.into_inner().next_page_token;
    assert_ne!(request.page_token, "");
    admin.list_principals(request.clone()).await.unwrap();
    request.tenant = "acme".into();
    let refused = admin.list_principals(request).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "page_token");
}
