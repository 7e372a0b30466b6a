//! `tavern audit verify`: whether the records are as they were written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use contracts::tavern::registry::v1::audit_service_client::AuditServiceClient;
use contracts::tavern::registry::v1::{
    AuditFaultKind, AuditHead, VerifyAuditRequest, VerifyAuditResponse,
};

use super::super::{Remote, json, name, print, refusal};

/// The word before a head in a log.
const WORD: &str = "audit-head=";

/// The most heads of a request.
const HEADS: usize = 10_000;

/// Recompute the chain of all records. The exit code is 0 if it is whole, 1 if a record is not as it was written, and
/// 2 if the file cannot be read.
#[derive(Args)]
pub struct Verify {
    /// A file with heads that were logged earlier, such as the log of the registry: it finds a chain that was cut or
    /// written anew.
    #[arg(long, value_name = "FILE")]
    anchor: Option<PathBuf>,
}

impl Verify {
    /// Has the registry verify its records.
    ///
    /// # Errors
    /// The registry does not answer, or the file has no heads.
    pub async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let anchors = self.anchors()?;
        let verified = remote.located(verify(remote, &anchors).await)?;
        show(&verified, remote.json)
    }

    /// Returns the heads of the file.
    ///
    /// # Errors
    /// It cannot be read, or has none.
    pub fn anchors(&self) -> anyhow::Result<Vec<AuditHead>> {
        let read = |path: &Path| {
            let text = std::fs::read(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let heads = heads(&String::from_utf8_lossy(&text));
            anyhow::ensure!(
                !heads.is_empty(),
                "{} has no heads; they are the words `{WORD}…` in the log of the registry",
                path.display()
            );
            Ok(heads)
        };
        self.anchor.as_deref().map_or_else(|| Ok(Vec::new()), read)
    }
}

async fn verify(remote: &Remote, anchors: &[AuditHead]) -> anyhow::Result<VerifyAuditResponse> {
    let mut client = AuditServiceClient::new(remote.connect()?);
    let mut sum: Option<VerifyAuditResponse> = None;
    // Without heads there is one request too.
    for some in anchors
        .chunks(HEADS)
        .chain(anchors.is_empty().then_some(anchors))
    {
        let request = VerifyAuditRequest {
            anchors: some.to_vec(),
        };
        let verified = client.verify_audit(request).await;
        let mut verified = verified.map_err(|status| refusal(&status))?.into_inner();
        if let Some(earlier) = sum {
            verified.anchors += earlier.anchors;
            verified.anchors_not_kept += earlier.anchors_not_kept;
        }
        let is_broken = verified.fault.is_some();
        sum = Some(verified);
        if is_broken {
            break;
        }
    }
    sum.context("nothing was verified")
}

/// Returns the heads in a text, each once.
fn heads(text: &str) -> Vec<AuditHead> {
    let mut heads: Vec<AuditHead> = text.split(WORD).skip(1).filter_map(head).collect();
    heads.dedup();
    heads
}

fn head(text: &str) -> Option<AuditHead> {
    let end = text
        .find(|character: char| !character.is_ascii_alphanumeric() && !"-:".contains(character));
    let mut parts = text[..end.unwrap_or(text.len())].split(':');
    let (day, sequence, hash) = (parts.next()?, parts.next()?, parts.next()?);
    let is_whole = day.len() == 10 && hash.len() == 64 && parts.next().is_none();
    Some(AuditHead {
        day: day.to_owned(),
        sequence: sequence.parse().ok()?,
        hash: hash.to_owned(),
    })
    .filter(|_| is_whole)
}

/// Prints the result, and returns the exit code for it.
///
/// # Errors
/// It cannot be printed.
pub fn show(verified: &VerifyAuditResponse, as_json: bool) -> anyhow::Result<ExitCode> {
    let code = match verified
        .fault
        .as_ref()
        .map(contracts::tavern::registry::v1::AuditFault::kind)
    {
        None => ExitCode::SUCCESS,
        Some(AuditFaultKind::Unreadable) => ExitCode::from(2),
        Some(_) => ExitCode::FAILURE,
    };
    if as_json {
        json::print_line(verified)?;
        return Ok(code);
    }
    let (days, records) = (verified.days, verified.records);
    match &verified.fault {
        Some(fault) => {
            let kind = name(fault.kind().as_str_name(), "AUDIT_FAULT_KIND_").replace('_', " ");
            let (day, sequence, text) = (&fault.day, fault.sequence, &fault.text);
            let place = match sequence {
                0 => day.clone(),
                sequence => format!("{day}, sequence {sequence}"),
            };
            print(&format!("{kind}: {place}: {text}\n"));
        }
        None => print(&format!(
            "the chain is whole: {records} records, days with records: {days}\n"
        )),
    }
    if let Some(head) = verified.head.as_ref().filter(|_| verified.fault.is_none()) {
        let AuditHead {
            day,
            sequence,
            hash,
        } = head;
        print(&format!("{WORD}{day}:{sequence}:{hash}\n"));
    }
    if verified.anchors + verified.anchors_not_kept > 0 {
        let (agree, gone) = (verified.anchors, verified.anchors_not_kept);
        print(&format!(
            "{agree} logged heads agree; the days of {gone} others are not kept\n"
        ));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_found_in_logs_of_each_form() {
        let hash = "ab".repeat(32);
        let text = format!(
            "2026-11-27T09:00:00Z  INFO tavern::audit::checkpoint: audit-head=2026-11-27:12:{hash}\n\
             {{\"message\":\"audit-head=2026-11-27:13:{hash}\",\"x\":1}}\n\
             audit-head=2026-11-27:nothing\n\
             audit-head=2026-11-28:1:{hash}"
        );
        let found = heads(&text);
        let places: Vec<(&str, u64)> = found
            .iter()
            .map(|head| (head.day.as_str(), head.sequence))
            .collect();
        assert_eq!(
            places,
            [("2026-11-27", 12), ("2026-11-27", 13), ("2026-11-28", 1)]
        );
        assert!(found.iter().all(|head| head.hash == hash));
    }
}
