//! The description of a kind of document.

use std::{collections::BTreeMap, fmt, sync::Arc};

use run_events::RunMeta;

/// A kind of document.
pub trait Kind: fmt::Debug + Send + Sync + 'static {
    /// The document.
    type Document: fmt::Debug + Send + Sync + 'static;
    /// All problems of a text.
    type Invalid: fmt::Display + fmt::Debug + Clone + Send + Sync + 'static;

    /// The name, in the database and in logs.
    const NAME: &'static str;
    /// The largest file, in bytes.
    const MAX_BYTES: usize;
    /// The name of a file that is in a directory of its own; empty if there is none.
    const NESTED: &'static str = "";
    /// Whether earlier states are kept as revisions.
    const REVISIONS: bool = false;
    /// Whether the owner reads changed files again, by [`follow_files`] or on request; else each read of a document
    /// does.
    ///
    /// [`follow_files`]: crate::Documents::follow_files
    const FOLLOWED: bool = true;
    /// Whether a file that can no longer be read stays in force as it was before.
    const KEEPS_LAST_GOOD: bool = false;

    /// Returns the id of a document.
    fn id(document: &Self::Document) -> &str;

    /// Returns the text of a document as it was written.
    fn text(document: &Self::Document) -> &str;

    /// Returns the digest that changes when the document does.
    fn etag(document: &Self::Document) -> String;

    /// Returns the author's label for this state of a document; empty for none.
    fn label(_document: &Self::Document) -> &str {
        ""
    }

    /// Reads a text. Its id is `id` where the text has none itself.
    ///
    /// # Errors
    /// All problems of the text.
    fn read(&self, id: &str, text: &str) -> Result<Self::Document, Self::Invalid>;

    /// Reads a file.
    ///
    /// # Errors
    /// All problems of the text.
    fn read_file(
        &self,
        file: &FilePlace<'_>,
        text: &Arc<str>,
    ) -> Result<Self::Document, Self::Invalid> {
        self.read(file.stem, text)
    }

    /// Creates the finding of a file whose bytes cannot be read.
    fn unreadable(&self, problem: String) -> Self::Invalid;

    /// Logs the remarks on a file that was read.
    fn remark(&self, _path: &str, _document: &Self::Document) {}

    /// Returns the revisions of a document that a run uses.
    fn used(&self, _id: &str, _meta: &RunMeta) -> Vec<u64> {
        Vec::new()
    }
}

/// A file among others of its directory.
#[derive(Clone, Copy, Debug)]
pub struct FilePlace<'a> {
    /// The name without its extension.
    pub stem: &'a str,
    /// The texts of all files of the directory that can be read, by name without extension.
    pub texts: &'a Arc<BTreeMap<String, Arc<str>>>,
}
