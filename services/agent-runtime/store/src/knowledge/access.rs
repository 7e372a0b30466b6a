//! The access of operators and agents to knowledge bases.

use std::sync::Arc;

use agent_domain::{
    knowledge::{KnowledgeReference, WriteAccess},
    profile::Profile,
};
use contracts::tavern::common::v1::ErrorReason;
use core_types::Tenant;
use grpc_kit::Failure;
use tonic::Code;

use super::{Knowledge, missing};

/// A reader and writer of knowledge bases.
#[derive(Clone, Debug)]
pub enum Reader {
    /// An operator of a tenant, with full access to the knowledge bases of the tenant.
    Operator(Tenant),
    /// An agent that acts for a tenant, with the access that its profile states.
    Agent(Tenant, Arc<Profile>),
}

/// A knowledge base that a query searches.
pub(super) struct ReadableBase {
    /// The tenant to which it belongs.
    pub(super) home: Tenant,
    /// The id.
    pub(super) id: String,
    /// The reader's name for it.
    pub(super) name: String,
}

impl Reader {
    /// Returns the tenant for which it reads and writes.
    pub(super) fn tenant(&self) -> Tenant {
        match self {
            Self::Operator(tenant) | Self::Agent(tenant, _) => *tenant,
        }
    }

    /// Returns the author that is recorded with its entries.
    pub fn author(&self) -> &str {
        match self {
            Self::Operator(_) => "",
            Self::Agent(_, profile) => profile.id.as_str(),
        }
    }

    /// Returns the knowledge bases that a query may search, each by its id and the reader's name for it. Those of a
    /// profile that are not known are left out.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND or KNOWLEDGE_DENIED.
    pub fn may_read(
        &self,
        kb: &str,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, String)>, Failure> {
        let named = |known: &KnowledgeReference| (known.source_id.clone(), known.alias.clone());
        match self {
            Self::Operator(_) => match is_known(kb) {
                true => Ok(vec![(kb.to_owned(), kb.to_owned())]),
                false => Err(missing(kb, &[])),
            },
            Self::Agent(_, profile) if kb.is_empty() => {
                let readable = profile.knowledge.iter().filter(|known| known.can_read);
                let readable = readable.filter(|known| is_known(&known.source_id));
                Ok(readable.map(named).collect())
            }
            Self::Agent(_, profile) => {
                let known = reference(profile, kb, is_known)?;
                match known.can_read {
                    true => Ok(vec![named(known)]),
                    false => Err(denied(kb, &format!("this agent may not read `{kb}`"))),
                }
            }
        }
    }

    /// Returns the id of the knowledge base of a write, and whether agents read the written entry.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND or KNOWLEDGE_DENIED.
    pub fn may_write(
        &self,
        kb: &str,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(String, bool), Failure> {
        match self {
            Self::Operator(_) if is_known(kb) => Ok((kb.to_owned(), true)),
            Self::Operator(_) => Err(missing(kb, &[])),
            Self::Agent(_, profile) => {
                let known = reference(profile, kb, is_known)?;
                match known.write {
                    WriteAccess::Own => Ok((known.source_id.clone(), true)),
                    WriteAccess::Suggestions => Ok((known.source_id.clone(), false)),
                    WriteAccess::None => {
                        let message = format!("this agent may not write into `{kb}`");
                        Err(denied(kb, &message))
                    }
                }
            }
        }
    }

    /// Returns the knowledge bases that a query searches, with their tenants.
    pub(super) fn readable(
        &self,
        kb: &str,
        knowledge: &Knowledge,
    ) -> Result<Vec<ReadableBase>, Failure> {
        let tenant = self.tenant();
        let readable = self.may_read(kb, |id| knowledge.is_known(tenant, id))?;
        let readable = readable.into_iter().filter_map(|(id, name)| {
            let home = knowledge.home(tenant, &id)?;
            Some(ReadableBase { home, id, name })
        });
        Ok(readable.collect())
    }

    /// Returns the knowledge base of a write, and whether agents read the written entry. A shared one is written by
    /// its own tenant only.
    pub(super) fn writable(
        &self,
        kb: &str,
        knowledge: &Knowledge,
    ) -> Result<(String, bool), Failure> {
        let tenant = self.tenant();
        let (id, is_enabled) = self.may_write(kb, |id| knowledge.is_known(tenant, id))?;
        match knowledge.home(tenant, &id) {
            Some(home) if home != tenant => Err(shared(kb)),
            _ => Ok((id, is_enabled)),
        }
    }

    /// Refuses an agent's write to an entry that does not exist, or has another author.
    ///
    /// # Errors
    /// KNOWLEDGE_BASE_NOT_FOUND or KNOWLEDGE_DENIED.
    pub fn check_replaces(
        &self,
        kb: &str,
        caiu_id: &str,
        author_before: Option<&str>,
    ) -> Result<(), Failure> {
        match (self, author_before) {
            (Self::Operator(_), _) => Ok(()),
            (Self::Agent(..), None) => Err(missing(caiu_id, &[])),
            (Self::Agent(..), Some(author)) if author == self.author() => Ok(()),
            (Self::Agent(..), Some(_)) => {
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
    is_known: impl Fn(&str) -> bool,
) -> Result<&'p KnowledgeReference, Failure> {
    let mut all = profile.knowledge.iter();
    let known = all.find(|known| known.alias == kb || known.source_id == kb);
    let known = known.filter(|known| is_known(&known.source_id));
    known.ok_or_else(|| {
        let aliases = profile.knowledge.iter().map(|known| known.alias.as_str());
        missing(kb, &aliases.collect::<Vec<_>>())
    })
}

/// Refuses a change of a knowledge base of [`Tenant::SYSTEM`] by another tenant.
pub(super) fn shared(kb: &str) -> Failure {
    let message = format!(
        "`{kb}` belongs to the tenant `system`, which only its principals change; put a knowledge base of your own \
         under the id"
    );
    denied(kb, &message)
}

/// Refuses an act on a knowledge base.
pub fn denied(kb: &str, message: &str) -> Failure {
    let reason = ErrorReason::KnowledgeDenied;
    Failure::new(Code::PermissionDenied, reason, message).metadata("kb", kb)
}
