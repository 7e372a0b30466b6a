//! The owner of blobs and sessions.

use core_types::Principal;

/// The owner of blobs and sessions: a principal, and a name that it chose. Of what others own it neither sees
/// nor uses anything, whatever name it states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    principal: Principal,
    caller_id: String,
}

impl Owner {
    /// Returns the owner with a name among those of its principal.
    pub fn new(principal: &Principal, caller_id: impl Into<String>) -> Self {
        Self {
            principal: principal.clone(),
            caller_id: caller_id.into(),
        }
    }

    /// Returns the principal.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the name among those of the principal; empty for the anonymous one.
    pub fn caller_id(&self) -> &str {
        &self.caller_id
    }

    /// Returns the name among all owners.
    pub fn name(&self) -> String {
        let Self {
            principal,
            caller_id,
        } = self;
        match principal.is_local() {
            true => caller_id.clone(),
            // No `caller_id` has a blank, so no owner of `local` has this name.
            false => format!("{principal} {caller_id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_different_principals_have_different_names() {
        let ada = Principal::new("ada").unwrap();
        let own = Owner::new(&ada, "c");
        assert_eq!(Owner::new(&Principal::LOCAL, "c").name(), "c");
        assert_eq!(own.name(), "ada c");
        assert_ne!(Owner::new(&ada, ""), Owner::default());
    }
}
