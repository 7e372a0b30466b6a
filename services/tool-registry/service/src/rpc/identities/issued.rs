//! Issued principals, and lists of all.

use std::sync::Arc;

use contracts::tavern::registry::v1::{IssuedPrincipal, Principal};
use core_types::{Principal as Name, Tenant};
use run_events::timestamp_to_proto;
use tool_domain::identity::Account;

use super::{keys_to_proto, principal_to_proto};
use crate::identities::{Identities, Issued};

/// A principal in a list.
pub(super) enum Listed {
    /// One with keys.
    Keyed(Arc<Account>),
    /// One whom tokens prove.
    Issued(Issued),
}

impl Listed {
    pub(super) fn name(&self) -> &Name {
        match self {
            Self::Keyed(account) => &account.name,
            Self::Issued(issued) => &issued.name,
        }
    }

    pub(super) fn to_proto(&self, identities: &Identities) -> Principal {
        let now = identities.now();
        match self {
            Self::Keyed(account) => Principal {
                keys: keys_to_proto(account.keys.iter().filter(|key| key.is_kept(now))),
                ..principal_to_proto(account)
            },
            Self::Issued(issued) => to_proto(identities, issued.clone()),
        }
    }
}

/// Returns every principal of a tenant in the order of the names.
pub(super) fn listed(identities: &Identities, tenant: Tenant) -> Vec<Listed> {
    let keyed = identities.list(tenant).into_iter().map(Listed::Keyed);
    let issued = identities.list_issued(tenant).into_iter();
    let mut listed: Vec<Listed> = keyed.chain(issued.map(Listed::Issued)).collect();
    listed.sort_by(|one, other| one.name().as_str().cmp(other.name().as_str()));
    listed
}

/// Returns an issued principal as a message.
pub(super) fn to_proto(identities: &Identities, issued: Issued) -> Principal {
    let Issued {
        name,
        last,
        blocked,
    } = issued;
    let subject = name.issuer_and_subject();
    let tokens = IssuedPrincipal {
        issuer: identities.iss_of(&name).unwrap_or_default().to_owned(),
        subject: subject.map_or(String::new(), |(_, subject)| subject.into_owned()),
        expire_time: last.as_ref().map(|last| timestamp_to_proto(last.ends)),
        block_time: blocked.map(timestamp_to_proto),
    };
    let principal = match &last {
        Some(last) => principal_to_proto(&last.account),
        None => Principal {
            name: name.name().to_owned(),
            tenant: name.tenant().to_string(),
            ..Principal::default()
        },
    };
    Principal {
        issued: Some(tokens),
        ..principal
    }
}
