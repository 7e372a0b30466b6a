//! The rights of the creator of a schedule at its times.

use std::time::Duration;

use contracts::tavern::access::v1::Permission;
use contracts::tavern::registry::v1::ResolvePrincipalRequest;
use core_types::{Principal, Reach};
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::runner::Inner;
use crate::store::schedules::ScheduleRow;

use super::failure;

/// The time limit of a look-up; the time of a schedule waits for the next one.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The present rights of a creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// It may start runs, which see these objects.
    Invoke(Reach),
    /// It may not, or does not exist any more.
    Missing,
    /// The registry does not answer; the time waits.
    Unknown,
}

/// Words the reason for which a time is not run.
pub(super) fn missing(creator: &Principal) -> String {
    let permission = Permission::Invoke.name();
    format!(
        "its creator `{creator}` has no longer the permission `{permission}`; grant it and resume the \
         schedule, or store the schedule again as another principal"
    )
}

/// Reads the rights of a creator from the names of its permissions. Its runs see what its own calls would; the runs of a
/// schedule of `local`, from before there were keys, reach the whole tenant.
fn rights(creator: &Principal, permissions: &[String]) -> Rights {
    let has = |permission: Permission| permissions.iter().any(|name| name == permission.name());
    let reach = match creator.is_nameless() || has(Permission::Operate) {
        true => Reach::Tenant,
        false => Reach::Own,
    };
    match has(Permission::Invoke) {
        true => Rights::Invoke(reach),
        false => Rights::Missing,
    }
}

impl Inner {
    /// Looks up the present rights of the creator of a schedule.
    pub(super) async fn rights_of(&self, creator: &Principal) -> Rights {
        let request = ResolvePrincipalRequest {
            principal: creator.to_string(),
            key_id: String::new(),
        };
        let mut identities = self.runner.identities();
        let resolved = timeout(LOOKUP_TIMEOUT, identities.resolve_principal(request)).await;
        let status = match resolved {
            Ok(Ok(resolved)) => {
                let caller = resolved.into_inner().caller.unwrap_or_default();
                return rights(creator, &caller.permissions);
            }
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("the registry does not answer in time"),
        };
        match status.code() {
            Code::Unauthenticated | Code::NotFound => Rights::Missing,
            code => {
                let (creator, error) = (creator.as_str(), status.message());
                tracing::warn!(
                    creator,
                    ?code,
                    error,
                    "a schedule waits for the rights of its creator"
                );
                Rights::Unknown
            }
        }
    }

    /// Pauses a schedule for a reason, unless it is paused.
    pub(super) async fn pause_for(
        &self,
        row: &mut ScheduleRow,
        reason: &str,
    ) -> Result<(), Status> {
        if row.paused {
            return Ok(());
        }
        tracing::warn!(schedule = row.id(), reason, "a schedule is paused");
        (row.paused, row.next) = (true, None);
        reason.clone_into(&mut row.pause_reason);
        self.schedules.store.put(row, &[]).await.map_err(failure)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_a_schedule_see_what_the_calls_of_their_creator_see() {
        let (invoke, operate) = (Permission::Invoke, Permission::Operate);
        for (creator, permissions, expected) in [
            ("bob", &[invoke][..], Rights::Invoke(Reach::Own)),
            ("acme/bob", &[invoke], Rights::Invoke(Reach::Own)),
            ("bob", &[invoke, operate], Rights::Invoke(Reach::Tenant)),
            (
                "acme/bob",
                &[invoke, operate],
                Rights::Invoke(Reach::Tenant),
            ),
            ("local", &[invoke], Rights::Invoke(Reach::Tenant)),
            ("acme/local", &[invoke], Rights::Invoke(Reach::Tenant)),
            ("bob", &[operate], Rights::Missing),
        ] {
            let creator = Principal::new(creator).unwrap();
            let names = permissions.iter().map(|one| one.name().to_owned());
            let names: Vec<String> = names.collect();
            assert_eq!(rights(&creator, &names), expected, "{creator} {names:?}");
        }
    }
}
