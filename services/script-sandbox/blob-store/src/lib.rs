//! Content kept by its digest.
//!
//! Each caller has a store of its own, so that a digest does not reveal the blobs of other callers,
//! and belongs to a tenant.
//! The store is bounded in bytes, in all and for each caller, and blobs expire: `index` decides
//! that in memory, `directory` carries it out on disk, `incoming` receives a new blob and `pinned`
//! keeps a blob that is in use. Where the files are at a server (`server-files`), the blobs are rows there, and the
//! directory has copies of them.
//!
//! Everything here blocks, if briefly; an async caller goes through `spawn_blocking`.

mod bounds;
mod caller;

mod directory;
mod error;
mod incoming;
mod index;
mod inner;
mod key;
mod pinned;
mod server;
mod settings;
mod store;
mod transfer;

pub use bounds::Bounds;
pub use caller::Caller;
pub use core_types::ContentDigest as BlobDigest;
pub use directory::{claim, claim_left, claim_new};
pub use error::{BlobError, OpenError};
pub use incoming::{Incoming, Stored};
pub use inner::BlobInfo;
pub use pinned::PinnedBlob;
pub use settings::BlobSettings;
pub use store::BlobStore;
pub use transfer::{copy_from, copy_to};
