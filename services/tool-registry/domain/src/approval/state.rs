//! An approval and its decisions.

use approval_rules::{Ask, EffectClass, Reason};
use core_types::{Principal, Timestamp};
use serde::{Deserialize, Serialize};

use super::{digest_of, digest_to_remember};

/// The state of an approval. The numbers are the same in the contract and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// The call waits.
    Pending = 1,
    /// The call may be dispatched.
    Approved = 2,
    /// A person rejected it.
    Rejected = 3,
    /// Its time passed.
    Expired = 4,
    /// The call no longer needs it.
    Withdrawn = 5,
}

/// The decision of one person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The approver's name.
    pub approver: String,
    /// Whether the call may be dispatched.
    pub approved: bool,
    /// The reason.
    pub reason: String,
    /// The time, in nanoseconds since 1970.
    pub time: i64,
}

/// A call that waits, or waited, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: String,
    /// The state.
    pub state: State,
    /// The principal that the call acts for.
    #[serde(default, skip_serializing_if = "Principal::is_local")]
    pub principal: Principal,
    /// The digest of the first request for the effect, by which a repeat with another body is known; empty in
    /// approvals of earlier versions.
    #[serde(default)]
    pub body: String,
    /// The run that made the call; empty if none did.
    pub run_id: String,
    /// The effect; empty for a call that ends with its caller.
    pub effect_id: String,
    /// The tool.
    pub tool_id: String,
    /// The digest of its definition.
    pub tool_digest: String,
    /// The arguments as canonical JSON.
    pub arguments: String,
    /// The rules that require it.
    pub reasons: Vec<Reason>,
    /// The effects that the tool declares.
    pub effect: EffectClass,
    /// The conversation; empty if none.
    pub conversation_id: String,
    /// The role that approvers need; empty for any.
    pub role: String,
    /// The number of people who must approve.
    pub needed: u32,
    /// Whether a decision needs a reason.
    pub reason_required: bool,
    /// The people who approved the present arguments, or decided.
    pub consents: Vec<Consent>,
    /// Whether a person edited the arguments.
    pub edited: bool,
    /// The times of creation, expiry and end, in nanoseconds since 1970.
    pub created: i64,
    /// See `created`.
    pub expires: i64,
    /// See `created`.
    pub ended: Option<i64>,
}

/// A decision of a person.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// The approver's name.
    pub approver: &'a str,
    /// The roles of the approver.
    pub roles: &'a [String],
    /// Whether the approver is the principal that the call acts for.
    pub own: bool,
    /// The digest of the call that the approver saw.
    pub digest: &'a str,
    /// Whether the call may be dispatched.
    pub approved: bool,
    /// The reason.
    pub reason: &'a str,
    /// Other arguments, as canonical JSON.
    pub edited: Option<String>,
}

/// The reason for which a decision does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// The approval was decided, expired or was withdrawn.
    #[error("the approval is not pending any more")]
    NotPending,
    /// The approver saw other arguments.
    #[error("the arguments were changed since; read the approval again")]
    Changed,
    /// The call is the approver's own.
    #[error(
        "the call acts for the approver itself; leave the decision to another principal with the permission \
         approve"
    )]
    OwnCall,
    /// The approver lacks the role.
    #[error("the approval needs an approver with another role")]
    NotAllowed,
    /// The rule requires a reason.
    #[error("the rule wants a reason")]
    NoReason,
}

impl Approval {
    /// Whether the approvers of this call could have decided `ask`: another agent may require more
    /// in the same conversation.
    pub fn covers(&self, ask: &Ask) -> bool {
        (ask.role.is_empty() || ask.role == self.role) && ask.needed <= self.needed
    }

    /// Returns the digest that a decision quotes.
    pub fn digest(&self) -> String {
        digest_of(
            &self.tool_id,
            &self.tool_digest,
            &self.effect_id,
            &self.arguments,
        )
    }

    /// Returns the digest by which a decision is remembered: without the effect.
    pub fn digest_to_remember(&self) -> String {
        let Self {
            tool_id,
            tool_digest,
            principal,
            arguments,
            ..
        } = self;
        digest_to_remember(tool_id, tool_digest, principal, arguments)
    }

    /// Records a decision. Returns false if the approver had decided the same before.
    ///
    /// # Errors
    /// [`DecideError`], and nothing is changed.
    pub fn decide(&mut self, decision: Decision<'_>, now: Timestamp) -> Result<bool, DecideError> {
        let had = self.consents.iter().any(|consent| {
            consent.approver == decision.approver && consent.approved == decision.approved
        });
        let same = decision.digest == self.digest();
        let asks_for_present = match &decision.edited {
            Some(edited) => *edited == self.arguments,
            None => same,
        };
        if had && asks_for_present {
            return Ok(false);
        }
        if self.state != State::Pending {
            return Err(DecideError::NotPending);
        }
        if !same {
            return Err(DecideError::Changed);
        }
        if decision.own {
            return Err(DecideError::OwnCall);
        }
        if !(self.role.is_empty() || decision.roles.contains(&self.role)) {
            return Err(DecideError::NotAllowed);
        }
        if self.reason_required && decision.reason.trim().is_empty() {
            return Err(DecideError::NoReason);
        }
        if let Some(edited) = decision.edited.filter(|edited| *edited != self.arguments) {
            // Others approved other arguments (rule G805).
            self.consents.clear();
            self.arguments = edited;
            self.edited = true;
        }
        let mine = |consent: &Consent| consent.approver == decision.approver;
        self.consents.retain(|consent| !mine(consent));
        self.consents.push(Consent {
            approver: decision.approver.to_owned(),
            approved: decision.approved,
            reason: decision.reason.to_owned(),
            time: now.unix_nanos(),
        });
        let approvals = u32::try_from(self.consents.len()).unwrap_or(u32::MAX);
        match decision.approved {
            false => self.end(State::Rejected, now),
            true if approvals >= self.needed => self.end(State::Approved, now),
            true => {}
        }
        Ok(true)
    }

    /// Ends the approval.
    pub fn end(&mut self, state: State, now: Timestamp) {
        self.state = state;
        self.ended = Some(now.unix_nanos());
    }

    /// Whether its time has passed without a decision.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.state == State::Pending && now.unix_nanos() >= self.expires
    }

    /// Returns the reason of the last decision.
    pub fn reason(&self) -> &str {
        self.consents.last().map_or("", |consent| &consent.reason)
    }

    /// Returns the people who decided.
    pub fn approvers(&self) -> Vec<String> {
        let names = self.consents.iter().map(|consent| consent.approver.clone());
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(needed: u32) -> Approval {
        Approval {
            id: "apr_1".into(),
            state: State::Pending,
            principal: Principal::LOCAL,
            body: String::new(),
            run_id: String::new(),
            effect_id: "e1".into(),
            tool_id: "t".into(),
            tool_digest: "d".into(),
            arguments: "{\"a\":1}".into(),
            reasons: Vec::new(),
            effect: EffectClass::SideEffecting,
            conversation_id: "c1".into(),
            role: "keeper".into(),
            needed,
            reason_required: false,
            consents: Vec::new(),
            edited: false,
            created: 0,
            expires: 100,
            ended: None,
        }
    }

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_unix_nanos(nanos)
    }

    fn decide(
        approval: &mut Approval,
        approver: &str,
        approved: bool,
        edited: Option<&str>,
    ) -> Result<bool, DecideError> {
        let digest = approval.digest();
        let decision = Decision {
            approver,
            roles: &["keeper".to_owned()],
            own: false,
            digest: &digest,
            approved,
            reason: "",
            edited: edited.map(str::to_owned),
        };
        approval.decide(decision, at(1))
    }

    #[test]
    fn g806_as_many_different_people_as_needed_approve() {
        let mut approval = approval(2);
        assert_eq!(decide(&mut approval, "ann", true, None), Ok(true));
        assert_eq!(decide(&mut approval, "ann", true, None), Ok(false));
        assert_eq!(approval.state, State::Pending);
        assert_eq!(decide(&mut approval, "bob", true, None), Ok(true));
        assert_eq!(approval.state, State::Approved);
        assert_eq!(
            decide(&mut approval, "cid", true, None),
            Err(DecideError::NotPending)
        );
    }

    #[test]
    fn g806_one_rejection_ends_it() {
        let mut approval = approval(3);
        decide(&mut approval, "ann", true, None).unwrap();
        decide(&mut approval, "bob", false, None).unwrap();
        assert_eq!(approval.state, State::Rejected);
    }

    #[test]
    fn g805_edited_arguments_void_what_was_approved_before() {
        let mut approval = approval(2);
        let before = approval.digest();
        decide(&mut approval, "ann", true, None).unwrap();
        decide(&mut approval, "bob", true, Some("{\"a\":2}")).unwrap();
        assert_eq!(approval.state, State::Pending);
        assert_ne!(approval.digest(), before);
        assert_eq!(approval.approvers(), ["bob"]);
        decide(&mut approval, "ann", true, None).unwrap();
        assert_eq!(approval.state, State::Approved);
    }

    #[test]
    fn a_principal_does_not_decide_about_its_own_call() {
        let mut approval = approval(1);
        let digest = approval.digest();
        for approved in [true, false] {
            let own = Decision {
                approver: "ann",
                roles: &["keeper".to_owned()],
                own: true,
                digest: &digest,
                approved,
                reason: "",
                edited: None,
            };
            assert_eq!(approval.decide(own, at(1)), Err(DecideError::OwnCall));
        }
        assert_eq!(approval.state, State::Pending);
    }

    #[test]
    fn g803_a_decision_counts_for_what_its_author_saw_and_by_the_role() {
        let mut approval = approval(1);
        let stale = Decision {
            approver: "ann",
            roles: &["keeper".to_owned()],
            own: false,
            digest: "other",
            approved: true,
            reason: "",
            edited: None,
        };
        assert_eq!(
            approval.decide(stale.clone(), at(1)),
            Err(DecideError::Changed)
        );
        let digest = approval.digest();
        let without_role = Decision {
            roles: &[],
            digest: &digest,
            ..stale
        };
        assert_eq!(
            approval.decide(without_role, at(1)),
            Err(DecideError::NotAllowed)
        );
        approval.reason_required = true;
        assert_eq!(
            decide(&mut approval, "ann", true, None),
            Err(DecideError::NoReason)
        );
        assert!(!approval.is_overdue(at(99)));
        assert!(approval.is_overdue(at(100)));
    }
}
