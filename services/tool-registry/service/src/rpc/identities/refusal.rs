//! Refused changes and credentials as statuses.

use contracts::tavern::{access::v1::Permission, common::v1::ErrorReason};
use core_types::Principal;
use grpc_kit::Failure;
use run_events::store_failure;
use tonic::{Code, Status};
use tool_domain::identity::Refusal;

use super::super::refusal::not_permitted;
use crate::identities::{NotChanged, NotProven};

/// Returns the status of every credential that proves no principal, whatever is wrong with it.
pub(super) fn unauthenticated() -> Status {
    Failure::new(
        Code::Unauthenticated,
        ErrorReason::Unauthenticated,
        "the call has no valid credential; send a key as the bearer token of `authorization`, or give \
         `--key-file`",
    )
    .into_status()
}

/// Returns the status of a credential that is refused.
pub(super) fn not_proven(reason: NotProven) -> Status {
    match reason {
        NotProven::Credential => unauthenticated(),
        NotProven::Closed(tenant) => tenancy::closed(tenant).into_status(),
    }
}

/// Returns the status of a change that was not made. `field` is the field of the request that it refuses,
/// `by` the caller.
pub(super) fn of_change(error: NotChanged, field: &str, by: &Principal) -> Status {
    match error {
        NotChanged::Unproven => bootstrap_refused(error.to_string()).into_status(),
        NotChanged::Store(error) => store_failure(&error).into_status(),
        NotChanged::Taken(places) => {
            let taken = "has the name or the key of a principal that exists; give the approver another name \
                         in the file, or leave it out";
            let refused = places
                .into_iter()
                .fold(Failure::invalid_fields(), |refused, place| {
                    refused.violation(format!("{field}[{place}]"), taken)
                });
            refused.into_status()
        }
        NotChanged::Refused(refusal) => of_refusal(&refusal, field, by).into_status(),
    }
}

fn of_refusal(refusal: &Refusal, field: &str, by: &Principal) -> Failure {
    let message = refusal.to_string();
    let not_done = |reason| Failure::new(Code::FailedPrecondition, reason, message.clone());
    let not_found = |reason| Failure::new(Code::NotFound, reason, message.clone());
    match refusal {
        Refusal::OfInstallation => not_permitted(by, Permission::Administer, message),
        Refusal::Open => not_done(ErrorReason::LastAdministrator),
        Refusal::LastAdministrator(principal) => {
            not_done(ErrorReason::LastAdministrator).metadata("principal", principal)
        }
        Refusal::Bootstrapped => bootstrap_refused(message),
        Refusal::NoPrincipal(principal) => {
            not_found(ErrorReason::PrincipalNotFound).metadata("principal", principal)
        }
        Refusal::NoKey(key_id) => not_found(ErrorReason::KeyNotFound).metadata("key_id", key_id),
        Refusal::NoValidKey(principal) => {
            not_found(ErrorReason::KeyNotFound).metadata("principal", principal)
        }
        Refusal::Ended | Refusal::OtherRoles(_) => {
            Failure::invalid_fields().violation(field, message)
        }
        Refusal::Limit { limit, maximum } => Failure::limit_exceeded(limit, *maximum, maximum + 1),
    }
}

fn bootstrap_refused(message: String) -> Failure {
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::BootstrapRefused,
        message,
    )
}
