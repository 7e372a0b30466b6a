//! The first key of an installation that is not running.

use std::{io, path::Path, sync::Arc, time::Duration};

use contracts::tavern::registry::v1::{BootstrapRequest, BootstrapResponse};
use core_types::{Clock, IdSource, SystemClock, SystemIds};
use data_home::DataHome;
use sql_store::SqliteDatabase;
use tonic::Status;
use tool_domain::identity::accounts::Regain;

use crate::{
    Error, RegistrySettings,
    identities::{Identities, Issuers},
    rpc, service, store,
};

/// The reason for which there is no first key.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The tables cannot be used: a running service may have their files.
    #[error(transparent)]
    Tables(#[from] Error),
    /// The request is refused.
    #[error("{}", .0.message())]
    Refused(Status),
}

/// Makes the first principal and its key for a tool registry that does not run. An
/// installation whose administrators have no valid key gets an administrator again.
///
/// # Errors
/// [`BootstrapError`]: the tables cannot be used, the request is wrong, or an administrator has a key.
pub async fn bootstrap_offline(
    home: &DataHome,
    request: BootstrapRequest,
) -> Result<BootstrapResponse, BootstrapError> {
    at_rest(home, request, Regain::WithoutAdministrator).await
}

/// Revokes the keys of a principal, which are lost, and makes it an administrator with another key, for a tool registry
/// that does not run.
///
/// # Errors
/// [`BootstrapError`]: the tables cannot be used, or the request is wrong.
pub async fn replace_lost_keys(
    home: &DataHome,
    request: BootstrapRequest,
) -> Result<BootstrapResponse, BootstrapError> {
    at_rest(home, request, Regain::LostKeys).await
}

async fn at_rest(
    home: &DataHome,
    request: BootstrapRequest,
    regain: Regain,
) -> Result<BootstrapResponse, BootstrapError> {
    let database = store::open_database(home).await.map_err(Error::from)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let issuers = Issuers::new(Vec::new(), Duration::ZERO, &clock);
    let identities = Identities::load(database.clone(), issuers, clock, true).await;
    let identities = identities.map_err(Error::Identities)?;
    let settings = RegistrySettings::default();
    let parts: (_, Arc<dyn Clock>, Arc<dyn IdSource>) =
        (database.clone(), Arc::new(SystemClock), Arc::new(SystemIds));
    let audit = service::open_audit(home, &settings, identities.clone(), parts).await?;
    let made = rpc::bootstrap_at_rest(&audit, identities, request, regain).await;
    audit.close().await;
    database.close().await;
    made.map_err(BootstrapError::Refused)
}

/// Whether a running tool registry has a data directory.
///
/// # Errors
/// A file that cannot be read.
pub fn is_in_use(data_dir: &Path) -> io::Result<bool> {
    SqliteDatabase::is_in_use(&data_dir.join(store::DATABASE))
}
