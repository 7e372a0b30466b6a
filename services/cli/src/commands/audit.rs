//! `tavern audit`: who changed what, and who was denied what.
//!
//! - [`Verify`]: whether the records are as they were written.

mod verify;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::{Args, Subcommand};
use contracts::tavern::registry::v1::audit_entry::Event;
use contracts::tavern::registry::v1::audit_service_client::AuditServiceClient;
use contracts::tavern::registry::v1::{
    AuditActor, AuditChangeEnded, AuditKind, AuditOutcome, AuditRecord, AuditSubject,
    ListAuditRecordsRequest,
};
use prost_types::Timestamp;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NoDuration, StrDeserializer};
use settings::DurationText;

use super::{Remote, json, list, name, print, refusal, words};

pub use verify::{Verify, show as show_report};

/// The records of a page.
const PAGE: i32 = 500;

/// The commands about the audit.
#[derive(Subcommand)]
pub enum Command {
    /// List records in the order of their time: who changed, created and revoked what, and who was denied what.
    List(Filter),
    /// Write records as one JSON object per line.
    Export {
        /// The records to write.
        #[command(flatten)]
        filter: Filter,
        /// The file, which must not exist; without it, standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// The records to list. All conditions must hold.
#[derive(Args)]
pub struct Filter {
    /// Only records of this time or later: `1h` or `7d` before now, or a time such as `2026-11-27T09:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Only records before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Only what this principal did, changes of it, and its denials; `tenant/name` for one of another tenant.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Only records of this kind.
    #[arg(long, value_parser = words::parser(AuditKind::as_str_name))]
    kind: Option<AuditKind>,
    /// Only records about this method, such as `CreateKey`.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
}

/// Reads a time, or a duration before now.
fn time(text: &str) -> Result<Timestamp, String> {
    let duration: StrDeserializer<'_, NoDuration> = text.into_deserializer();
    if let Ok(before) = DurationText::deserialize(duration) {
        let time = SystemTime::now().checked_sub(before);
        let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let since_epoch = time.and_then(since_epoch).unwrap_or(Duration::ZERO);
        return Ok(Timestamp {
            seconds: i64::try_from(since_epoch.as_secs()).unwrap_or_default(),
            nanos: i32::try_from(since_epoch.subsec_nanos()).unwrap_or_default(),
        });
    }
    let time = text.parse::<Timestamp>();
    time.map_err(|_| {
        "give a duration such as 1h, or a time such as 2026-11-27T09:00:00Z".to_owned()
    })
}

impl Filter {
    fn request(&self, page_token: String) -> ListAuditRecordsRequest {
        ListAuditRecordsRequest {
            page_size: PAGE,
            page_token,
            since: self.since,
            until: self.until,
            principal: self.principal.clone().unwrap_or_default(),
            kind: self.kind.unwrap_or_default().into(),
            method: self.method.clone().unwrap_or_default(),
        }
    }
}

impl Command {
    /// Executes the command.
    ///
    /// # Errors
    /// The reason why the command failed.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let executed = match self {
            Self::List(filter) => list(remote, &filter).await,
            Self::Export { filter, out } => export(remote, &filter, out).await,
        };
        remote.located(executed)?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(remote: &Remote, filter: &Filter) -> anyhow::Result<()> {
    let mut client = AuditServiceClient::new(remote.connect()?);
    list::print_all(remote.json, HEAD, row, async |page_token| {
        let page = client
            .list_audit_records(filter.request(page_token))
            .await?;
        let page = page.into_inner();
        Ok((page.records, page.next_page_token))
    })
    .await
}

async fn export(remote: &Remote, filter: &Filter, out: Option<PathBuf>) -> anyhow::Result<()> {
    let mut client = AuditServiceClient::new(remote.connect()?);
    let mut file = match &out {
        Some(path) => {
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true).mode(0o600);
            let made = options.open(path);
            Some(made.with_context(|| format!("cannot make {}", path.display()))?)
        }
        None => None,
    };
    let mut token = String::new();
    loop {
        let page = client.list_audit_records(filter.request(token)).await;
        let page = page.map_err(|status| refusal(&status))?.into_inner();
        for record in &page.records {
            let line = json::line(record)?;
            match &mut file {
                Some(file) => file.write_all(line.as_bytes())?,
                None => print(&line),
            }
        }
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    if let Some(file) = file {
        file.sync_all()?;
    }
    Ok(())
}

const HEAD: [&str; 6] = ["TIME", "KIND", "PRINCIPAL", "METHOD", "ABOUT", "OUTCOME"];

fn row(record: &AuditRecord) -> [String; 6] {
    let time = record.time.as_ref().map(ToString::to_string);
    let event = record.entry.as_ref().and_then(|entry| entry.event.as_ref());
    let [kind, principal, method, about, outcome] = match event {
        Some(Event::DayOpened(_)) => ["day opened", "", "", "", ""].map(str::to_owned),
        Some(Event::DayClosed(_)) => ["day closed", "", "", "", ""].map(str::to_owned),
        Some(Event::ChangeIntended(intended)) => [
            "intended".to_owned(),
            principal(intended.actor.as_ref()),
            last_part(&intended.method),
            about(intended.subject.as_ref()),
            String::new(),
        ],
        Some(Event::ChangeEnded(ended)) => [
            "ended".to_owned(),
            principal(ended.actor.as_ref()),
            last_part(&ended.method),
            about(ended.subject.as_ref()),
            outcome_in_words(ended),
        ],
        Some(Event::Denied(denied)) => [
            "denied".to_owned(),
            denied.principal.clone(),
            last_part(&denied.method),
            denied.tool_id.clone(),
            format!("{} × {}", denied.count, denied.reason),
        ],
        None => ["", "", "", "", ""].map(str::to_owned),
    };
    [
        time.unwrap_or_default(),
        kind,
        principal,
        method,
        about,
        outcome,
    ]
}

fn principal(actor: Option<&AuditActor>) -> String {
    match actor.map(|actor| actor.principal.as_str()) {
        None | Some("") => "(data directory)".to_owned(),
        Some(principal) => principal.to_owned(),
    }
}

fn last_part(method: &str) -> String {
    method.rsplit('/').next().unwrap_or_default().to_owned()
}

fn about(subject: Option<&AuditSubject>) -> String {
    let Some(subject) = subject else {
        return String::new();
    };
    let mut words = vec![subject.kind.clone()];
    words.extend(subject.names.iter().cloned());
    words.extend(subject.key_ids.iter().map(|id| format!("key:{id}")));
    match subject.tenant.as_str() {
        "default" | "system" => {}
        tenant => words.push(format!("of {tenant}")),
    }
    words.join(" ")
}

fn outcome_in_words(ended: &AuditChangeEnded) -> String {
    let outcome = name(ended.outcome().as_str_name(), "AUDIT_OUTCOME_");
    let mut words = match ended.outcome() {
        AuditOutcome::Refused | AuditOutcome::Failed if !ended.code.is_empty() => {
            format!("{outcome} ({})", ended.code)
        }
        _ => outcome,
    };
    if ended.found_at_start {
        words.push_str(", found at the next start");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_or_before_now() {
        let absolute = time("2026-11-27T09:00:00Z").map(|time| time.seconds);
        assert_eq!(absolute, Ok(1_795_770_000));
        let (hour, day) = (time("1h").unwrap(), time("1d").unwrap());
        assert!((hour.seconds - day.seconds - 23 * 3_600).abs() <= 1);
        assert!(time("yesterday").is_err());
    }
}
