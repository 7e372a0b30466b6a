//! The access of operators and agents to knowledge bases.

use std::sync::Arc;

use agent_domain::{
    knowledge::{KnowledgeReference, WriteAccess},
    profile::Profile,
};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::Failure;
use tonic::Code;

use super::{Knowledge, missing};
use crate::store::EntryRow;

/// A reader and writer of knowledge bases.
#[derive(Clone, Debug)]
pub enum Reader {
    /// An operator, with full access.
    Operator,
    /// An agent, with the access that its profile states.
    Agent(Arc<Profile>),
}

impl Reader {
    /// Returns the author that is recorded with its entries.
    pub(super) fn author(&self) -> &str {
        match self {
            Self::Operator => "",
            Self::Agent(profile) => profile.id.as_str(),
        }
    }

    /// Returns the knowledge bases that a query searches, by id, each with the reader's name for
    /// it.
    pub(super) fn readable(
        &self,
        kb: &str,
        knowledge: &Knowledge,
    ) -> Result<Vec<(String, String)>, Failure> {
        let pair = |known: &KnowledgeReference| (known.source_id.clone(), known.alias.clone());
        match self {
            Self::Operator if knowledge.is_known(kb) => Ok(vec![(kb.to_owned(), kb.to_owned())]),
            Self::Operator => Err(missing(kb, &[])),
            Self::Agent(profile) if kb.is_empty() => {
                let readable = profile.knowledge.iter().filter(|known| known.can_read);
                Ok(readable.map(pair).collect())
            }
            Self::Agent(profile) => {
                let known = reference(profile, kb, knowledge)?;
                match known.can_read {
                    true => Ok(vec![pair(known)]),
                    false => Err(denied(kb, &format!("this agent may not read `{kb}`"))),
                }
            }
        }
    }

    /// Returns the knowledge base of a write, and whether agents read the written entry.
    pub(super) fn writable(
        &self,
        kb: &str,
        knowledge: &Knowledge,
    ) -> Result<(String, bool), Failure> {
        match self {
            Self::Operator if knowledge.is_known(kb) => Ok((kb.to_owned(), true)),
            Self::Operator => Err(missing(kb, &[])),
            Self::Agent(profile) => {
                let known = reference(profile, kb, knowledge)?;
                match known.write {
                    WriteAccess::Own => Ok((known.source_id.clone(), true)),
                    WriteAccess::Suggestions => Ok((known.source_id.clone(), false)),
                    WriteAccess::None => {
                        Err(denied(kb, &format!("this agent may not write into `{kb}`")))
                    }
                }
            }
        }
    }

    /// Refuses an agent's write to an entry of another author.
    pub(super) fn check_replaces(
        &self,
        kb: &str,
        caiu_id: &str,
        before: Option<&EntryRow>,
    ) -> Result<(), Failure> {
        match (self, before) {
            (Self::Operator, _) => Ok(()),
            (Self::Agent(_), None) => Err(missing(caiu_id, &[])),
            (Self::Agent(_), Some(row)) if row.author == self.author() => Ok(()),
            (Self::Agent(_), Some(_)) => {
                let message = format!(
                    "`{caiu_id}` was not written by this agent; leave the id out to write a new entry"
                );
                Err(denied(kb, &message))
            }
        }
    }
}

fn reference<'p>(
    profile: &'p Profile,
    kb: &str,
    knowledge: &Knowledge,
) -> Result<&'p KnowledgeReference, Failure> {
    let mut all = profile.knowledge.iter();
    let known = all.find(|known| known.alias == kb || known.source_id == kb);
    let known = known.filter(|known| knowledge.is_known(&known.source_id));
    known.ok_or_else(|| {
        let aliases = profile.knowledge.iter().map(|known| known.alias.as_str());
        missing(kb, &aliases.collect::<Vec<_>>())
    })
}

fn denied(kb: &str, message: &str) -> Failure {
    let reason = ErrorReason::KnowledgeDenied;
    Failure::new(Code::PermissionDenied, reason, message).metadata("kb", kb)
}
