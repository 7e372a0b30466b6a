//! The rights of issued principals, after the end of their tokens too.

use std::time::Duration;

use contracts::tavern::{
    common::v1::ErrorReason,
    registry::v1::{
        CreateKeyRequest, CreateTenantRequest, GetCallerRequest, ListPrincipalsRequest, Principal,
        PutPrincipalRequest, call_service_client::CallServiceClient,
        tenant_service_client::TenantServiceClient,
    },
};
use serde_json::json;
use tonic::Code;

use super::company::Company;
use crate::fixture::{code_of, finish, with_effect};

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn a_token_of_each_algorithm_proves_issuer_and_subject() {
    let company = Company::new().await;
    for (kid, subject, principal) in [
        ("ed", "ada", "company:ada"),
        ("es", "auth0|7/f", "company:auth0%7C7%2Ff"),
        ("rs", "local", "company:local"),
    ] {
        let token = company.token_of(subject, kid).await;
        let caller = company.fixture.resolve(&token).await.unwrap();
        assert_eq!(caller.principal, principal);
        assert_eq!(caller.issuer, doubles::TestIssuer::ISS);
        assert_eq!(caller.subject, subject);
        assert_eq!(
            (caller.tenant.as_str(), &caller.roles[..]),
            ("default", &["developer".to_owned()][..])
        );
        assert_eq!(caller.permissions, ["read", "invoke", "define"]);
        assert_eq!(caller.groups, ["from-devs"]);
        assert!(caller.system_permissions.is_empty() && !caller.open);
        let name = core_types::Principal::new(principal).unwrap();
        let mut identities = company.fixture.identities_for(&name);
        let own = identities.get_caller(GetCallerRequest {}).await.unwrap();
        assert_eq!(own.into_inner().caller.unwrap().subject, subject);
    }
}

#[tokio::test]
async fn claims_give_tenant_and_roles_and_nothing_else_does() {
    let company = Company::new().await;
    let mut tenants = TenantServiceClient::new(company.fixture.acting_for("local", &[]));
    let acme = CreateTenantRequest {
        name: "acme".to_owned(),
        ..CreateTenantRequest::default()
    };
    tenants.create_tenant(acme).await.unwrap();
    for (more, principal, roles, in_system) in [
        (
            json!({"groups": "devs"}),
            "company:ada",
            &["developer"][..],
            0,
        ),
        (
            json!({"groups": ["ops", "devs"]}),
            "company:ada",
            &["developer", "operator"],
            0,
        ),
        (
            json!({"groups": [], "org": {"name": "acme"}}),
            "acme/company:ada",
            &["viewer"],
            0,
        ),
        (
            json!({"groups": ["devs"], "org": {"name": "acme"}}),
            "company:ada",
            &["developer"],
            0,
        ),
        (
            json!({"groups": [], "scope": "openid tavern:read"}),
            "company:ada",
            &["viewer"],
            0,
        ),
        (
            json!({"groups": [], "https://company.example/role": "root"}),
            "system/company:ada",
            &["admin"],
            6,
        ),
        (
            json!({"tenant": "system", "roles": ["admin"], "system_roles": ["admin"]}),
            "company:ada",
            &["developer"],
            0,
        ),
    ] {
        let mut claims = company.claims("ada");
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let caller = company
            .fixture
            .resolve(&company.sign("ed", &claims).await)
            .await;
        let caller = caller.unwrap();
        assert_eq!(
            (&*caller.principal, &caller.roles[..]),
            (
                principal,
                &roles.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]
            ),
            "{more}"
        );
        assert_eq!(caller.system_permissions.len(), in_system, "{more}");
    }
}

#[tokio::test]
async fn nothing_is_kept_of_a_tenant_that_does_not_exist() {
    let company = Company::new().await;
    let mut of_acme = company.claims("ada");
    of_acme["groups"] = json!([]);
    of_acme["org"] = json!({"name": "acme"});
    let of_acme = company.sign("ed", &of_acme).await;
    let refused = company.fixture.resolve(&of_acme).await.unwrap_err();
    let reason = grpc_kit::reason(&refused);
    assert_eq!(
        reason,
        Some(ErrorReason::TenantClosed),
        "no tenant has the name"
    );
    assert!(company.look_up("acme/company:ada", "").await.is_err());
}

#[tokio::test]
async fn with_an_issuer_no_caller_is_everyone() {
    let company = Company::new().await;
    for credential in ["", "sk-dummy", "a.b.c", "eyJ.eyJ."] {
        let refused = company.fixture.resolve(credential).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{credential}");
    }
    assert!(company.look_up("local", "").await.is_err());
    let key = company.fixture.bootstrap().await;
    assert_eq!(
        company.fixture.resolve(&key).await.unwrap().principal,
        "admin"
    );
}

#[tokio::test]
async fn runs_act_with_the_roles_of_the_last_token_until_a_day_after_its_end() {
    let mut company = Company::new().await;
    let token = company.token_of("ada", "ed").await;
    let caller = company.fixture.resolve(&token).await.unwrap();
    let may = async |company: &Company, effect: &str| {
        let calls = CallServiceClient::new(company.fixture.acting_for("company:ada", &["turn_1"]));
        let write = json!({"filePath": "a", "content": "x"});
        let (_, result) = finish(calls, with_effect(effect, "FileOperator.WriteFile", write))
            .await
            .unwrap();
        match code_of(&result) {
            "" => true,
            code => {
                assert_eq!(code, "principal_not_allowed", "{result:?}");
                false
            }
        }
    };
    assert!(may(&company, "e1").await);
    company.fixture.clock.advance(2 * HOUR);
    assert!(company.fixture.resolve(&token).await.is_err());
    assert!(
        company
            .look_up("company:ada", &caller.key_id)
            .await
            .is_err(),
        "streams end"
    );
    assert_eq!(
        company.look_up("company:ada", "").await.unwrap().roles,
        ["developer"]
    );
    company.fixture.crash_and_restart().await;
    assert!(may(&company, "e2").await);
    company.fixture.clock.advance(22 * HOUR);
    assert!(may(&company, "e3").await);
    company
        .fixture
        .clock
        .advance(HOUR + Duration::from_secs(60));
    assert!(!may(&company, "e4").await);
    let refused = company.look_up("company:ada", "").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // The next token gives them again.
    company
        .fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    assert!(may(&company, "e5").await);
}

#[tokio::test]
async fn an_older_token_gives_nothing_back() {
    let company = Company::new().await;
    let mut older = company.claims("ada");
    older["groups"] = json!(["devs", "ops"]);
    older["iat"] = json!(company.now() - 60);
    let older = company.sign("ed", &older).await;
    company.fixture.resolve(&older).await.unwrap();
    assert_eq!(
        company.look_up("company:ada", "").await.unwrap().roles,
        ["developer", "operator"]
    );
    company
        .fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    assert_eq!(
        company.look_up("company:ada", "").await.unwrap().roles,
        ["developer"]
    );
    company.fixture.resolve(&older).await.unwrap();
    assert_eq!(
        company.look_up("company:ada", "").await.unwrap().roles,
        ["developer"]
    );
}

#[tokio::test]
async fn a_blocked_principal_is_refused_whatever_token_comes() {
    let mut company = Company::new().await;
    let token = company.token_of("ada", "ed").await;
    let caller = company.fixture.resolve(&token).await.unwrap();
    let (login, _) = company.fixture.login(&token).await.unwrap();
    let ticket = company.fixture.ticket(&token).await.unwrap();
    let blocked = company.block("company:ada").await.unwrap();
    let since = blocked.issued.unwrap().block_time;
    assert!(since.is_some());
    let again = company.block("company:ada").await.unwrap();
    assert_eq!(again.issued.unwrap().block_time, since);
    for credential in [&token, &login, &ticket] {
        assert!(company.fixture.resolve(credential).await.is_err());
    }
    for key_id in ["", &caller.key_id] {
        assert!(company.look_up("company:ada", key_id).await.is_err());
    }
    // It outlives the rights of the last token, a restart, and holds for one who never came.
    company.block("company:eve").await.unwrap();
    company.fixture.clock.advance(100 * HOUR);
    company.fixture.crash_and_restart().await;
    for subject in ["ada", "eve"] {
        let later = company.token_of(subject, "es").await;
        assert!(company.fixture.resolve(&later).await.is_err(), "{subject}");
    }
    company
        .fixture
        .resolve(&company.token_of("bob", "es").await)
        .await
        .unwrap();
    let unblocked = company.unblock("company:ada").await;
    assert_eq!(unblocked.issued.unwrap().block_time, None);
    company
        .fixture
        .resolve(&company.token_of("ada", "es").await)
        .await
        .unwrap();
    company.fixture.crash_and_restart().await;
    company
        .fixture
        .resolve(&company.token_of("ada", "es").await)
        .await
        .unwrap();
    for name in ["admin", "company:", "carl"] {
        let refused = company.block(name).await.unwrap_err();
        assert_eq!(grpc_kit::violations(&refused)[0].0, "principal", "{name}");
    }
}

#[tokio::test]
async fn issued_principals_are_listed_and_have_no_keys() {
    let company = Company::new().await;
    company.fixture.bootstrap().await;
    company.fixture.key_of("zoe", "viewer", 1).await;
    company
        .fixture
        .resolve(&company.token_of("ada", "ed").await)
        .await
        .unwrap();
    company.block("company:eve").await.unwrap();
    let admin = core_types::Principal::LOCAL;
    let mut identities = company.fixture.identities_for(&admin);
    let listed = identities
        .list_principals(ListPrincipalsRequest::default())
        .await;
    let listed = listed.unwrap().into_inner().principals;
    let names: Vec<_> = listed.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["admin", "company:ada", "company:eve", "zoe"]);
    let issued = listed[1].issued.clone().unwrap();
    assert_eq!((issued.subject.as_str(), issued.block_time), ("ada", None));
    assert_eq!(listed[1].roles, ["developer"]);
    assert!(listed[2].issued.as_ref().unwrap().block_time.is_some());

    let create = CreateKeyRequest {
        principal: "company:ada".to_owned(),
        roles: vec!["admin".to_owned()],
        ..CreateKeyRequest::default()
    };
    let put = PutPrincipalRequest {
        principal: Some(Principal {
            name: "company:ada".to_owned(),
            roles: vec!["admin".to_owned()],
            ..Principal::default()
        }),
        ..PutPrincipalRequest::default()
    };
    for refused in [
        identities.create_key(create).await.unwrap_err(),
        identities.put_principal(put).await.unwrap_err(),
    ] {
        assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::InvalidFields));
    }
}

#[tokio::test]
async fn a_login_and_a_ticket_stand_for_a_token_until_it_ends() {
    let company = Company::new().await;
    let token = company.token_of("a_d_a", "ed").await;
    let caller = company.fixture.resolve(&token).await.unwrap();
    let (login, of_login) = company.fixture.login(&token).await.unwrap();
    assert_eq!(of_login, caller);
    assert_eq!(company.fixture.resolve(&login).await.unwrap(), caller);
    for credential in [&token, &login] {
        let ticket = company.fixture.ticket(credential).await.unwrap();
        assert_eq!(company.fixture.resolve(&ticket).await.unwrap(), caller);
        assert!(
            company.fixture.resolve(&ticket).await.is_err(),
            "it is used up"
        );
    }
    let found = company
        .look_up("company:a_d_a", &caller.key_id)
        .await
        .unwrap();
    assert_eq!(found, caller);
    for key_id in [
        "until-",
        "until-x",
        "x",
        "until--1",
        "until-99999999999999999999",
    ] {
        assert!(
            company.look_up("company:a_d_a", key_id).await.is_err(),
            "{key_id}"
        );
    }
    company
        .fixture
        .clock
        .advance(HOUR + Duration::from_secs(61));
    assert!(company.fixture.resolve(&login).await.is_err());
    assert!(
        company
            .look_up("company:a_d_a", &caller.key_id)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_token_is_in_no_file() {
    let company = Company::new().await;
    let token = company.token_of("ada", "ed").await;
    company.fixture.resolve(&token).await.unwrap();
    let signature = token.rsplit('.').next().unwrap();
    let texts = [token.as_bytes(), signature.as_bytes()];
    let files = crate::credentials::files_without(company.fixture.directory.path(), &texts);
    assert!(files >= 3, "{files} files were read");
}
