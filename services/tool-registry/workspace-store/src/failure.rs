//! Errors of the file system as failures that a model can act on.

use call_outcome::{Category, Failure};
use std::io::{self, ErrorKind};

use core_types::ConversationId;
use tool_domain::path;

/// A workspace as a whole, in failures.
pub(crate) const WORKSPACE: &str = "the conversation's workspace";

/// The number of the error for too many links in a path (ELOOP).
const TOO_MANY_LINKS: i32 = 40;

/// Makes a failure of an error at `place`, a path beneath the workspace or a description.
pub(crate) fn of_io(place: &str, error: &io::Error) -> Failure {
    // The directory handle refuses a path that leads out without asking the system.
    let refused_by_handle =
        error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none();
    if refused_by_handle || error.raw_os_error() == Some(TOO_MANY_LINKS) {
        return path::outside(place);
    }
    let (category, code, message) = match error.kind() {
        ErrorKind::NotFound => (
            Category::Domain,
            "file_not_found",
            format!(
                "there is no file '{place}' in the conversation's workspace; list the files first"
            ),
        ),
        ErrorKind::IsADirectory => is_directory(place),
        ErrorKind::NotADirectory => (
            Category::Domain,
            "not_a_directory",
            format!("a part of '{place}' is a file, not a directory; take another path"),
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
            Category::Limit,
            "disk_full",
            format!(
                "'{place}' was not written, because the disk is full; it is unchanged: delete files \
                     that are not needed, or ask the operator for room"
            ),
        ),
        ErrorKind::FileTooLarge => (
            Category::Limit,
            "too_large",
            format!("'{place}' is larger than the system allows; split it"),
        ),
        ErrorKind::InvalidFilename => (
            Category::Validation,
            "invalid_path",
            format!("'{place}' has a name that the file system does not take; use a shorter one"),
        ),
        ErrorKind::ReadOnlyFilesystem => (
            Category::Dependency,
            "storage_read_only",
            format!(
                "'{place}' was not written, because the storage is read-only; tell the operator"
            ),
        ),
        _ => {
            tracing::warn!(place, error = %error, "a file operation failed");
            (
                Category::Dependency,
                "storage_failed",
                format!(
                    "the storage failed at '{place}'; try again, and tell the operator if it stays"
                ),
            )
        }
    };
    let failure = Failure::new(category, code, message);
    let transient = matches!(failure.code.as_str(), "disk_full" | "storage_failed");
    if transient {
        failure.retryable()
    } else {
        failure
    }
}

/// Describes a directory in the place of a file.
pub(crate) fn is_directory(place: &str) -> (Category, &'static str, String) {
    let message = format!("'{place}' is a directory, not a file; name a file in it");
    (Category::Domain, "is_a_directory", message)
}

/// Makes the failure of a conversation that is not there for the caller.
pub fn no_such_conversation(conversation: &ConversationId) -> Failure {
    let message =
        format!("there is no conversation '{conversation}'; leave it out, or name one of yours");
    Failure::new(Category::Domain, "no_such_conversation", message)
}

/// Makes the failure of a file that is larger than a file may be.
pub(crate) fn too_large(path: &str, bytes: u64, most: usize) -> Failure {
    let message = format!("'{path}' would have {bytes} bytes; a file has at most {most}: split it");
    Failure::new(Category::Limit, "too_large", message)
}

/// Makes the failure of a text that is larger than one call reads.
pub(crate) fn too_long(path: &str, bytes: u64, most: usize) -> Failure {
    let message = format!(
        "'{path}' has {bytes} bytes; at most {most} can be read in one call: split the file, or read it with code"
    );
    Failure::new(Category::Limit, "too_large", message)
}

/// Makes the failure of a workspace without room, which names its largest files.
pub fn full(problem: &str, largest: &[(String, u64)]) -> Failure {
    let largest: Vec<String> = largest
        .iter()
        .map(|(path, bytes)| format!("'{path}' ({bytes} bytes)"))
        .collect();
    let message = format!(
        "the conversation's workspace is full: {problem}; delete files first, the largest are {}",
        largest.join(", ")
    );
    Failure::new(Category::Limit, "workspace_full", message)
}

/// Makes the failure of a path that differs from another one only in case.
pub(crate) fn other_case(path: &str, other: &str) -> Failure {
    let message = format!(
        "the path '{path}' differs only in case from '{other}', which exists; take that one, or another name"
    );
    Failure::new(Category::Validation, "invalid_path", message)
}

/// Makes the failure of a path that a file cannot be moved to.
pub(crate) fn taken(path: &str) -> Failure {
    let message =
        format!("there is an entry '{path}' already; delete it first, or take another path");
    Failure::new(Category::Validation, "path_taken", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_system_has_its_code() {
        for (number, code, retryable) in [
            (2, "file_not_found", false),
            (5, "storage_failed", true),
            (13, "storage_failed", true),
            (20, "not_a_directory", false),
            (21, "is_a_directory", false),
            (27, "too_large", false),
            (28, "disk_full", true),
            (30, "storage_read_only", false),
            (36, "invalid_path", false),
            (40, "path_outside_workspace", false),
            (122, "disk_full", true),
        ] {
            let failure = of_io("a/b", &io::Error::from_raw_os_error(number));
            assert_eq!(
                (failure.code.as_str(), failure.retryable),
                (code, retryable),
                "{number}"
            );
            assert!(failure.message.contains("a/b"));
        }
    }
}
