//! The archive in which a plugin is kept.

use std::io::{self, Cursor, Write as _};

use flate2::{Compression, write::DeflateEncoder};
use zip::{CompressionMethod, DateTime, ZipWriter, result::ZipResult, write::SimpleFileOptions};

use super::MAX_RATIO;
use crate::PluginFiles;

/// Writes files as an archive from which [`read_archive`](crate::read_archive) reads equal files: sorted by path, all of
/// one time and mode, without directories, and deflated where that saves bytes. Content that would be inflated more than
/// 20 times is stored, as a reader cannot tell it from a bomb.
pub fn write_archive(files: &PluginFiles) -> Vec<u8> {
    write(files).expect("files within the bounds of a plugin fit into an archive in memory")
}

fn write(files: &PluginFiles) -> ZipResult<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files.all() {
        let options = SimpleFileOptions::default()
            .compression_method(method_for(&file.content)?)
            .last_modified_time(DateTime::default())
            .unix_permissions(0o644);
        writer.start_file(file.path.as_str(), options)?;
        writer.write_all(&file.content)?;
    }
    Ok(writer.finish()?.into_inner())
}

fn method_for(content: &[u8]) -> io::Result<CompressionMethod> {
    let mut encoder = DeflateEncoder::new(Counted(0), Compression::default());
    encoder.write_all(content)?;
    let Counted(packed) = encoder.finish()?;
    let is_useful = packed < content.len() && content.len() <= packed.saturating_mul(MAX_RATIO);
    Ok(match is_useful {
        true => CompressionMethod::Deflated,
        false => CompressionMethod::Stored,
    })
}

/// Counts bytes in the place of keeping them.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
