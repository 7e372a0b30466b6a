//! The network face of the text dialects.
//!
//! The gateway reads what a model wrote, lets the owner of the new run carry it out, and follows
//! the run for its caller. It stores nothing: a run's id says which service owns it, so any
//! replica can follow any run.

mod domain;
mod edge;
pub mod error;
mod forward;
pub mod peers;
mod program;
mod rpc;
pub mod settings;
mod tools;

pub use error::Error;
pub use peers::Peers;
pub use program::Standalone;
pub use settings::{GatewaySettings, HttpSettings};

use contracts::tavern::gateway::v1::gateway_service_server::{self, GatewayServiceServer};
use contracts::tavern::run::v1::run_service_server::RunServiceServer;

/// The gateway, ready to be served.
#[derive(Clone, Debug)]
pub struct Gateway {
    rpc: rpc::GatewayRpc,
    settings: GatewaySettings,
}

/// Puts the gateway together.
pub fn build(settings: GatewaySettings, peers: Peers) -> Gateway {
    let rpc = rpc::GatewayRpc::new(peers, settings.max_text);
    Gateway { rpc, settings }
}

impl Gateway {
    /// Returns what a server serves.
    pub fn services(&self) -> grpc_kit::Services {
        let max_request = self.settings.max_text.saturating_add(rpc::REQUEST_HEADROOM);
        grpc_kit::Services::new()
            .add(GatewayServiceServer::new(self.rpc.clone()).max_decoding_message_size(usize::MAX))
            .add(RunServiceServer::new(self.rpc.clone()))
            .max_request_message(gateway_service_server::SERVICE_NAME, max_request)
    }

    /// Returns what answers requests other than gRPC for a server that serves `services`, those of
    /// the gateway among them.
    pub fn http(&self, services: &grpc_kit::Services) -> axum::Router {
        edge::router(&self.settings.http, services.names())
    }
}
