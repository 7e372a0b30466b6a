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
use crate::store::EntryRow;

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
    pub(super) fn author(&self) -> &str {
        match self {
            Self::Operator(_) => "",
            Self::Agent(_, profile) => profile.id.as_str(),
        }
    }

    /// Returns the knowledge bases that a query searches; those of a profile that do not exist are left out.
    pub(super) fn readable(
        &self,
        kb: &str,
        knowledge: &Knowledge,
    ) -> Result<Vec<ReadableBase>, Failure> {
        let tenant = self.tenant();
        let base = |id: &str, name: &str| {
            Some(ReadableBase {
                home: knowledge.home(tenant, id)?,
                id: id.to_owned(),
                name: name.to_owned(),
            })
        };
        let named = |known: &KnowledgeReference| base(&known.source_id, &known.alias);
        match self {
            Self::Operator(_) => match base(kb, kb) {
                Some(known) => Ok(vec![known]),
                None => Err(missing(kb, &[])),
            },
            Self::Agent(_, profile) if kb.is_empty() => {
                let readable = profile.knowledge.iter().filter(|known| known.can_read);
                Ok(readable.filter_map(named).collect())
            }
            Self::Agent(_, profile) => {
                let known = reference(profile, kb, knowledge, tenant)?;
                match known.can_read {
                    true => Ok(named(known).into_iter().collect()),
                    false => Err(denied(kb, &format!("this agent may not read `{kb}`"))),
                }
            }
        }
    }

    /// Returns the knowledge base of a write, and whether agents read the written entry. A shared one is written by
    /// its own tenant only.
    pub(super) fn writable(
        &self,
        kb: &str,
        knowledge: &Knowledge,
    ) -> Result<(String, bool), Failure> {
        let tenant = self.tenant();
        let (id, is_enabled) = match self {
            Self::Operator(_) if knowledge.is_known(tenant, kb) => (kb, true),
            Self::Operator(_) => return Err(missing(kb, &[])),
            Self::Agent(_, profile) => {
                let known = reference(profile, kb, knowledge, tenant)?;
                match known.write {
                    WriteAccess::Own => (known.source_id.as_str(), true),
                    WriteAccess::Suggestions => (known.source_id.as_str(), false),
                    WriteAccess::None => {
                        let message = format!("this agent may not write into `{kb}`");
                        return Err(denied(kb, &message));
                    }
                }
            }
        };
        match knowledge.home(tenant, id) {
            Some(home) if home != tenant => Err(shared(kb)),
            _ => Ok((id.to_owned(), is_enabled)),
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
            (Self::Operator(_), _) => Ok(()),
            (Self::Agent(..), None) => Err(missing(caiu_id, &[])),
            (Self::Agent(..), Some(row)) if row.author == self.author() => Ok(()),
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
    knowledge: &Knowledge,
    tenant: Tenant,
) -> Result<&'p KnowledgeReference, Failure> {
    let mut all = profile.knowledge.iter();
    let known = all.find(|known| known.alias == kb || known.source_id == kb);
    let known = known.filter(|known| knowledge.is_known(tenant, &known.source_id));
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

fn denied(kb: &str, message: &str) -> Failure {
    let reason = ErrorReason::KnowledgeDenied;
    Failure::new(Code::PermissionDenied, reason, message).metadata("kb", kb)
}
