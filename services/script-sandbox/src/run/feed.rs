//! What goes into a script: its files and its standard input.

use std::{io, sync::Arc};

use tokio::{
    io::AsyncWriteExt,
    net::{UnixStream, unix::pipe},
};

use sandbox_launcher::{channel, plan::Delivery};

use crate::domain::request::{Program, Script};

/// Sends the files of the first delivery.
pub(crate) async fn files(
    files: &mut UnixStream,
    delivery: &Delivery,
    script: &Script,
) -> io::Result<()> {
    files.write_all(&channel::frame(delivery)?).await?;
    // In the order of the delivery: files, source, input.
    for file in &script.files {
        files.write_all(&file.content).await?;
    }
    if let Program::Source(source) = &script.program {
        files.write_all(source.as_bytes()).await?;
    }
    files.write_all(script.input_json.as_bytes()).await
}

/// Writes all of standard input and closes it. A script that does not read it to the end is none of
/// our concern.
pub(super) async fn standard_input(mut stdin: pipe::Sender, script: Arc<Script>) {
    let _ = stdin.write_all(&script.stdin).await;
}
