//! The service put together.

use std::sync::Arc;

use contracts::tavern::gateway::v1::gateway_service_server::{self, GatewayServiceServer};
use contracts::tavern::run::v1::run_service_server::RunServiceServer;
use grpc_kit::{Door, Services};

use crate::door::ClientDoor;
use crate::edge;
use crate::peers::Peers;
use crate::rpc::{GatewayRpc, REQUEST_HEADROOM};
use crate::settings::GatewaySettings;

/// The gateway, ready to be served.
#[derive(Clone, Debug)]
pub struct Gateway {
    rpc: GatewayRpc,
    door: Arc<ClientDoor>,
    peers: Peers,
    settings: GatewaySettings,
}

/// Puts the gateway together.
pub fn build(settings: GatewaySettings, peers: Peers) -> Gateway {
    let door = Arc::new(ClientDoor::new(&peers));
    let rpc = GatewayRpc::new(peers.clone(), settings.max_text);
    Gateway {
        rpc,
        door,
        peers,
        settings,
    }
}

impl Gateway {
    /// Returns the services of a server.
    pub fn services(&self) -> Services {
        let max_request = self.settings.max_text.saturating_add(REQUEST_HEADROOM);
        Services::new()
            .add(GatewayServiceServer::new(self.rpc.clone()).max_decoding_message_size(usize::MAX))
            .add(RunServiceServer::new(self.rpc.clone()))
            .max_request_message(gateway_service_server::SERVICE_NAME, max_request)
    }

    /// Returns the door of a server that clients call, whose services are parts of the same process.
    pub fn door(&self) -> Arc<dyn Door> {
        Arc::clone(&self.door) as Arc<dyn Door>
    }

    /// Returns the router for requests other than gRPC, for a server with `services`, which include
    /// the gateway's.
    pub fn http(&self, services: &Services) -> axum::Router {
        edge::router(
            &self.settings.http,
            services.names(),
            &self.door,
            &self.peers,
        )
    }
}
