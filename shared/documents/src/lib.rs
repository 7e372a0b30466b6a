//! Documents: texts under an id that callers put, read, list and delete, and that may also come
//! from files.
//!
//! A [`Kind`] defines the reading of a text; [`Documents`] does the rest for all kinds. A document
//! that was put hides a file of its id; when it is deleted, the file is in force again. A file is
//! never deleted.
//!
//! - [`store`]: the seam to a database. [`database`] implements it, in a file or at a server; `tests/it`
//!   runs on both.
//! - [`requests`]: request ids that were used, with the first answer to each.
//! - [`kind`]: the description of a kind of document.
//! - [`files`]: the documents of a directory.
//! - [`documents`]: stored documents and documents of files together.
//! - [`change`]: the reasons why a document is neither stored nor deleted.

pub mod change;
pub mod database;
pub mod documents;
pub mod files;
pub mod kind;
pub mod requests;
pub mod store;

pub use change::ChangeError;
pub use database::{MIGRATIONS, SERVER_MIGRATIONS, StoredDocuments};
pub use documents::{DocumentParts, Documents, Known, Listed, Put};
pub use files::FileChanges;
pub use kind::{FilePlace, Kind};
pub use requests::{Request, RequestStore, Seen};
pub use store::{Collection, DocumentStore, RevisionRow, StoreError};
