//! Contents, in pieces.

use std::{
    io::{self, Read},
    time::Duration,
};

use core_types::{ContentDigest, Tenant};
use sql_store::{Database, Session, Statement};

use crate::{FilesError, ServerFiles};

/// The size of a piece, in bytes.
const PIECE: usize = 1 << 20;

impl ServerFiles {
    /// Stores a content of so many bytes, unless the tenant has it. A content that becomes no file within a day is
    /// removed.
    ///
    /// # Errors
    /// [`FilesError`]; nothing is stored then. Content of another size is [`FilesError::Copy`].
    pub fn store(
        &self,
        tenant: Tenant,
        digest: ContentDigest,
        bytes: u64,
        content: &mut (dyn Read + Send),
    ) -> Result<(), FilesError> {
        self.wait(self.store_pieces((tenant, digest), bytes, content))
    }

    /// Reads a content, in pieces. Returns whether it is there. The caller compares the digest.
    ///
    /// # Errors
    /// [`FilesError`]; some pieces may have been read.
    pub fn read(
        &self,
        tenant: Tenant,
        digest: ContentDigest,
        mut take: impl FnMut(&[u8]) -> io::Result<()> + Send,
    ) -> Result<bool, FilesError> {
        self.wait(async {
            let found: Option<(i64,)> = self.database.reader().fetch_optional(named(
                "SELECT bytes FROM core.content WHERE tenant = $1 AND digest = $2",
                (tenant, digest),
            )).await?;
            let Some((bytes,)) = found else {
                return Ok(false);
            };
            let pieces = bytes.unsigned_abs().div_ceil(PIECE as u64);
            for number in 0..i64::try_from(pieces).unwrap_or(i64::MAX) {
                let piece = named(
                    "SELECT data FROM core.content_chunk WHERE tenant = $1 AND digest = $2 AND number = $3",
                    (tenant, digest),
                );
                let (data,): (Vec<u8>,) = self.database.reader().fetch_one(piece.bind(number)).await?;
                take(&data)?;
            }
            Ok(true)
        })
    }

    async fn store_pieces(
        &self,
        key: (Tenant, ContentDigest),
        bytes: u64,
        content: &mut (dyn Read + Send),
    ) -> Result<(), FilesError> {
        loop {
            let mut transaction = self.database.begin().await?;
            let mut session = transaction.session();
            // The change that names it is durable only after it.
            session
                .execute(Statement::new("SET LOCAL synchronous_commit = off"))
                .await?;
            let made = named(
                "INSERT INTO core.content (tenant, digest, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                key,
            );
            let is_new = session.execute(made.bind(as_i64(bytes))).await? == 1;
            if is_new {
                store_new(&mut session, key, bytes, content).await?;
            } else {
                let used = "UPDATE core.content SET used = now() WHERE tenant = $1 AND digest = $2";
                if session.execute(named(used, key)).await? == 0 {
                    // It was removed in between.
                    continue;
                }
            }
            return Ok(transaction.commit().await?);
        }
    }
}

async fn store_new(
    session: &mut Session<'_>,
    key: (Tenant, ContentDigest),
    bytes: u64,
    content: &mut (dyn Read + Send),
) -> Result<(), FilesError> {
    let mut left = bytes;
    for number in 0i64.. {
        let length = left.min(PIECE as u64);
        let mut data = Vec::new();
        content.take(length).read_to_end(&mut data)?;
        if data.len() as u64 != length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if data.is_empty() {
            break;
        }
        left -= length;
        let piece = named(
            "INSERT INTO core.content_chunk (tenant, digest, number, data) VALUES ($1, $2, $3, $4)",
            key,
        );
        session.execute(piece.bind(number).bind(data)).await?;
    }
    Ok(())
}

/// Removes the contents that no file has and that were not stored within a time. It goes by rows alone, so that each
/// process may do it.
pub(crate) async fn remove_unused(database: &Database, kept: Duration) -> Result<(), FilesError> {
    let seconds = i64::try_from(kept.as_secs()).unwrap_or(i64::MAX);
    let unused = Statement::new(
        "DELETE FROM core.content WHERE used < now() - make_interval(secs => $1) AND NOT EXISTS \
         (SELECT 1 FROM core.file WHERE file.tenant = content.tenant AND file.digest = content.digest)",
    );
    Ok(database.execute(unused.bind(seconds)).await?)
}

/// Makes a statement whose first two arguments name a content.
fn named(text: &'static str, (tenant, digest): (Tenant, ContentDigest)) -> Statement {
    Statement::new(text)
        .bind(tenant.as_str())
        .bind(digest.to_string())
}

/// The number as the databases store it.
pub(crate) fn as_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
