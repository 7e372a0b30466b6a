//! `tavern keys`.

mod approvers;
mod bootstrap;
mod delivery;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, value_parser};
use contracts::access::Role;
use contracts::tavern::access::v1::Permission;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use contracts::tavern::registry::v1::{
    BlockPrincipalRequest, Caller, CreateKeyRequest, GetCallerRequest, IssuedPrincipal, Key,
    ListPrincipalsRequest, Principal, PutPrincipalRequest, RevokeKeysRequest, RotateKeyRequest,
    UnblockPrincipalRequest,
};
use grpc_kit::Outbound;
use prost_types::Timestamp;

use super::{Remote, json, list, print, print_fields, print_table, refusal};
use crate::program;

pub use bootstrap::Bootstrap;
use delivery::Delivery;

/// The commands about keys, but for the first key (see [`Bootstrap`]).
#[derive(Subcommand)]
pub enum Command {
    /// Create a key for a principal, and the principal if it does not exist.
    Create(Create),
    /// List principals with their keys.
    List(Within),
    /// Show a principal: its roles, groups, tools and keys.
    Show {
        /// The name of the principal.
        name: String,
        /// The tenant of the principal.
        #[command(flatten)]
        within: Within,
    },
    /// Show the caller: its roles and permissions.
    Whoami,
    /// Set roles, groups and tools of a principal; those that are not given stay.
    Bind(Bind),
    /// Create a key that replaces another, which works on for a while.
    Rotate {
        /// The name of a principal, for its newest key, or the id of a key.
        whose: String,
        /// The hours for which the earlier key works on, 1 to 168.
        #[arg(long, default_value_t = 24, value_parser = value_parser!(u32).range(1..=168))]
        overlap_hours: u32,
        /// The tenant of the principal.
        #[command(flatten)]
        within: Within,
        /// The place of the new key.
        #[command(flatten)]
        out: Out,
    },
    /// Revoke a key, or all keys of a principal.
    Revoke {
        /// The name of a principal, or the id of a key.
        whose: String,
        /// Also revoke the last key of the last administrator.
        #[arg(long)]
        really: bool,
        /// The tenant of the principal.
        #[command(flatten)]
        within: Within,
    },
    /// Block an issued principal, as `company:ada`: no token proves it, and its runs may do nothing.
    Block {
        /// The name of the principal.
        name: String,
        /// The tenant of the principal.
        #[command(flatten)]
        within: Within,
    },
    /// End the block of an issued principal.
    Unblock {
        /// The name of the principal.
        name: String,
        /// The tenant of the principal.
        #[command(flatten)]
        within: Within,
    },
    /// Make principals of the approvers of an approvals file; their keys stay valid.
    ImportApprovers {
        /// The file.
        file: PathBuf,
        /// The tenant of the principal.
        #[command(flatten)]
        within: Within,
    },
}

/// The tenant of the principals.
#[derive(Args)]
pub struct Within {
    /// The tenant, for administrators of the installation. Default: the caller's own.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
}

/// A key to create.
#[derive(Args)]
pub struct Create {
    /// The name of the principal.
    name: String,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    rights: Rights,
    /// The life of the key in days, 1 to 365.
    #[arg(long, default_value_t = 90, value_parser = days())]
    days: u32,
    /// A permission to which the key is narrowed; may be given several times. Default: all of the roles.
    #[arg(long, value_name = "PERMISSION", value_parser = permission())]
    scope: Vec<String>,
    #[command(flatten)]
    out: Out,
}

/// The rights to set.
#[derive(Args)]
pub struct Bind {
    /// The name of the principal.
    name: String,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    rights: Rights,
    /// Also take the role admin from the last administrator with a key.
    #[arg(long)]
    really: bool,
}

/// The rights of a principal. Each option may be given several times; an empty text stands for an empty list.
#[derive(Args)]
struct Rights {
    /// A role; may be given several times, as the options below.
    #[arg(long, value_parser = role())]
    role: Vec<String>,
    /// A role for the installation: in the tenant `system`.
    #[arg(long, value_parser = role())]
    system_role: Vec<String>,
    /// A pattern of the ids of tools that the principal may call. Default: all tools; an empty text clears the list.
    #[arg(long, value_name = "PATTERN")]
    allow_tool: Vec<String>,
    /// A pattern of the ids of tools that it may not call, whatever is allowed.
    #[arg(long, value_name = "PATTERN")]
    deny_tool: Vec<String>,
    /// A group, as rules for approvals name it.
    #[arg(long)]
    group: Vec<String>,
}

/// The place of a new key.
#[derive(Args)]
pub struct Out {
    /// The new file for the key. Without it the key is shown, on a terminal only.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

type Identities = IdentityServiceClient<Outbound>;

impl Command {
    /// Executes the command.
    ///
    /// # Errors
    /// The reason why the command failed.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        remote.located(self.answered(remote).await)
    }

    async fn answered(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut identities = Identities::new(remote.connect()?);
        match self {
            Self::Create(create) => create.execute(&mut identities, remote.json).await?,
            Self::List(within) => list(&mut identities, &within.tenant, remote.json).await?,
            Self::Show { name, within } => {
                let found = existing(&mut identities, &within.tenant, &name).await?;
                show(&found, remote.json)?;
            }
            Self::Whoami => {
                let found = identities.get_caller(GetCallerRequest {}).await;
                let found = found.map_err(|status| refusal(&status))?.into_inner();
                let caller = found.caller.context("the answer has no caller")?;
                show_caller(&caller, remote.json)?;
            }
            Self::Bind(bind) => bind.execute(&mut identities, remote.json).await?,
            Self::Rotate {
                whose,
                overlap_hours,
                within: Within { tenant },
                out,
            } => {
                let delivery = Delivery::prepare(out.out)?;
                let (owner, key_id) = owner(&mut identities, &tenant, whose).await?;
                let request = RotateKeyRequest {
                    principal: principal_unless(&key_id, &owner),
                    key_id,
                    overlap_hours,
                    tenant,
                };
                let made = identities.rotate_key(request).await;
                let made = made.map_err(|status| refusal(&status))?.into_inner();
                delivery.deliver(made, &owner, remote.json)?;
            }
            Self::Revoke {
                whose,
                really,
                within: Within { tenant },
            } => {
                let (owner, key_id) = owner(&mut identities, &tenant, whose).await?;
                let request = RevokeKeysRequest {
                    principal: principal_unless(&key_id, &owner),
                    key_id,
                    really,
                    tenant,
                };
                let revoked = identities.revoke_keys(request).await;
                let revoked = revoked.map_err(|status| refusal(&status))?.into_inner();
                print_keys(&revoked.keys, remote.json)?;
            }
            Self::Block { name, within } => {
                let request = BlockPrincipalRequest {
                    principal: name,
                    tenant: within.tenant,
                };
                let blocked = identities.block_principal(request).await;
                let blocked = blocked.map_err(|status| refusal(&status))?.into_inner();
                show(&blocked.principal.unwrap_or_default(), remote.json)?;
            }
            Self::Unblock { name, within } => {
                let request = UnblockPrincipalRequest {
                    principal: name,
                    tenant: within.tenant,
                };
                let unblocked = identities.unblock_principal(request).await;
                let unblocked = unblocked.map_err(|status| refusal(&status))?.into_inner();
                show(&unblocked.principal.unwrap_or_default(), remote.json)?;
            }
            Self::ImportApprovers { file, within } => {
                let mut request = approvers::read(&file)?;
                request.tenant = within.tenant;
                let imported = identities.import_approvers(request).await;
                let imported = imported.map_err(|status| refusal(&status))?.into_inner();
                print_principals(&imported.principals, remote.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Create {
    async fn execute(self, identities: &mut Identities, as_json: bool) -> anyhow::Result<()> {
        let delivery = Delivery::prepare(self.out.out)?;
        if self.rights.has_more_than_roles() {
            let tenant = &self.within.tenant;
            self.rights.put_new(identities, tenant, &self.name).await?;
        }
        let request = CreateKeyRequest {
            principal: self.name.clone(),
            roles: given(&self.rights.role, Vec::new()),
            days: self.days,
            scopes: self.scope,
            tenant: self.within.tenant,
        };
        let made = identities.create_key(request).await;
        let made = made.map_err(|status| refusal(&status))?.into_inner();
        delivery.deliver(made, &self.name, as_json)
    }
}

impl Bind {
    async fn execute(self, identities: &mut Identities, as_json: bool) -> anyhow::Result<()> {
        let present = existing(identities, &self.within.tenant, &self.name).await?;
        let request = PutPrincipalRequest {
            set_system_roles: !self.rights.system_role.is_empty(),
            principal: Some(self.rights.applied_to(present)),
            really: self.really,
        };
        let bound = identities.put_principal(request).await;
        let bound = bound.map_err(|status| refusal(&status))?.into_inner();
        let bound = bound.principal.context("the answer has no principal")?;
        show(&bound, as_json)
    }
}

impl Rights {
    fn has_more_than_roles(&self) -> bool {
        let lists = [
            &self.system_role,
            &self.allow_tool,
            &self.deny_tool,
            &self.group,
        ];
        lists.iter().any(|list| !list.is_empty())
    }

    /// Returns a principal with these rights, and its own where none are given.
    fn applied_to(&self, present: Principal) -> Principal {
        Principal {
            roles: given(&self.role, present.roles),
            system_roles: given(&self.system_role, present.system_roles),
            groups: given(&self.group, present.groups),
            allowed_tools: given(&self.allow_tool, present.allowed_tools),
            denied_tools: given(&self.deny_tool, present.denied_tools),
            ..present
        }
    }

    /// Creates a principal with these rights. A principal that exists must have them already: a new key changes
    /// no rights.
    async fn put_new(
        &self,
        identities: &mut Identities,
        tenant: &str,
        name: &str,
    ) -> anyhow::Result<()> {
        if let Some(present) = find(identities, tenant, name).await? {
            if self.applied_to(present.clone()) == present {
                return Ok(());
            }
            bail!(
                "{name} exists with other rights; `{} keys bind {name}` changes them",
                program::name()
            );
        }
        let principal = self.applied_to(Principal {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            ..Principal::default()
        });
        let request = PutPrincipalRequest {
            principal: Some(principal),
            set_system_roles: !self.system_role.is_empty(),
            really: false,
        };
        let put = identities.put_principal(request).await;
        put.map_err(|status| refusal(&status))?;
        Ok(())
    }
}

/// Returns the values that were given, of which an empty text is none; `present` where nothing was given.
fn given(values: &[String], present: Vec<String>) -> Vec<String> {
    match values {
        [] => present,
        values => {
            let values = values.iter().filter(|value| !value.is_empty());
            values.cloned().collect()
        }
    }
}

/// Reads the life of a key in days.
fn days() -> impl TypedValueParser<Value = u32> {
    value_parser!(u32).range(1..=365)
}

/// Reads the name of a role, or the empty text that clears the list.
fn role() -> impl TypedValueParser<Value = String> {
    let roles = Role::ALL.map(|role| PossibleValue::new(role.name()));
    let none = PossibleValue::new("").hide(true);
    PossibleValuesParser::new(roles.into_iter().chain([none]))
}

/// Reads the name of a permission.
fn permission() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(Permission::OF_CLIENTS.map(Permission::name))
}

/// Returns every principal of a tenant, of the caller's where none is named.
async fn all(identities: &mut Identities, tenant: &str) -> anyhow::Result<Vec<Principal>> {
    let mut principals = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListPrincipalsRequest {
            page_token,
            tenant: tenant.to_owned(),
            ..ListPrincipalsRequest::default()
        };
        let page = identities.list_principals(request).await;
        let page = page.map_err(|status| refusal(&status))?.into_inner();
        principals.extend(page.principals);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(principals);
        }
    }
}

async fn find(
    identities: &mut Identities,
    tenant: &str,
    name: &str,
) -> anyhow::Result<Option<Principal>> {
    let mut all = all(identities, tenant).await?.into_iter();
    Ok(all.find(|principal| principal.name == name))
}

async fn existing(
    identities: &mut Identities,
    tenant: &str,
    name: &str,
) -> anyhow::Result<Principal> {
    let found = find(identities, tenant, name).await?;
    found.with_context(|| {
        format!(
            "there is no principal {name}; `{} keys list` lists them",
            program::name()
        )
    })
}

/// Returns the name of a principal and no key, or the id of a key and the name of its principal.
async fn owner(
    identities: &mut Identities,
    tenant: &str,
    whose: String,
) -> anyhow::Result<(String, String)> {
    let all = all(identities, tenant).await?;
    if all.iter().any(|principal| principal.name == whose) {
        return Ok((whose, String::new()));
    }
    let has_key = |principal: &&Principal| principal.keys.iter().any(|key| key.key_id == whose);
    match all.iter().find(has_key) {
        Some(owner) => Ok((owner.name.clone(), whose)),
        None => bail!(
            "there is neither a principal nor a key {whose}; `{} keys list` lists them",
            program::name()
        ),
    }
}

/// Returns the name of a principal for a request, which names either a key or a principal.
fn principal_unless(key_id: &str, owner: &str) -> String {
    match key_id {
        "" => owner.to_owned(),
        _ => String::new(),
    }
}

async fn list(identities: &mut Identities, tenant: &str, as_json: bool) -> anyhow::Result<()> {
    list::print_all(as_json, HEAD, row, async |page_token| {
        let request = ListPrincipalsRequest {
            page_token,
            tenant: tenant.to_owned(),
            ..ListPrincipalsRequest::default()
        };
        let page = identities.list_principals(request).await?.into_inner();
        Ok((page.principals, page.next_page_token))
    })
    .await
}

/// The head of a table of principals.
const HEAD: [&str; 4] = ["PRINCIPAL", "ROLES", "GROUPS", "KEYS"];

fn row(principal: &Principal) -> [String; 4] {
    let mut keys: Vec<_> = principal.keys.iter().map(key_in_words).collect();
    keys.extend(principal.issued.as_ref().map(tokens_in_words));
    [
        principal.name.clone(),
        principal.roles.join(", "),
        principal.groups.join(", "),
        keys.join("; "),
    ]
}

/// Prints principals as [`list`] does.
fn print_principals(principals: &[Principal], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return principals.iter().try_for_each(json::print_line);
    }
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(principals.iter().map(|principal| row(principal).to_vec()));
    print_table(&rows, None);
    Ok(())
}

/// Prints keys, one per line.
fn print_keys(keys: &[Key], as_json: bool) -> anyhow::Result<()> {
    for key in keys {
        match as_json {
            true => json::print_line(key)?,
            false => print(&format!("{}\n", key_in_words(key))),
        }
    }
    Ok(())
}

/// Returns the end of the last token of an issued principal, or its block.
fn tokens_in_words(issued: &IssuedPrincipal) -> String {
    match (&issued.block_time, &issued.expire_time) {
        (Some(blocked), _) => format!("blocked {blocked}"),
        (None, Some(expires)) => format!("tokens until {expires}"),
        (None, None) => "no token".to_owned(),
    }
}

/// Returns the id of a key, its end and its scopes.
fn key_in_words(key: &Key) -> String {
    let end = match (&key.revoke_time, &key.expire_time) {
        (Some(revoked), _) => format!(" revoked {revoked}"),
        (None, Some(expires)) => format!(" until {expires}"),
        (None, None) => String::new(),
    };
    let scopes = match key.scopes.as_slice() {
        [] => String::new(),
        scopes => format!(" for {}", scopes.join(", ")),
    };
    format!("{}{end}{scopes}", key.key_id)
}

fn show(principal: &Principal, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return json::print_line(principal);
    }
    let allowed = match principal.allowed_tools.as_slice() {
        [] => "all".to_owned(),
        patterns => patterns.join(", "),
    };
    let keys: Vec<_> = principal.keys.iter().map(key_in_words).collect();
    let created = principal.create_time.as_ref().map(ToString::to_string);
    let issued = principal.issued.clone().unwrap_or_default();
    let time = |time: &Option<Timestamp>| time.as_ref().map_or(String::new(), ToString::to_string);
    print_fields(&[
        ("principal", principal.name.clone()),
        ("tenant", principal.tenant.clone()),
        ("roles", principal.roles.join(", ")),
        (
            "roles for the installation",
            principal.system_roles.join(", "),
        ),
        ("groups", principal.groups.join(", ")),
        ("tools", allowed),
        ("denied tools", principal.denied_tools.join(", ")),
        ("keys", keys.join("\n")),
        ("issuer", issued.issuer.clone()),
        ("subject", issued.subject.clone()),
        ("last token", time(&issued.expire_time)),
        ("blocked", time(&issued.block_time)),
        ("created", created.unwrap_or_default()),
    ]);
    Ok(())
}

fn show_caller(caller: &Caller, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return json::print_line(caller);
    }
    let expires = caller.expire_time.as_ref().map(ToString::to_string);
    let note = match caller.open {
        true => format!(
            "no key exists, so everyone is {}; `{} keys bootstrap` makes the first",
            caller.principal,
            program::name()
        ),
        false => String::new(),
    };
    print_fields(&[
        ("principal", caller.principal.clone()),
        ("tenant", caller.tenant.clone()),
        ("roles", caller.roles.join(", ")),
        ("permissions", caller.permissions.join(", ")),
        ("for the installation", caller.system_permissions.join(", ")),
        ("groups", caller.groups.join(", ")),
        ("issuer", caller.issuer.clone()),
        ("subject", caller.subject.clone()),
        ("key", caller.key_id.clone()),
        ("expires", expires.unwrap_or_default()),
        ("note", note),
    ]);
    Ok(())
}
