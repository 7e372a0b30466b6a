//! Approvals as they are stored. Tools and gRPC servers that the operator added are [`documents`].

pub(crate) mod approvals;
pub(crate) mod old_approvals;

use core_types::Tenant;
use documents::Shelf;
use sql_store::Migrations;

pub use sql_store::StoreError;

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The tables of this service.
pub const MIGRATIONS: Migrations = Migrations::new("tool_registry", &MIGRATOR);

/// The tools that the operator added, with their definitions as they were given.
pub(crate) const TOOLS: Shelf = Shelf {
    tenant: Tenant::DEFAULT,
    kind: "tool",
};

/// The gRPC servers that the operator added.
pub(crate) const BACKENDS: Shelf = Shelf {
    tenant: Tenant::DEFAULT,
    kind: "backend",
};
