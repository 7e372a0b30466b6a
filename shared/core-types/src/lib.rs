//! Identifiers, clock, limits and page tokens that every Tavern crate shares.
//!
//! The crate does no I/O apart from [`clock`], the one module of the workspace that may read the
//! time and randomness of the system. The crate names no tokio, tonic or sqlx, so that pure code
//! can use it.

pub mod clock;
pub mod depth;
pub mod digest;
pub mod durability;
pub mod id;
pub mod issued_name;
pub mod load_diagnostic;
pub mod page;
pub mod per_tenant;
pub mod principal;
pub mod reach;
pub mod reference;
pub mod run_cursor;
pub mod run_id;
pub mod tenant;
pub mod text;

pub use clock::{Clock, IdSource, SystemClock, SystemIds, Timestamp, secret_bytes};
pub use depth::{CallPath, DepthExceeded, MAX_CALL_DEPTH};
pub use digest::ContentDigest;
pub use durability::Durability;
pub use id::{
    CONVERSATION_OF_TEXT, CONVERSATION_OF_WORKFLOW, ConversationId, EffectId, IdError, NodeId,
    PluginId, ProfileId, RequestId, ScheduleId, ToolId, WorkflowId,
};
pub use load_diagnostic::{LoadDiagnostic, LoadSeverity};
pub use page::{PageToken, PageTokenError};
pub use per_tenant::PerTenant;
pub use principal::Principal;
pub use reach::Reach;
pub use reference::{Reference, ReferenceKind};
pub use run_cursor::{RunCursor, RunCursorError};
pub use run_id::{RunId, RunIdError, RunOwner};
pub use tenant::Tenant;
