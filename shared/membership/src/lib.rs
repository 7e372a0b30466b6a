//! The lease of a process at a shared database, and the fence of its writing connections.
//!
//! A process is a *member* from its start: [`Membership::join`] writes its row and renews its lease. A member whose
//! lease has ended is *fenced* by another one, which raises the epochs of its [`writer`]s first: from then on none of
//! its statements stores anything, however long it was paused. Only then are its runs taken over.
//!
//! The lease is judged by the database's clock; the member itself counts from the moment at which it sent its last
//! confirmed renewal, in time that passes while the machine is suspended, too.

mod clock;
mod lease;
pub mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use core_types::{Clock, SystemClock};
use sql_store::{Migrations, PostgresDatabase};
use sqlx::{PgConnection, migrate::Migrator};
use tokio::{sync::watch, task::JoinHandle};
use uuid::Uuid;

use clock::ClockOffset;
pub use writer::{FenceError, Writer};

static MIGRATOR: Migrator = sqlx::migrate!("migrations/postgres");

/// The migrations of the members' tables.
pub const MIGRATIONS: Migrations = Migrations::new("membership", &MIGRATOR);

/// The longest use of a lease after the sending of its last renewal, in tenths: no effect starts later, and others fence
/// the member after ten of them.
const USABLE_TENTHS: u32 = 6;

/// Returns the time for which a lease is usable after the sending of its last renewal.
fn usable(lease: Duration) -> Duration {
    lease * USABLE_TENTHS / 10
}

/// The facts that a member states of itself, and the length of its lease.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// The services of the process, separated by commas.
    pub services: String,
    /// The version of the program.
    pub version: String,
    /// The address at which other members reach it.
    pub address: String,
    /// The time after its last renewal at which others may fence it.
    pub lease: Duration,
    /// The clock by which it judges times, compared with the database's at its start and each renewal.
    pub clock: Arc<dyn Clock>,
}

impl MemberSettings {
    /// Returns the settings of a process with some services, with a lease of 10 s.
    pub fn new(services: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            services: services.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: address.into(),
            lease: Duration::from_secs(10),
            clock: Arc::new(SystemClock),
        }
    }
}

/// The reason for which a process is no longer a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Another member took over its runs.
    #[error("another process fenced this one after its lease had ended; start it again")]
    Fenced,
    /// A standby became the primary, whose log may lack events that this process knows.
    #[error("the database failed over to a standby; start this process again")]
    FailedOver,
}

/// The reason for which a process cannot become a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Another process has the same services, and its lease is renewed.
    #[error("the member {member} at {address} serves {services} on this database; stop it first")]
    Held {
        /// Its id.
        member: String,
        /// Its address.
        address: String,
        /// Its services.
        services: String,
    },
    /// The clock of this machine is wrong, or the database's: times that are due would come early or late.
    #[error(
        "the clock of this machine is {ahead_ms} ms ahead of the database's (behind it if negative); set it, as by NTP"
    )]
    Clock {
        /// The offset in milliseconds.
        ahead_ms: i64,
    },
    /// The database failed.
    #[error("the database failed")]
    Failed(#[from] sqlx::Error),
}

/// The membership of this process. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Membership {
    shared: Arc<Shared>,
    lost: watch::Receiver<Option<Loss>>,
}

#[derive(Debug)]
struct Shared {
    id: String,
    lease: Duration,
    timeline: String,
    database: PostgresDatabase,
    /// The time at which the last confirmed renewal was sent, in milliseconds of [`clock::now`].
    confirmed: AtomicU64,
    clock: Arc<dyn Clock>,
    /// Whether the clock's offset from the database's has been warned of.
    is_warned: AtomicBool,
    loss: watch::Sender<Option<Loss>>,
    renewal: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Membership {
    /// Makes this process a member, and renews its lease from now on.
    ///
    /// While another process with one of its services holds a lease, it waits for the end of that lease; if it ends, that
    /// process is fenced, and if it is renewed, this one is refused.
    ///
    /// # Errors
    /// [`JoinError`] names the other process, or the offset of the clock.
    pub async fn join(
        database: PostgresDatabase,
        settings: MemberSettings,
    ) -> Result<Self, JoinError> {
        let mut connection = database.connect().await?;
        let timeline = sql_store::postgres::timeline(&mut connection).await?;
        let id = Uuid::now_v7().to_string();
        let sent = clock::now();
        lease::join(&mut connection, &id, &settings).await?;
        let (loss, lost) = watch::channel(None);
        let shared = Arc::new(Shared {
            id,
            lease: settings.lease,
            timeline,
            database,
            confirmed: AtomicU64::new(sent),
            clock: settings.clock,
            is_warned: AtomicBool::default(),
            loss,
            renewal: std::sync::Mutex::default(),
        });
        let renewal = tokio::spawn(lease::renew(Arc::downgrade(&shared), connection));
        if let Ok(mut place) = shared.renewal.lock() {
            *place = Some(renewal);
        }
        Ok(Self { shared, lost })
    }

    /// Returns the id, new at each start.
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Returns the database of which the process is a member.
    pub fn database(&self) -> &PostgresDatabase {
        &self.shared.database
    }

    /// Whether the lease lasts long enough for an effect to start now.
    pub fn may_start_effects(&self) -> bool {
        self.age() < usable(self.shared.lease) && self.loss().is_none()
    }

    /// Returns the time since the last confirmed renewal was sent.
    fn age(&self) -> Duration {
        let confirmed = self.shared.confirmed.load(Ordering::Acquire);
        Duration::from_millis(clock::now().saturating_sub(confirmed))
    }

    /// Returns the reason for which the process is no longer a member, or `None` while it is one.
    pub fn loss(&self) -> Option<Loss> {
        *self.lost.borrow()
    }

    /// Waits until the process is no longer a member.
    pub async fn lost(&self) -> Loss {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(loss) => loss.unwrap_or(Loss::Fenced),
            Err(_) => Loss::Fenced,
        }
    }

    /// Opens a connection to the same server as at the start, and compares its timeline.
    ///
    /// # Errors
    /// The loss of the membership, or the database's error.
    pub async fn connect(&self) -> Result<PgConnection, FenceError> {
        self.shared.connect().await
    }

    /// Ends the membership: others need not wait for the end of its lease. Runs that it still holds are free then, too.
    ///
    /// # Errors
    /// The database's error; others then wait for the end of the lease.
    pub async fn leave(&self) -> Result<(), sqlx::Error> {
        let renewal = match self.shared.renewal.lock() {
            Ok(mut place) => place.take(),
            Err(_) => None,
        };
        if let Some(renewal) = renewal {
            renewal.abort();
        }
        let mut connection = self.shared.database.connect().await?;
        lease::leave(&mut connection, &self.shared.id).await
    }
}

impl Shared {
    async fn connect(&self) -> Result<PgConnection, FenceError> {
        let mut connection = self.database.connect().await?;
        let timeline = sql_store::postgres::timeline(&mut connection).await?;
        if timeline != self.timeline {
            self.lose(Loss::FailedOver);
            return Err(FenceError::Lost(Loss::FailedOver));
        }
        Ok(connection)
    }

    /// Logs that the clock has come to differ from the database's, or to agree with it again.
    fn report(&self, offset: ClockOffset) {
        let is_warned = offset.is_warned();
        match (self.is_warned.swap(is_warned, Ordering::Relaxed), is_warned) {
            (false, true) => tracing::warn!(
                ahead_ms = offset.0,
                "the clock of this machine differs from the database's; set it, as by NTP"
            ),
            (true, false) => tracing::info!("the clock of this machine agrees with the database's"),
            _ => {}
        }
    }

    fn lose(&self, loss: Loss) {
        let first = self.loss.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(loss);
            first
        });
        if first {
            tracing::error!(member = self.id, %loss, "this process is no longer a member");
        }
    }
}
