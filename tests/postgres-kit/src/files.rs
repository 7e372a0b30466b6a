//! Files at the server of all tests, for stores that block.

use std::cell::RefCell;

use server_files::{SERVER_MIGRATIONS, ServerFiles};
use sql_store::Database;
use tokio::runtime::Runtime;

thread_local! {
    /// The files of the test of this thread, and the runtime that does their work.
    static FILES: RefCell<Option<(ServerFiles, Runtime)>> = const { RefCell::new(None) };
}

/// Makes a test of each function of the module above, with [`at_server`].
#[macro_export]
macro_rules! at_server {
    ($($case:ident)*) => {$(
        #[test]
        fn $case() {
            $crate::files::at_server(super::$case);
        }
    )*};
}

/// Runs a test that finds files at a new database by [`of_test`], on a host with PostgreSQL.
///
/// # Panics
/// A server that does not answer.
pub fn at_server(test: impl FnOnce()) {
    let runtime = Runtime::new().expect("a runtime");
    let opened = runtime.block_on(async {
        match crate::databases::at_server(&[SERVER_MIGRATIONS]).await? {
            Database::Postgres(database) => Some(ServerFiles::new(database)),
            Database::Sqlite(_) => None,
        }
    });
    if let Some(files) = opened {
        FILES.set(Some((files, runtime)));
        test();
        FILES.set(None);
    }
}

/// Returns the files at the server of the test of this thread, if it has some.
pub fn of_test() -> Option<ServerFiles> {
    FILES.with_borrow(|files| files.as_ref().map(|(files, _)| files.clone()))
}
