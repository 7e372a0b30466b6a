//! The tool registry as its callers see it, over its gRPC methods in process. Its peers are
//! doubles: the crate `doubles` runs programs without any isolation, `doubles::workflow` plays runs.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod approvals;
mod availability;
mod backend;
mod builtin;
mod calls;
mod calls_of_tenants;
mod cancel;
mod changes;
mod credentials;
mod doubles;
mod doubt;
mod exchanged;
mod failures;
mod fixture;
mod handles;
mod identities;
mod installed;
mod invocation;
mod issuers;
mod ledger;
mod live;
mod long_output;
mod plugins;
mod principals;
mod registration;
mod removal;
mod runs;
mod tenants;
