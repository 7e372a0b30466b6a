//! The rights of the creator of a schedule at its times.

use std::time::Duration;

use contracts::tavern::access::v1::Permission;
use contracts::tavern::registry::v1::ResolvePrincipalRequest;
use core_types::Principal;
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
    /// It may start runs.
    Invoke,
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
                let invoke = Permission::Invoke.name();
                let may = caller.permissions.iter().any(|name| name == invoke);
                return if may { Rights::Invoke } else { Rights::Missing };
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
