//! The server and client stacks that every Tavern service uses.
//!
//! A service puts its tonic servers into [`Services`]. A [`Server`] offers them on a socket with
//! every limit set; [`local`] offers the same in process. Clients are
//! `XServiceClient<`[`Outbound`]`>`, whether the other end is near or far.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # use grpc_kit::{Server, ServerSettings, Services, Shutdown};
//! # let (settings, services) = (ServerSettings::default(), Services::new());
//! let shutdown = Shutdown::on_signals()?;
//! let listener = grpc_kit::bind(&settings).await?;
//! Server::new(settings, services).serve(listener, shutdown).await?;
//! # Ok(()) }
//! ```
//!
//! - [`settings`]: the settings of servers and clients.
//! - [`services`], [`server`], [`health`], [`readiness`], [`drain`]: offering services.
//! - [`door`]: who may call a server.
//! - [`identity`]: the name of a service in its certificate.
//! - [`tls`]: encryption, and the certificates that prove services to each other.
//! - [`transport`], [`call`]: calling them, each call with its context.
//! - [`failure`]: rich errors, written and read.
//! - [`program`]: running a service as a program of its own.
//! - [`retry`]: when to send a request again.
//! - [`Calls`]: the services, for handlers of plain HTTP alongside gRPC.
//! - `rpc`: the frame of every RPC: limits, deadline, panic, span.

#[cfg(feature = "allocator")]
mod allocator;
pub mod call;
mod deadline;
pub mod door;
pub mod drain;
pub mod failure;
pub mod health;
pub mod identity;
mod lines;
mod methods;
mod page;
pub mod program;
pub mod readiness;
pub mod retry;
mod rpc;
pub mod run_list;
pub mod server;
pub mod services;
pub mod settings;
mod share;
pub mod tls;
pub mod transport;
mod windows;

pub use call::CallContext;
pub use door::{Admission, CallGuard, Door, Knock};
pub use drain::{Drain, Shutdown, ShutdownHandle};
pub use failure::{Failure, internal, may_have_arrived, metadata, reason, retry_after, violations};
pub use health::{Health, check_health, check_liveness};
pub use identity::{ServiceId, ServiceName, TrustDomain};
pub use page::{list_of, list_of_tenant, page_token};
pub use program::Program;
pub use readiness::Need;
pub use retry::{Backoff, FailureClass, Patience};
pub use server::bind::{BindError, bind};
pub use server::calls::{Calls, EnteredCall};
pub use server::{ServeError, Served, Server};
pub use services::Services;
pub use settings::{
    Callers, ClientSettings, ConnectionBounds, Exposed, Reflection, ServerSettings, TraceTrust,
    TransportError,
};
pub use tls::Proxies;
pub use transport::{
    LateTransport, Outbound, SentRequest, Transport, late, local, local_behind, local_with,
    neighbour, remote,
};
