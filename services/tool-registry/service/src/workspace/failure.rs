//! Errors of the file system as failures that a model can act on.

use call_outcome::{Category, Failure};
use std::io::{self, ErrorKind};

use tool_domain::path;

/// The number of the error for too many links in a path (ELOOP).
const TOO_MANY_LINKS: i32 = 40;

/// Makes a failure of an error at `place`, a path beneath the workspace or a description.
pub(super) fn of_io(place: &str, error: &io::Error) -> Failure {
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
pub(super) fn is_directory(place: &str) -> (Category, &'static str, String) {
    let message = format!("'{place}' is a directory, not a file; name a file in it");
    (Category::Domain, "is_a_directory", message)
}

/// Makes the failure of something beyond a limit.
pub(super) fn beyond(code: &str, message: String) -> Failure {
    Failure::new(Category::Limit, code, message)
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
