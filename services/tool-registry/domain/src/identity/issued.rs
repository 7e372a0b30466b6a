//! Issued principals: those whom tokens of issuers prove, with the rights of their last tokens.

use std::collections::HashMap;
use std::sync::Arc;

use core_types::{Principal, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

use super::accounts::{Account, Refusal};

/// The most issued principals of a tenant whose last tokens are kept, and the most that are blocked.
pub const MAX_ISSUED: usize = 10_000;

/// The most of all tenants, which are in memory.
pub const MAX_ISSUED_OF_ALL: usize = 100_000;

/// The rights that the last token of a principal gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastToken {
    /// The principal with these rights, and without keys.
    pub account: Arc<Account>,
    /// The `iss` of the token.
    pub iss: String,
    /// The time at which it was issued; the epoch if it does not say.
    pub issued: Timestamp,
    /// The time from which it proves no one.
    pub ends: Timestamp,
}

/// The rights that the claims of a token give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuedRights {
    pub(super) tenant: Tenant,
    pub(super) roles: Vec<String>,
    pub(super) groups: Vec<String>,
}

/// A principal that an administrator blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The principal.
    pub name: Principal,
    /// The time of the block.
    pub since: Timestamp,
}

/// Every issued principal that is known: by its last token, or by a block.
#[derive(Clone, Debug)]
pub struct IssuedPrincipals {
    last: HashMap<Principal, LastToken>,
    blocks: HashMap<Principal, Timestamp>,
    /// The numbers of last tokens by tenant.
    counts: HashMap<Tenant, usize>,
    /// The most last tokens, and blocks, of a tenant, and of all.
    bounds: [usize; 2],
}

/// The effect of a token on the kept ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whether it is the last token of its principal now.
    pub is_last: bool,
    /// The principals that are forgotten for it.
    pub forgotten: Vec<Principal>,
}

impl LastToken {
    /// Makes the rights of a token with an `iss`, a time of issue and an end.
    pub(super) fn new(
        name: Principal,
        rights: IssuedRights,
        (iss, issued, ends): (String, Timestamp, Timestamp),
        now: Timestamp,
    ) -> Self {
        let account = Account {
            roles: rights.roles,
            groups: rights.groups,
            ..Account::new(name, now)
        };
        Self {
            account: Arc::new(account),
            iss,
            issued,
            ends,
        }
    }

    fn age(&self) -> (Timestamp, Timestamp) {
        (self.issued, self.ends)
    }
}

impl Default for IssuedPrincipals {
    fn default() -> Self {
        Self::within([MAX_ISSUED, MAX_ISSUED_OF_ALL])
    }
}

impl IssuedPrincipals {
    fn within(bounds: [usize; 2]) -> Self {
        Self {
            last: HashMap::new(),
            blocks: HashMap::new(),
            counts: HashMap::new(),
            bounds,
        }
    }

    /// Takes last tokens and blocks as they were stored.
    pub fn stored(
        last: impl IntoIterator<Item = LastToken>,
        blocks: impl IntoIterator<Item = Block>,
    ) -> Self {
        let mut stored = Self::default();
        for token in last {
            stored.keep(token);
        }
        let blocks = blocks.into_iter().map(|block| (block.name, block.since));
        stored.blocks = blocks.collect();
        stored
    }

    /// Keeps a token if it is not older than the last one of its principal, and forgets the principals whose tokens
    /// ended first where there are too many, first those of its own tenant.
    pub fn keep(&mut self, token: LastToken) -> Kept {
        let name = token.account.name.clone();
        let mut kept = Kept::default();
        match self.last.get(&name) {
            Some(last) if last.age() > token.age() || last.is_same(&token) => return kept,
            Some(_) => {}
            None => {
                let [of_tenant, of_all] = self.bounds;
                let tenant = name.tenant();
                if self
                    .counts
                    .get(&tenant)
                    .is_some_and(|count| *count >= of_tenant)
                {
                    kept.forgotten.extend(self.forget_first(Some(tenant)));
                } else if self.last.len() >= of_all {
                    kept.forgotten.extend(self.forget_first(None));
                }
                *self.counts.entry(tenant).or_default() += 1;
            }
        }
        kept.is_last = true;
        self.last.insert(name, token);
        kept
    }

    /// Returns the last token of a principal, unless it is blocked.
    pub fn active(&self, name: &Principal) -> Option<&LastToken> {
        self.last.get(name).filter(|_| !self.is_blocked(name))
    }

    /// Returns the last token of a principal.
    pub fn last(&self, name: &Principal) -> Option<&LastToken> {
        self.last.get(name)
    }

    /// Returns the time since which a principal is blocked.
    pub fn blocked_since(&self, name: &Principal) -> Option<Timestamp> {
        self.blocks.get(name).copied()
    }

    /// Whether a principal is blocked.
    pub fn is_blocked(&self, name: &Principal) -> bool {
        self.blocks.contains_key(name)
    }

    /// Decides about a block, which may be of a principal that no token has proven yet. Returns the one that stands
    /// where there is one.
    ///
    /// # Errors
    /// [`Refusal::Limit`].
    pub fn decide_block(&self, name: &Principal, now: Timestamp) -> Result<Block, Refusal> {
        let [maximum, _] = self.bounds;
        let since = self.blocked_since(name);
        let of_tenant = |other: &&Principal| other.tenant() == name.tenant();
        if since.is_none() && self.blocks.keys().filter(of_tenant).count() >= maximum {
            let limit = "blocked principals";
            return Err(Refusal::Limit { limit, maximum });
        }
        Ok(Block {
            name: name.clone(),
            since: since.unwrap_or(now),
        })
    }

    /// Puts a block in force.
    pub fn block(&mut self, block: Block) {
        self.blocks.insert(block.name, block.since);
    }

    /// Ends the block of a principal.
    pub fn unblock(&mut self, name: &Principal) {
        self.blocks.remove(name);
    }

    /// Forgets the principals of a tenant.
    pub fn forget(&mut self, tenant: Tenant) {
        self.last.retain(|name, _| name.tenant() != tenant);
        self.blocks.retain(|name, _| name.tenant() != tenant);
        self.counts.remove(&tenant);
    }

    /// Returns the last tokens of the principals of a tenant that are not blocked.
    pub fn active_of(&self, tenant: Tenant) -> impl Iterator<Item = &LastToken> {
        let last = self
            .last
            .iter()
            .filter(move |(name, _)| name.tenant() == tenant);
        last.filter(|(name, _)| !self.is_blocked(name))
            .map(|(_, last)| last)
    }

    /// Returns the principals of a tenant with their last tokens, unless these are forgotten, and the times since
    /// which they are blocked, in the order of the names.
    pub fn all_of(&self, tenant: Tenant) -> Vec<(Principal, Option<LastToken>, Option<Timestamp>)> {
        let blocked = self
            .blocks
            .keys()
            .filter(|name| !self.last.contains_key(*name));
        let names = self.last.keys().chain(blocked);
        let mut names: Vec<_> = names
            .filter(|name| name.tenant() == tenant)
            .cloned()
            .collect();
        names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        let all = names.into_iter().map(|name| {
            let (last, since) = (self.last.get(&name).cloned(), self.blocked_since(&name));
            (name, last, since)
        });
        all.collect()
    }

    /// Forgets the principal whose last token ended first, of a tenant or of all.
    fn forget_first(&mut self, tenant: Option<Tenant>) -> Option<Principal> {
        let of_tenant = |name: &Principal| tenant.is_none_or(|it| name.tenant() == it);
        let candidates = self.last.iter().filter(|(name, _)| of_tenant(name));
        let first = candidates.min_by_key(|(_, token)| token.ends)?.0.clone();
        self.last.remove(&first);
        if let Some(count) = self.counts.get_mut(&first.tenant()) {
            *count -= 1;
        }
        Some(first)
    }
}

impl LastToken {
    /// Whether another token gives the same rights for the same time.
    fn is_same(&self, other: &Self) -> bool {
        let rights = |token: &Self| (token.account.roles.clone(), token.account.groups.clone());
        self.age() == other.age() && self.iss == other.iss && rights(self) == rights(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds_and_nanos(seconds, 0).unwrap()
    }

    fn token(name: &str, issued: i64, ends: i64) -> LastToken {
        let account = Account::new(Principal::new(name).unwrap(), at(1));
        LastToken {
            account: Arc::new(account),
            iss: "i".to_owned(),
            issued: at(issued),
            ends: at(ends),
        }
    }

    fn names(kept: &Kept) -> Vec<&str> {
        kept.forgotten.iter().map(Principal::as_str).collect()
    }

    #[test]
    fn the_first_to_end_is_forgotten_and_first_one_of_the_same_tenant() {
        let mut issued = IssuedPrincipals::within([2, 3]);
        for (name, ends, forgotten) in [
            ("acme/i:a", 5, None),
            ("acme/i:b", 9, None),
            ("acme/i:a", 7, None),
            ("i:z", 1, None),
            ("acme/i:c", 8, Some("acme/i:a")),
            ("i:y", 2, Some("i:z")),
        ] {
            let kept = issued.keep(token(name, 0, ends));
            assert!(kept.is_last, "{name}");
            assert_eq!(names(&kept), Vec::from_iter(forgotten), "{name}");
        }
        let acme = Tenant::new("acme").unwrap();
        assert_eq!(issued.all_of(acme).len(), 2);
        issued.forget(acme);
        assert!(issued.all_of(acme).is_empty());
        assert_eq!(
            issued.keep(token("acme/i:d", 0, 1)),
            Kept {
                is_last: true,
                forgotten: Vec::new()
            }
        );
    }

    #[test]
    fn an_older_token_and_the_same_one_change_nothing() {
        let mut issued = IssuedPrincipals::default();
        assert!(issued.keep(token("i:a", 3, 9)).is_last);
        for (begun, ends, is_last) in [(3, 9, false), (2, 99, false), (3, 8, false), (3, 10, true)]
        {
            let kept = issued.keep(token("i:a", begun, ends));
            assert_eq!(kept.is_last, is_last, "{begun} {ends}");
        }
    }

    #[test]
    fn blocks_are_bounded_and_outlast_last_tokens() {
        let mut issued = IssuedPrincipals::within([2, 2]);
        let name = |name: &str| Principal::new(name).unwrap();
        issued.keep(token("i:a", 0, 1));
        for blocked in ["i:a", "i:b"] {
            let block = issued.decide_block(&name(blocked), at(5)).unwrap();
            issued.block(block);
        }
        let refused = issued.decide_block(&name("i:c"), at(5)).unwrap_err();
        assert!(matches!(refused, Refusal::Limit { maximum: 2, .. }));
        assert_eq!(
            issued.decide_block(&name("i:a"), at(6)).unwrap().since,
            at(5)
        );
        issued.decide_block(&name("acme/i:c"), at(5)).unwrap();
        assert!(issued.active(&name("i:a")).is_none());
        issued.keep(token("i:y", 0, 2));
        issued.keep(token("i:z", 0, 3));
        assert!(issued.last(&name("i:a")).is_none() && issued.is_blocked(&name("i:a")));
        issued.unblock(&name("i:a"));
        issued.keep(token("i:a", 0, 9));
        assert!(issued.active(&name("i:a")).is_some());
    }
}
