//! The server: an accept loop of our own around hyper, with every limit set.
//!
//! - [`bind`]: a listener, unless the address is exposed without TLS.
//! - `proxied`: the clients of proxies that end TLS.
//! - `public_health`: the health that clients of other hosts see.
//! - `renewal`: certificates that change while the server serves.
//! - `calls`: the services of a server for handlers of plain HTTP.
//! - `accept`: accepting connections, also while the system has no files left for one.
//! - `gate`: the limits of connections, in all and of one peer.
//! - `connection`: one connection from its first bytes to its end.
//! - `flood`: control frames that cost the server more than the client.

mod accept;
pub(crate) mod bind;
pub(crate) mod calls;
mod connection;
mod flood;
pub(crate) mod gate;
mod proxied;
mod public_health;
mod renewal;

use std::{io, pin::pin, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use crate::{
    Door, Health, Need, Services, Shutdown, readiness,
    rpc::Stack,
    settings::{Callers, Exposed, Reflection, ServerSettings},
    tls::{TlsError, failures::Failures, leaf, server::Acceptor},
};
use accept::Connections;

use connection::{Endpoint, Ends};
use proxied::Proxied;
use public_health::PublicHealth;

/// The time for which a server that has to end continues accepting while its health reports that it
/// is not serving, so that balancers notice. It is skipped on loopback.
const DRAIN_NOTICE: Duration = Duration::from_secs(2);

/// A server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener is exposed without TLS, or without proof of the services that call.
    #[error("the address {0}; {remedy}", remedy = .0.remedy())]
    Exposed(#[from] Exposed),
    /// The listener has no address.
    #[error("the listener's address cannot be read")]
    Listener(#[source] io::Error),
    /// The limit of open files is too low.
    #[error(
        "the process may open {limit} files and reserves {reserved}, which leaves none for \
         connections; raise the limit (ulimit -n)"
    )]
    TooFewFiles {
        /// The number of files that the process may open.
        limit: u64,
        /// The number of reserved files.
        reserved: usize,
    },
    /// The certificates cannot be used.
    #[error("TLS cannot be used")]
    Tls(#[from] TlsError),
    /// A descriptor set of the services is broken.
    #[error("reflection cannot be built from the descriptor sets of the services")]
    Reflection(#[source] tonic_reflection::server::Error),
}

/// The end of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections that were cut because they did not finish in time; 0 after a clean end.
    pub unfinished_connections: usize,
}

/// A server that is about to serve.
#[derive(Debug)]
pub struct Server {
    settings: ServerSettings,
    services: Services,
    http: Option<axum::Router>,
    door: Option<Arc<dyn Door>>,
    health: Health,
    needs: Vec<Need>,
}

impl Server {
    /// Prepares a server for `services`. Health and reflection are added by itself.
    pub fn new(settings: ServerSettings, services: Services) -> Self {
        let health = Health::new(services.names.clone());
        Self {
            settings,
            services,
            http: None,
            door: None,
            health,
            needs: Vec::new(),
        }
    }

    /// Serves clients instead of other services: answers requests other than gRPC with `router`, and
    /// accepts HTTP/1.1 for them. The extensions of each request contain [`Calls`](crate::Calls). Headers
    /// that only services send, whose names begin with `tavern-`, are removed from every request, gRPC
    /// too: a client states neither the runs above its call nor their depth.
    #[must_use]
    pub fn http(mut self, router: axum::Router) -> Self {
        self.http = Some(router);
        self
    }

    /// Admits only the calls that `door` admits, gRPC and plain HTTP alike.
    #[must_use]
    pub fn door(mut self, door: Arc<dyn Door>) -> Self {
        self.door = Some(door);
        self
    }

    /// Reports the server as not ready while any of `needs` is not met.
    #[must_use]
    pub fn needs(mut self, needs: impl IntoIterator<Item = Need>) -> Self {
        self.needs.extend(needs);
        self
    }

    /// Returns the handle that sets which services can serve. At start all can.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Serves until `shutdown`, and then until all open calls are finished or the grace is over.
    ///
    /// # Errors
    /// [`ServeError`] when it cannot start; once started it does not fail.
    pub async fn serve(
        mut self,
        listener: TcpListener,
        shutdown: Shutdown,
    ) -> Result<Served, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Listener)?;
        let callers = match &self.door {
            Some(_) => Callers::Clients,
            None => Callers::Services,
        };
        self.settings.check_exposure(address, callers)?;
        // The listener may have been made elsewhere.
        self.settings.listen = address;
        let gate = gate::Gate::new(&self.settings)?;
        let loopback = address.ip().to_canonical().is_loopback();
        let services = self.with_infrastructure(loopback)?;
        let tls = match self.settings.tls.is_on() {
            true => Some(Arc::new(Acceptor::new(
                &self.settings.tls,
                self.door.is_some(),
            )?)),
            false => None,
        };
        telemetry::metrics::observe_certificates();
        if let Some(key) = leaf::readable_ca_key(&self.settings.tls) {
            tracing::warn!(
                key = %key.display(),
                "the key of the CA can be read by this process, which needs it for nothing: keep it elsewhere"
            );
        }
        self.health.set(crate::health::LIVENESS, true).await;
        self.health.set_all(self.needs.is_empty()).await;

        let ends = Ends {
            drain: CancellationToken::new(),
            go_away: CancellationToken::new(),
            last: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        let endpoint = Arc::new(Endpoint {
            stack: Stack::new(&services, &self.settings).behind(self.door),
            proxied: Proxied::new(&self.settings).map(Arc::new),
            http: self.http,
            settings: self.settings.clone(),
            tls: tls.clone(),
            failures: Failures::default(),
            ends: ends.clone(),
        });
        let connections = Connections::default();
        tracing::info!(%address, "serving");
        let mut accepting = pin!(accept::run(listener, gate, endpoint, connections.clone()));
        let notice = async {
            shutdown.started().await;
            self.health.set_all(false).await;
            ends.drain.cancel();
            // No balancer on this machine has to notice.
            if !loopback {
                let notice = tokio::time::sleep(DRAIN_NOTICE);
                tokio::select! { () = notice => {} () = shutdown.aborted() => {} }
            }
        };
        let until_notice = async {
            let interval = self.settings.connection.certificates;
            let ready = readiness::watch(&self.needs, &self.health);
            let renewed = renewal::watch(tls.as_deref(), interval, &self.health);
            tokio::select! { () = ready => {} () = renewed => {} () = shutdown.started() => {} }
            notice.await;
        };
        tokio::select! { () = &mut accepting => {} () = until_notice => {} }
        let finish = finish(&ends, &connections, &self.settings, &shutdown);
        // The listener continues: a client that follows or cancels a run may have to reconnect.
        tokio::select! { served = finish => Ok(served), () = accepting => Ok(Served::default()) }
    }

    /// Adds health and, where it is wanted, reflection.
    fn with_infrastructure(&self, loopback: bool) -> Result<Services, ServeError> {
        let health = HealthService::from_health_reporter(self.health.reporter());
        let health = PublicHealth::new(health, &self.services.names);
        let services = self.services.clone().add(HealthServer::new(health));
        let wanted = match self.settings.reflection {
            Reflection::Off => false,
            Reflection::Loopback => loopback,
            Reflection::On => true,
        };
        if !wanted {
            return Ok(services);
        }
        let builder = || {
            let mut builder = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                // So that clients can show the details of an error.
                .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
            for set in &services.descriptor_sets {
                builder = builder.register_encoded_file_descriptor_set(set);
            }
            // Only the services of this server are listed, although the sets describe more.
            services
                .names
                .iter()
                .fold(builder, |builder, name| builder.with_service_name(*name))
        };
        let v1 = builder()
            .with_service_name("grpc.reflection.v1.ServerReflection")
            .build_v1()
            .map_err(ServeError::Reflection)?;
        let v1alpha = builder()
            .with_service_name("grpc.reflection.v1alpha.ServerReflection")
            .build_v1alpha()
            .map_err(ServeError::Reflection)?;
        Ok(services.add(v1).add(v1alpha))
    }
}

/// Lets connections finish, and cuts the rest.
async fn finish(
    ends: &Ends,
    connections: &Connections,
    settings: &ServerSettings,
    shutdown: &Shutdown,
) -> Served {
    let Connections { begun, late } = connections;
    ends.go_away.cancel();
    begun.close();
    late.close();
    let finished = async {
        begun.wait().await;
        // Requests since then are answered, and no more.
        ends.last.cancel();
        late.wait().await;
    };
    tokio::select! {
        () = finished => {}
        () = tokio::time::sleep(settings.drain_grace) => {}
        () = shutdown.aborted() => {}
    }
    let unfinished_connections = begun.len() + late.len();
    ends.abort.cancel();
    begun.wait().await;
    late.wait().await;
    if unfinished_connections > 0 {
        tracing::warn!(
            unfinished_connections,
            "ended; connections that did not finish were cut"
        );
    } else {
        tracing::info!("ended; everything begun is finished");
    }
    Served {
        unfinished_connections,
    }
}
