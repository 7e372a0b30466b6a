//! Return of the space that deleted rows leave: free pages go back to the file system in steps.

use std::path::Path;

use sqlx::{SqliteConnection, sqlite::SqlitePool};

/// Larger files of earlier versions are not converted at the start.
const CONVERTED_AT_OPEN_BYTES: u64 = 64 << 20;
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The largest number of pages of one step, 1 MiB.
const STEP_PAGES: u64 = 256;
/// The number of pages that stay free in any case.
const SPARE_PAGES: u64 = 16;
/// The divisor of a file's pages for the part that stays free for later writes.
const SPARE_PART: u64 = 20;
/// The answer of `PRAGMA auto_vacuum` for a file whose free pages can be returned in steps.
const INCREMENTAL: i64 = 2;

/// Returns up to 1 MiB of free pages to the file system, in one transaction. Returns the number of bytes; zero
/// if no more than a twentieth of the file, or 16 pages, is free, or if the file cannot return pages in steps.
///
/// # Errors
/// The database's error.
pub async fn reclaim(connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    if mode(connection).await? != INCREMENTAL {
        return Ok(0);
    }
    let free = number(connection, "PRAGMA freelist_count").await?;
    let pages = number(connection, "PRAGMA page_count").await?;
    let surplus = free.saturating_sub(SPARE_PAGES.max(pages / SPARE_PART));
    if surplus == 0 {
        return Ok(0);
    }
    let step = surplus.min(STEP_PAGES);
    // The text holds only a number.
    let text = format!("PRAGMA incremental_vacuum({step})");
    sqlx::query(sqlx::AssertSqlSafe(text))
        .fetch_all(&mut *connection)
        .await?;
    let left = number(connection, "PRAGMA page_count").await?;
    Ok(pages.saturating_sub(left) * PAGE_BYTES)
}

/// Converts a file, new or of an earlier version, so that it can return pages in steps. A file so large that its
/// service would start late stays as it is, and the log states the remedy.
pub(crate) async fn convert(pool: &SqlitePool, path: &Path, bytes: u64) -> Result<(), sqlx::Error> {
    let mut connection = pool.acquire().await?;
    if mode(&mut connection).await? == INCREMENTAL {
        return Ok(());
    }
    let path = path.display();
    if bytes > CONVERTED_AT_OPEN_BYTES {
        tracing::warn!(
            %path,
            "the file keeps the space of what is deleted; stop the service once and run \
             `sqlite3 FILE 'PRAGMA auto_vacuum=INCREMENTAL; VACUUM;'`"
        );
        return Ok(());
    }
    for text in ["PRAGMA auto_vacuum = INCREMENTAL", "VACUUM"] {
        sqlx::query(text).execute(&mut *connection).await?;
    }
    tracing::debug!(%path, "the file returns the space of what is deleted from now on");
    Ok(())
}

async fn mode(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("PRAGMA auto_vacuum")
        .fetch_one(connection)
        .await
}

async fn number(connection: &mut SqliteConnection, text: &'static str) -> Result<u64, sqlx::Error> {
    let number: i64 = sqlx::query_scalar(text).fetch_one(connection).await?;
    Ok(u64::try_from(number).unwrap_or_default())
}
