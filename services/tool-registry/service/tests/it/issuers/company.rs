//! A registry with an issuer in Python.

use contracts::tavern::registry::v1::{
    BlockPrincipalRequest, Caller, Principal as Message, ResolvePrincipalRequest,
    UnblockPrincipalRequest,
};
use core_types::{Clock, Principal};
use doubles::TestIssuer;
use serde_json::{Value, json};
use tonic::Status;
use tool_registry::settings::{IssuerSettings, RuleSettings};

use crate::fixture::Fixture;

/// A registry, and the issuer `company` that its settings name.
pub(crate) struct Company {
    pub(crate) fixture: Fixture,
    pub(crate) issuer: TestIssuer,
}

/// The rules of the issuer: a claim with its value, and the tenant and the role that they give.
const RULES: [(&str, &str, &str, &str); 5] = [
    ("groups", "devs", "default", "developer"),
    ("groups", "ops", "default", "operator"),
    ("org.name", "acme", "acme", "viewer"),
    ("https://company.example/role", "root", "system", "admin"),
    ("scope", "tavern:read", "default", "viewer"),
];

impl Company {
    pub(crate) async fn new() -> Self {
        let issuer = TestIssuer::start().await.unwrap();
        let fixture = Fixture::with_issuers(vec![settings(&issuer)]).await;
        Self { fixture, issuer }
    }

    /// Returns the seconds since the epoch.
    pub(crate) fn now(&self) -> i64 {
        self.fixture.clock.now().seconds_and_nanos().0
    }

    /// Returns good claims of a subject, of the group `devs`, for an hour.
    pub(crate) fn claims(&self, subject: &str) -> Value {
        let now = self.now();
        json!({
            "iss": TestIssuer::ISS, "aud": ["other", "tavern"], "sub": subject,
            "iat": now, "exp": now + 3600, "groups": ["all", "devs"],
        })
    }

    /// Returns a good token of a subject, signed with a key.
    pub(crate) async fn token_of(&self, subject: &str, kid: &str) -> String {
        self.sign(kid, &self.claims(subject)).await
    }

    pub(crate) async fn sign(&self, kid: &str, claims: &Value) -> String {
        self.issuer.sign(kid, claims, &json!({})).await.unwrap()
    }

    /// Returns a principal with its rights, as runs and streams look it up.
    pub(crate) async fn look_up(&self, principal: &str, key_id: &str) -> Result<Caller, Status> {
        let request = ResolvePrincipalRequest {
            principal: principal.to_owned(),
            key_id: key_id.to_owned(),
        };
        let mut identities = self.fixture.identities_for(&Principal::LOCAL);
        let resolved = identities.resolve_principal(request).await?;
        Ok(resolved.into_inner().caller.unwrap())
    }

    pub(crate) async fn block(&self, principal: &str) -> Result<Message, Status> {
        let request = BlockPrincipalRequest {
            principal: principal.to_owned(),
            ..BlockPrincipalRequest::default()
        };
        let mut identities = self.fixture.identities_for(&Principal::LOCAL);
        let blocked = identities.block_principal(request).await?;
        Ok(blocked.into_inner().principal.unwrap())
    }

    pub(crate) async fn unblock(&self, principal: &str) -> Message {
        let request = UnblockPrincipalRequest {
            principal: principal.to_owned(),
            ..UnblockPrincipalRequest::default()
        };
        let mut identities = self.fixture.identities_for(&Principal::LOCAL);
        let unblocked = identities.unblock_principal(request).await.unwrap();
        unblocked.into_inner().principal.unwrap()
    }
}

/// Returns the settings of an issuer with [`RULES`].
pub(crate) fn settings(issuer: &TestIssuer) -> IssuerSettings {
    let rules = RULES.map(|(claim, value, tenant, role)| RuleSettings {
        claim: claim.to_owned(),
        value: value.to_owned(),
        tenant: tenant.to_owned(),
        roles: vec![role.to_owned()],
        groups: vec![format!("from-{value}")],
    });
    IssuerSettings {
        name: "company".to_owned(),
        issuer: TestIssuer::ISS.to_owned(),
        audiences: vec!["tavern".to_owned()],
        keys: issuer.keys().unwrap(),
        ca_file: issuer.ca_file(),
        rules: rules.into(),
    }
}
