//! Settings of issuers, whose tokens prove principals.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use contracts::access::Role;
use core_types::{Tenant, issued_name};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Problems;
use tool_domain::identity::{Issuer, issuer::Rule};

use crate::runner::key_sources;

/// The most issuers, and rules of one.
const MAX_ISSUERS: usize = 64;
const MAX_RULES: usize = 1_000;

/// An issuer, whose tokens prove principals.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IssuerSettings {
    /// The name, with which the names of its principals begin: `company` makes `company:ada`. It stays with the issuer,
    /// as runs and schedules have it.
    pub name: String,
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// The values of the claim `aud`, of which a token must have one.
    pub audiences: Vec<String>,
    /// Its set of public keys (JWKS): an `https` address, or a file. Plain `http` only on loopback.
    pub keys: String,
    /// The file of the certificates that may sign the server's; empty for those of the host. Default: none.
    pub ca_file: PathBuf,
    /// The rights that claims give. What no rule maps is denied.
    pub rules: Vec<RuleSettings>,
}

/// The rights that a value of a claim gives.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSettings {
    /// The name of the claim; one below others has a dot between each two, as `realm_access.roles`.
    pub claim: String,
    /// The value that the claim is, or has among its values.
    pub value: String,
    /// The tenant. The first rule that matches decides about it. Default: default.
    pub tenant: String,
    /// The roles in the tenant.
    pub roles: Vec<String>,
    /// The groups, as rules for approvals name them. Default: none.
    pub groups: Vec<String>,
}

impl Default for RuleSettings {
    fn default() -> Self {
        Self {
            claim: String::new(),
            value: String::new(),
            tenant: Tenant::DEFAULT.to_string(),
            roles: Vec::new(),
            groups: Vec::new(),
        }
    }
}

impl IssuerSettings {
    /// Returns the issuer. The settings were checked.
    pub(crate) fn as_domain(&self) -> Issuer {
        let rules = self.rules.iter().map(|rule| Rule {
            claim: rule.claim.clone(),
            value: rule.value.clone(),
            tenant: Tenant::new(&rule.tenant).unwrap_or_default(),
            roles: rule.roles.clone(),
            groups: rule.groups.clone(),
        });
        Issuer {
            name: self.name.clone(),
            iss: self.issuer.clone(),
            audiences: self.audiences.clone(),
            rules: rules.collect(),
        }
    }

    fn check(&self, faults: &mut Faults<'_>) {
        if !issued_name::is_issuer(&self.name) {
            let remedy = "give 1 to 32 characters of a-z, 0-9, `-`; the first is a letter";
            faults.add("name", "is not the name of an issuer", remedy);
        }
        if self.issuer.is_empty() {
            let remedy = "give the claim `iss` of its tokens, exactly as they have it";
            faults.add("issuer", "is empty", remedy);
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            let remedy = "give the claim `aud` of the tokens that are for this Tavern";
            faults.add("audiences", "is empty or has an empty value", remedy);
        }
        self.check_keys(faults);
        if self.rules.is_empty() || self.rules.len() > MAX_RULES {
            let remedy = format!("give 1 to {MAX_RULES} rules; what no rule maps is denied");
            faults.add("rules", "has no rules, or too many", &remedy);
        }
        for (place, rule) in self.rules.iter().enumerate() {
            rule.check(&format!("rules.{place}"), faults);
        }
    }

    fn check_keys(&self, faults: &mut Faults<'_>) {
        let remedy = "give an `https` address without a user and a password, or the path of a file";
        let url = Url::parse(&self.keys).ok().filter(Url::has_host);
        let Some(url) = url else {
            if self.keys.is_empty() || self.keys.contains("://") {
                faults.add("keys", "is neither an address nor a file", remedy);
            }
            if !self.ca_file.as_os_str().is_empty() {
                faults.add("ca_file", "is given for keys in a file", "leave it out");
            }
            return;
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        match url.scheme() {
            "https" if !has_user => {}
            "http" if !has_user && is_loopback(&url) => {}
            _ => faults.add("keys", "is no `https` address, or has a user in it", remedy),
        }
        if !self.ca_file.as_os_str().is_empty()
            && let Err(reason) = key_sources::certificates(&self.ca_file)
        {
            let path = self.ca_file.display();
            let fault = format!("names {path}, which cannot be used: {reason}");
            faults.add("ca_file", &fault, "name a file of certificates in PEM");
        }
    }
}

impl RuleSettings {
    fn check(&self, key: &str, faults: &mut Faults<'_>) {
        for (name, value) in [("claim", &self.claim), ("value", &self.value)] {
            if value.is_empty() {
                faults.add(&format!("{key}.{name}"), "is empty", "give it");
            }
        }
        if let Err(error) = Tenant::new(&self.tenant) {
            let fault = error.to_string();
            faults.add(&format!("{key}.tenant"), &fault, "name a tenant");
        }
        let known = Role::ALL.map(Role::name).join(", ");
        let unknown = self.roles.iter().find(|role| Role::of_name(role).is_none());
        let fault = match unknown {
            Some(role) => format!("has `{role}`, which is no role"),
            None if self.roles.is_empty() => "is empty".to_owned(),
            None => return,
        };
        let remedy = format!("give roles of these: {known}");
        faults.add(&format!("{key}.roles"), &fault, &remedy);
    }
}

/// The faults of one issuer, which are problems of the whole list: only that has a source.
struct Faults<'a> {
    place: usize,
    problems: &'a mut Problems,
}

impl Faults<'_> {
    fn add(&mut self, field: &str, fault: &str, remedy: &str) {
        let what = format!("is wrong at {}.{field}: it {fault}", self.place);
        self.problems.add("issuers", what, remedy);
    }
}

/// Checks issuers, each by itself and among the others.
pub(super) fn check(issuers: &[IssuerSettings], problems: &mut Problems) {
    if issuers.len() > MAX_ISSUERS {
        let remedy = format!("give {MAX_ISSUERS} at most");
        problems.add("issuers", "has too many issuers", remedy);
    }
    let (mut names, mut claims) = (HashSet::new(), HashSet::new());
    for (place, issuer) in issuers.iter().enumerate() {
        let mut faults = Faults { place, problems };
        issuer.check(&mut faults);
        for (field, is_new) in [
            ("name", names.insert(&issuer.name)),
            ("issuer", claims.insert(&issuer.issuer)),
        ] {
            if !is_new {
                let remedy = "give each issuer once, with a name of its own";
                faults.add(field, "is that of another issuer", remedy);
            }
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = bare.parse().ok();
    host == "localhost" || address.is_some_and(|it| it.to_canonical().is_loopback())
}
