//! What a script reads from standard input.

use std::sync::Arc;

use tokio::{io::AsyncWriteExt, net::unix::pipe};

use crate::domain::script::Script;

/// Writes all of standard input and closes it. A script that does not read it to the end is none of
/// our concern.
pub(super) async fn standard_input(mut stdin: pipe::Sender, script: Arc<Script>) {
    let _ = stdin.write_all(&script.stdin).await;
}
