//! Issuers: the check of a token against the keys of its issuer (rule S603).
//!
//! - `keys`: the keys of an issuer, and the times at which they are read.
//! - `refusals`: refused tokens in the log, once a minute.
//! - `source`: the place of the keys of an issuer.
//! - `metrics`: counts of reads and refusals.

mod keys;
mod metrics;
mod refusals;
mod source;

use std::sync::Arc;
use std::time::Duration;

use core_types::{Clock, Principal, Timestamp};
use tool_domain::identity::{Issuer, IssuerToken, LastToken, TokenFault};

use keys::IssuerKeys;
use refusals::Refusals;
pub use source::{KeySource, NotRead};

/// The issuers of the settings. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Issuers {
    all: Arc<[KnownIssuer]>,
    refusals: Arc<Refusals>,
    /// The time after the end of a last token for which its rights count.
    rights_kept: Duration,
}

#[derive(Debug)]
struct KnownIssuer {
    issuer: Issuer,
    keys: Arc<IssuerKeys>,
}

impl Issuers {
    /// Takes issuers with the places of their keys. Nothing is read. The rights of a last token count for
    /// `rights_kept` after its end.
    pub fn new(
        issuers: Vec<(Issuer, Box<dyn KeySource>)>,
        rights_kept: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let all = issuers.into_iter().map(|(issuer, source)| {
            let keys = IssuerKeys::new(issuer.name.clone(), source, Arc::clone(clock));
            KnownIssuer {
                keys: Arc::new(keys),
                issuer,
            }
        });
        let all: Arc<[KnownIssuer]> = all.collect();
        for known in &*all {
            let keys = Arc::downgrade(&known.keys);
            metrics::observe(&known.issuer.name, move || keys.upgrade()?.age());
        }
        Self {
            all,
            refusals: Arc::default(),
            rights_kept,
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Begins to read the keys of each issuer now and hourly, for as long as there are these issuers.
    pub(crate) fn begin_reading(&self) {
        for known in &*self.all {
            known.keys.begin_reading();
        }
    }

    /// Checks a token. Its keys are read first if the issuer has none of its `kid`, once in 30 s.
    ///
    /// # Errors
    /// [`TokenFault`], which is counted and logged.
    pub(super) async fn admit(&self, text: &str, now: Timestamp) -> Result<LastToken, TokenFault> {
        let (issuer, admitted) = match IssuerToken::read(text) {
            Err(fault) => (None, Err(fault)),
            Ok(token) => match self.of_iss(token.issuer()) {
                None => (None, Err(TokenFault::Issuer)),
                Some(known) => (Some(known), known.admit(&token, now).await),
            },
        };
        admitted.inspect_err(|fault| self.refused(issuer, *fault, now))
    }

    /// Counts and logs the refusal of a principal's token.
    pub(super) fn refuse(&self, name: &Principal, fault: TokenFault, now: Timestamp) {
        self.refused(self.of_principal(name), fault, now);
    }

    /// Whether the rights of the last token of a principal count: its issuer is still the same, and the time after
    /// the end of the token is not over.
    pub(super) fn keeps(&self, last: &LastToken, now: Timestamp) -> bool {
        let issuer = self.of_principal(&last.account.name);
        issuer.is_some_and(|known| known.issuer.iss == last.iss)
            && now < last.ends.plus(self.rights_kept)
    }

    /// Returns the `iss` of the issuer of a principal.
    pub(crate) fn iss_of(&self, name: &Principal) -> Option<&str> {
        self.of_principal(name).map(|known| &*known.issuer.iss)
    }

    fn of_principal(&self, name: &Principal) -> Option<&KnownIssuer> {
        let (issuer, _) = name.issuer_and_subject()?;
        self.all.iter().find(|known| known.issuer.name == issuer)
    }

    fn of_iss(&self, iss: &str) -> Option<&KnownIssuer> {
        self.all.iter().find(|known| known.issuer.iss == iss)
    }

    fn refused(&self, issuer: Option<&KnownIssuer>, fault: TokenFault, now: Timestamp) {
        let issuer = issuer.map_or("", |known| &known.issuer.name);
        metrics::refused(issuer, fault);
        self.refusals.record(issuer, fault, now);
    }
}

impl KnownIssuer {
    async fn admit(
        &self,
        token: &IssuerToken<'_>,
        now: Timestamp,
    ) -> Result<LastToken, TokenFault> {
        // A token of a wrong time or audience reads no keys.
        self.issuer.check(token, now)?;
        self.keys.with(token.key_id()).await?.verify(token)?;
        self.issuer.admit(token, now)
    }
}
