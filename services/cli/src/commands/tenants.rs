//! `tavern tenants`.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, value_parser};
use contracts::tavern::registry::v1::{
    CloseTenantRequest, CreateTenantRequest, GetTenantRequest, ListTenantsRequest,
    UpdateTenantRequest, tenant_service_client::TenantServiceClient,
};
use contracts::tavern::tenant::v1::{
    Tenant, TenantLimit, TenantQuantity, TenantState, TenantUsage,
};

use super::{Remote, json, list, print, print_fields, refusal};

/// The commands about tenants, for those who operate the installation.
#[derive(Subcommand)]
pub enum Command {
    /// Create a tenant. `tavern keys create NAME --tenant TENANT` makes keys for it.
    Create {
        /// The name.
        name: String,
        #[command(flatten)]
        values: Values,
    },
    /// List tenants by name.
    List,
    /// Show a tenant: its state, its limits and their use.
    Show {
        /// The name.
        name: String,
    },
    /// Set weight and limits; those that are not given stay. They are in force within 5 s.
    Set {
        /// The name.
        name: String,
        #[command(flatten)]
        values: Values,
    },
    /// Close a tenant: refuse new work, let its runs end or cancel them, and remove its stored values.
    Close {
        /// The name.
        name: String,
        /// The time for which open runs may continue, in seconds, at most 30 days.
        #[arg(long, default_value_t = 0, value_parser = value_parser!(i64).range(0..=2_592_000))]
        grace_seconds: i64,
    },
}

/// Weight and limits of a tenant. A limit is a number, or `HARD:SOFT` with the bound from which the log warns; 0 takes
/// it away.
#[derive(Args)]
pub struct Values {
    /// The share of the installation, relative to those of other tenants, 1 to 1000.
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000))]
    weight: Option<u32>,
    /// The most runs that have not ended.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_open_runs: Option<Bounds>,
    /// The most runs that wait for a place.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_queued_runs: Option<Bounds>,
    /// The most calls of clients in a second; without `SOFT`, and its use is not shown.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_calls_per_second: Option<Bounds>,
    /// The most open streams of clients; without `SOFT`, and its use is not shown.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_streams: Option<Bounds>,
    /// The most scripts and sessions in the sandbox at once.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_sandbox_slots: Option<Bounds>,
    /// The most seconds of scripts in a day (UTC).
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_sandbox_seconds: Option<Bounds>,
    /// The most tokens of models in a day (UTC).
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_model_tokens: Option<Bounds>,
    /// The most money for models in a day (UTC), in millionths of the currency of the settings.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_model_micros: Option<Bounds>,
    /// The most bytes of stored blobs.
    #[arg(long, value_name = "N", value_parser = bounds)]
    max_stored_bytes: Option<Bounds>,
}

/// The bounds of a limit.
#[derive(Clone, Copy)]
struct Bounds {
    hard: u64,
    soft: u64,
}

fn bounds(text: &str) -> Result<Bounds, String> {
    let (hard, soft) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| {
        let read = text.parse::<u64>();
        read.map_err(|_| format!("`{text}` is not a number from 0"))
    };
    Ok(Bounds {
        hard: number(hard)?,
        soft: number(soft)?,
    })
}

impl Values {
    fn limits(&self) -> Vec<TenantLimit> {
        let given = [
            (TenantQuantity::OpenRuns, self.max_open_runs),
            (TenantQuantity::QueuedRuns, self.max_queued_runs),
            (TenantQuantity::CallsPerSecond, self.max_calls_per_second),
            (TenantQuantity::Streams, self.max_streams),
            (TenantQuantity::SandboxSlots, self.max_sandbox_slots),
            (TenantQuantity::SandboxSeconds, self.max_sandbox_seconds),
            (TenantQuantity::ModelTokens, self.max_model_tokens),
            (TenantQuantity::ModelMicros, self.max_model_micros),
            (TenantQuantity::StoredBytes, self.max_stored_bytes),
        ];
        let given = given.into_iter().filter_map(|(quantity, bounds)| {
            let Bounds { hard, soft } = bounds?;
            Some(TenantLimit {
                quantity: quantity.into(),
                hard,
                soft,
            })
        });
        given.collect()
    }
}

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut tenants = TenantServiceClient::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::Create { name, values } => {
                let request = CreateTenantRequest {
                    name,
                    weight: values.weight.unwrap_or_default(),
                    limits: values.limits(),
                };
                let created = tenants.create_tenant(request).await.map_err(refused)?;
                show(created.into_inner().tenant, &[], remote.json)?;
            }
            Self::List => {
                list::print_all(remote.json, HEAD, row, async |page_token| {
                    let request = ListTenantsRequest {
                        page_token,
                        ..ListTenantsRequest::default()
                    };
                    let page = tenants.list_tenants(request).await?.into_inner();
                    Ok((page.tenants, page.next_page_token))
                })
                .await?;
            }
            Self::Show { name } => {
                let found = tenants.get_tenant(GetTenantRequest { name }).await;
                let found = found.map_err(refused)?.into_inner();
                if remote.json {
                    json::print_line(&found)?;
                } else {
                    show(found.tenant, &found.uses, false)?;
                    if found.left > 0 {
                        print(&format!("stored values left: {}\n", found.left));
                    }
                }
            }
            Self::Set { name, values } => {
                let request = UpdateTenantRequest {
                    name,
                    weight: values.weight.unwrap_or_default(),
                    limits: values.limits(),
                };
                let updated = tenants.update_tenant(request).await;
                let updated = updated.map_err(refused)?.into_inner();
                if remote.json {
                    json::print_line(&updated)?;
                } else {
                    show(updated.tenant, &[], false)?;
                    for over in &updated.over {
                        let (quantity, amount) = (name_of(over.quantity), over.used);
                        print(&format!("{quantity} is over its limit by {amount}\n"));
                    }
                }
            }
            Self::Close {
                name,
                grace_seconds: seconds,
            } => {
                let grace = prost_types::Duration { seconds, nanos: 0 };
                let request = CloseTenantRequest {
                    name,
                    grace: Some(grace),
                };
                let closed = tenants.close_tenant(request).await.map_err(refused)?;
                show(closed.into_inner().tenant, &[], remote.json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

const HEAD: [&str; 4] = ["TENANT", "STATE", "WEIGHT", "LIMITS"];

fn row(tenant: &Tenant) -> [String; 4] {
    let limits: Vec<String> = tenant.limits.iter().map(limit_in_words).collect();
    [
        tenant.name.clone(),
        state(tenant),
        tenant.weight.to_string(),
        limits.join(", "),
    ]
}

fn state(tenant: &Tenant) -> String {
    let name = tenant.state().as_str_name();
    let name = name.strip_prefix("TENANT_STATE_").unwrap_or(name);
    match tenant.state() {
        TenantState::Unspecified => String::new(),
        _ => name.to_lowercase(),
    }
}

/// Returns the name of a quantity as the options of the commands have it.
fn name_of(quantity: i32) -> String {
    let quantity = TenantQuantity::try_from(quantity).unwrap_or_default();
    quantity.name().replace('_', "-")
}

fn limit_in_words(limit: &TenantLimit) -> String {
    let soft = match limit.soft {
        0 => String::new(),
        soft => format!(" (warns at {soft})"),
    };
    format!("{} {}{soft}", name_of(limit.quantity), limit.hard)
}

fn show(tenant: Option<Tenant>, uses: &[TenantUsage], as_json: bool) -> anyhow::Result<()> {
    let tenant = tenant.context("the answer has no tenant")?;
    if as_json {
        return json::print_line(&tenant);
    }
    let limits: Vec<String> = tenant.limits.iter().map(limit_in_words).collect();
    let uses = uses
        .iter()
        .map(|usage| format!("{} {}", name_of(usage.quantity), usage.used));
    let uses: Vec<String> = uses.collect();
    let time = |time: &Option<prost_types::Timestamp>| {
        time.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    print_fields(&[
        ("tenant", tenant.name.clone()),
        ("state", state(&tenant)),
        ("weight", tenant.weight.to_string()),
        ("limits", limits.join("\n")),
        ("in use", uses.join("\n")),
        ("created", time(&tenant.create_time)),
        ("closed", time(&tenant.close_time)),
        ("runs are cancelled", time(&tenant.cancel_time)),
    ]);
    Ok(())
}
