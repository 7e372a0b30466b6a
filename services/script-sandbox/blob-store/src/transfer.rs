//! Blobs that move between a directory and a server.

use std::path::Path;

use server_files::ServerFiles;

use crate::{
    directory::{Directory, FileName},
    error::OpenError,
    server::ServerBlobs,
};

/// Copies the blobs of a directory to a server. Returns their number.
///
/// # Errors
/// Another process uses the directory, or one of both fails; a repeat is complete.
pub fn copy_to(server: &ServerFiles, path: &Path) -> Result<u64, OpenError> {
    let server = ServerBlobs(server.clone());
    let directory = Directory::open(path)?;
    let blobs = directory.scan()?;
    for blob in &blobs {
        let content = directory.read(&FileName::new(&blob.key, blob.size));
        let mut content = content.map_err(OpenError::at(path))?;
        server.store(&blob.key, blob.size, &mut content)?;
        server.put(&blob.key, blob.size, blob.used)?;
    }
    Ok(blobs.len() as u64)
}

/// Copies the blobs of a server to a directory. Returns their number.
///
/// # Errors
/// As [`copy_to`].
pub fn copy_from(server: &ServerFiles, path: &Path) -> Result<u64, OpenError> {
    let server = ServerBlobs(server.clone());
    let directory = Directory::open(path)?;
    let blobs = server.scan()?;
    for blob in &blobs {
        let name = FileName::new(&blob.key, blob.size);
        if directory.read(&name).is_err() {
            server.fetch(&directory, &blob.key, &name)?;
        }
        directory
            .touch(&name, blob.used)
            .map_err(OpenError::at(path))?;
    }
    Ok(blobs.len() as u64)
}
