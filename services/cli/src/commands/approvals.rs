//! `tavern approvals`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use contracts::tavern::registry::v1::approval_service_client::ApprovalServiceClient;
use contracts::tavern::registry::v1::watch_approvals_response::Record;
use contracts::tavern::registry::v1::{
    Approval, ApprovalState, ApprovalVerdict, DecideApprovalRequest, GetApprovalRequest,
    ListApprovalsRequest, WatchApprovalsRequest,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tonic::{Code, Status};

use super::{Remote, documents, json as lines, list, print, print_table, refusal};
use crate::credential::Key;
use crate::timeline::name;

/// The commands about approvals.
#[derive(Subcommand)]
pub enum Command {
    /// List pending approvals, or all of them.
    List {
        /// Also list decided ones.
        #[arg(long)]
        all: bool,
    },
    /// Show an approval with all of its arguments.
    Show {
        /// The id of the approval.
        approval_id: String,
    },
    /// Show pending approvals, and every change until Ctrl-C.
    Watch,
    /// Approve a call.
    Approve {
        /// The decision.
        #[command(flatten)]
        decision: Decision,
        /// Replacement arguments: a JSON object.
        #[arg(long)]
        arguments: Option<String>,
        /// Approve the same call for the rest of its conversation.
        #[arg(long)]
        remember: bool,
    },
    /// Reject a call.
    Reject {
        /// The decision.
        #[command(flatten)]
        decision: Decision,
    },
    /// Make a key for an approver, and print the entry for the approvals file.
    Key {
        /// The name of the approver.
        name: String,
        /// A role of the approver; may be given several times.
        #[arg(long)]
        role: Vec<String>,
    },
}

/// The arguments of every decision.
#[derive(Args)]
pub struct Decision {
    /// The id of the approval.
    approval_id: String,
    /// The reason, which the model reads.
    #[arg(long)]
    reason: Option<String>,
    /// The key of an approver of the approvals file, in place of the caller's key.
    #[arg(long, env = "TAVERN_APPROVER_KEY", hide_env_values = true)]
    key: Option<String>,
}

pub(crate) type Client = ApprovalServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut client = Client::new(remote.connect()?);
        match self {
            Self::List { all } => list(&mut client, all, remote.json).await?,
            Self::Show { approval_id } => {
                let approval = get(&mut client, approval_id).await?;
                show(&approval, remote.json)?;
            }
            Self::Watch => watch(&mut client, remote.json).await?,
            Self::Approve {
                decision,
                arguments,
                remember,
            } => {
                let decided = DecideApprovalRequest {
                    verdict: ApprovalVerdict::Approve.into(),
                    edited_arguments_json: arguments.unwrap_or_default(),
                    remember,
                    ..DecideApprovalRequest::default()
                };
                decide(remote, decision, decided).await?;
            }
            Self::Reject { decision } => {
                let decided = DecideApprovalRequest {
                    verdict: ApprovalVerdict::Reject.into(),
                    ..DecideApprovalRequest::default()
                };
                decide(remote, decision, decided).await?;
            }
            Self::Key { name, role } => print_key(&name, &role)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(client: &mut Client, all: bool, as_json: bool) -> anyhow::Result<()> {
    let head = ["APPROVAL", "STATE", "TOOL", "WHY", "ARGUMENTS"];
    let state = match all {
        true => ApprovalState::Unspecified,
        false => ApprovalState::Pending,
    };
    list::print_all(as_json, head, row, async |page_token| {
        let request = ListApprovalsRequest {
            state: state.into(),
            page_token,
            ..ListApprovalsRequest::default()
        };
        let page = client.list_approvals(request).await?.into_inner();
        Ok((page.approvals, page.next_page_token))
    })
    .await
}

fn row(approval: &Approval) -> [String; 5] {
    let rules = approval
        .reasons
        .iter()
        .map(|reason| reason.rule_id.as_str());
    [
        approval.approval_id.clone(),
        state_of(approval),
        approval.tool_id.clone(),
        rules.collect::<Vec<_>>().join(", "),
        approval.arguments_json.clone(),
    ]
}

fn state_of(approval: &Approval) -> String {
    name(approval.state().as_str_name(), "APPROVAL_STATE_")
}

async fn get(client: &mut Client, approval_id: String) -> anyhow::Result<Approval> {
    let found = client
        .get_approval(GetApprovalRequest { approval_id })
        .await;
    let found = found.map_err(|status| refusal(&status))?.into_inner();
    found.approval.context("the answer has no approval")
}

fn show(approval: &Approval, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return lines::print_line(approval);
    }
    let mut lines = vec![
        format!("{}   {}", approval.approval_id, state_of(approval)),
        format!("tool        {}", approval.tool_id),
        format!("arguments   {}", approval.arguments_json),
    ];
    for reason in &approval.reasons {
        lines.push(format!("asked by    {} {}", reason.rule_id, reason.text));
    }
    let role = match approval.role.as_str() {
        "" => "any approver",
        role => role,
    };
    lines.push(format!("needs       {} of: {role}", approval.needed));
    for consent in &approval.consents {
        let verdict = name(consent.verdict().as_str_name(), "APPROVAL_VERDICT_");
        lines.push(format!(
            "{:<11} {verdict} {}",
            consent.approver, consent.reason
        ));
    }
    lines.push(format!("digest      {}\n", approval.arguments_digest));
    print(&lines.join("\n"));
    Ok(())
}

async fn watch(client: &mut Client, as_json: bool) -> anyhow::Result<()> {
    let stream = client
        .watch_approvals(WatchApprovalsRequest::default())
        .await;
    let mut stream = stream.map_err(|status| refusal(&status))?.into_inner();
    while let Some(next) = stream.message().await.map_err(|status| refusal(&status))? {
        match next.record {
            Some(Record::Approval(approval)) if as_json => lines::print_line(&approval)?,
            Some(Record::Approval(approval)) => {
                print_table(&[row(&approval).to_vec()], None);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Decides with the approver's key, or else with the caller's.
async fn decide(
    remote: &Remote,
    decision: Decision,
    decided: DecideApprovalRequest,
) -> anyhow::Result<()> {
    let request = DecideApprovalRequest {
        approval_id: decision.approval_id,
        reason: decision.reason.unwrap_or_default(),
        ..decided
    };
    let Some(key) = decision.key else {
        let mut client = Client::new(remote.connect()?);
        return show(&decide_present(&mut client, request).await?, remote.json);
    };
    let key = Key::new(&key).context("--key")?;
    let mut client = Client::new(remote.connect_with(Some(&key))?);
    let decided = decide_present(&mut client, request).await;
    let decided = decided.map_err(|error| match error.downcast_ref::<Status>() {
        // The caller's key, which the error would speak of, was not sent.
        Some(status) if status.code() == Code::Unauthenticated => anyhow!(
            "the key that `--key` or TAVERN_APPROVER_KEY gives is not accepted; `--key-file` gives the \
             caller's in place of it: {}",
            status.message()
        ),
        _ => error,
    });
    show(&decided?, remote.json)
}

/// Decides about the present arguments of the approval, as the caller of `client`.
pub(crate) async fn decide_present(
    client: &mut Client,
    request: DecideApprovalRequest,
) -> anyhow::Result<Approval> {
    let present = get(client, request.approval_id.clone()).await?;
    let request = DecideApprovalRequest {
        arguments_digest: present.arguments_digest,
        ..request
    };
    let decided = client.decide_approval(request).await;
    let decided = decided.map_err(|status| refusal(&status))?.into_inner();
    decided.approval.context("the answer has no approval")
}

/// Returns a key that cannot be guessed: 244 random bits.
pub fn new_key() -> String {
    let random = || uuid::Uuid::new_v4().simple();
    format!("{}{}", random(), random())
}

fn entry(name: &str, roles: &[String], key: &str) -> Value {
    json!({"name": name, "roles": roles, "key_sha256": hex::encode(Sha256::digest(key))})
}

/// Returns the approvals file, with one more approver who has every role; an empty path stands for
/// a file without rules.
///
/// # Errors
/// A file that cannot be read as JSON.
pub fn with_approver(path: &Path, name: &str, key: &str) -> anyhow::Result<String> {
    let mut file = match path.as_os_str().is_empty() {
        true => json!({}),
        false => serde_json::from_str(&documents::read(path)?)?,
    };
    let rules = file["rules"].as_array().into_iter().flatten();
    let roles = rules.filter_map(|rule| rule["approvers"]["role"].as_str());
    let approver = entry(name, &roles.map(str::to_owned).collect::<Vec<_>>(), key);
    match file["approvers"].as_array_mut() {
        Some(approvers) => approvers.push(approver),
        None => file["approvers"] = json!([approver]),
    }
    Ok(file.to_string())
}

fn print_key(name: &str, roles: &[String]) -> anyhow::Result<()> {
    let key = new_key();
    let entry = entry(name, roles, &key);
    print(&format!(
        "The key, for {name} alone (it is not stored):\n{key}\n\nThe entry for `approvers` in the approvals \
         file:\n{}\n",
        serde_json::to_string_pretty(&entry)?
    ));
    Ok(())
}
