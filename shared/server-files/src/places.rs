//! Places, and the files in them.

use core_types::{ContentDigest, Tenant};
use sql_store::{Session, Statement};

use crate::{FileChange, FilesError, ServerFiles, StoredFile, StoredPlace, contents::as_i64};

/// A row of a place and one of its files, if it has some.
type Row = (
    i64,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<i64>,
);

impl ServerFiles {
    /// Returns a place, if there is one.
    ///
    /// # Errors
    /// [`FilesError::Database`].
    pub fn place(&self, tenant: Tenant, place: &str) -> Result<Option<StoredPlace>, FilesError> {
        self.wait(self.find_place(tenant, place))
    }

    /// Returns a place, which is made with an owner if there is none.
    ///
    /// # Errors
    /// [`FilesError::Database`].
    pub fn open(
        &self,
        tenant: Tenant,
        place: &str,
        owner: Option<&str>,
    ) -> Result<StoredPlace, FilesError> {
        self.wait(async {
            loop {
                if let Some(found) = self.find_place(tenant, place).await? {
                    return Ok(found);
                }
                let made = of_place(
                    "INSERT INTO core.file_place (tenant, place, owner, version) \
                     VALUES ($1, $2, $3, extract(epoch FROM clock_timestamp()) * 1000000) ON CONFLICT DO NOTHING",
                    (tenant, place),
                );
                self.database.execute(made.bind(owner.map(str::to_owned))).await?;
            }
        })
    }

    /// Returns the version and the files of a place, by path; none of one that is not there.
    ///
    /// # Errors
    /// [`FilesError::Database`].
    pub fn files(
        &self,
        tenant: Tenant,
        place: &str,
    ) -> Result<Option<(i64, Vec<StoredFile>)>, FilesError> {
        let all = of_place(
            "SELECT version, path, digest, bytes, modified FROM core.file_place LEFT JOIN core.file USING (tenant, place) \
             WHERE tenant = $1 AND place = $2 ORDER BY path",
            (tenant, place),
        );
        let rows: Vec<Row> = self.wait(self.database.reader().fetch_all(all))?;
        let version = rows.first().map(|row| row.0);
        let files = rows.into_iter().filter_map(file).collect();
        Ok(version.map(|version| (version, files)))
    }

    /// Returns the places of all tenants whose names begin with a text.
    ///
    /// # Errors
    /// [`FilesError::Database`].
    pub fn places(&self, beginning: &str) -> Result<Vec<(Tenant, String)>, FilesError> {
        let all = Statement::new(
            "SELECT tenant, place FROM core.file_place WHERE starts_with(place, $1) ORDER BY tenant, place",
        );
        let rows: Vec<(String, String)> =
            self.wait(self.database.reader().fetch_all(all.bind(beginning)))?;
        let places = rows.into_iter();
        let places = places.filter_map(|(tenant, place)| Some((Tenant::new(&tenant).ok()?, place)));
        Ok(places.collect())
    }

    /// Makes changes of a place, all of them or none. Returns the new version.
    ///
    /// # Errors
    /// [`FilesError::Changed`] if the place has another version than `expected`, where one is.
    pub fn change(
        &self,
        (tenant, place): (Tenant, &str),
        expected: Option<i64>,
        changes: &[FileChange],
    ) -> Result<i64, FilesError> {
        self.wait(async {
            let mut transaction = self.database.begin().await?;
            let mut session = transaction.session();
            let next = of_place(
                "UPDATE core.file_place SET version = version + 1 WHERE tenant = $1 AND place = $2 \
                 AND version = coalesce($3, version) RETURNING version",
                (tenant, place),
            );
            let next: Option<(i64,)> = session.fetch_optional(next.bind(expected)).await?;
            let (version,) = next.ok_or(FilesError::Changed)?;
            for change in changes {
                make(&mut session, (tenant, place), change).await?;
            }
            transaction.commit().await?;
            Ok(version)
        })
    }

    /// Removes a place with its files.
    ///
    /// # Errors
    /// [`FilesError::Database`].
    pub fn remove(&self, tenant: Tenant, place: &str) -> Result<(), FilesError> {
        let removed = "DELETE FROM core.file_place WHERE tenant = $1 AND place = $2";
        Ok(self.wait(self.database.execute(of_place(removed, (tenant, place))))?)
    }

    /// Removes at most `most` places of a tenant whose names begin with a text, and once none is left the contents that
    /// no other file of the tenant has. Returns the number of places that are left.
    ///
    /// # Errors
    /// [`FilesError::Database`]; a repeat continues.
    pub fn remove_of(
        &self,
        tenant: Tenant,
        beginning: &str,
        most: usize,
    ) -> Result<u64, FilesError> {
        self.wait(async {
            let removed = of_place(
                "DELETE FROM core.file_place WHERE tenant = $1 AND place IN (SELECT place FROM core.file_place \
                 WHERE tenant = $1 AND starts_with(place, $2) ORDER BY place LIMIT $3)",
                (tenant, beginning),
            );
            self.database.execute(removed.bind(most)).await?;
            let left = "SELECT count(*) FROM core.file_place WHERE tenant = $1 AND starts_with(place, $2)";
            let left = of_place(left, (tenant, beginning));
            let (left,): (i64,) = self.database.reader().fetch_one(left).await?;
            if left == 0 {
                let unused = Statement::new(
                    "DELETE FROM core.content WHERE tenant = $1 AND NOT EXISTS (SELECT 1 FROM core.file \
                     WHERE file.tenant = content.tenant AND file.digest = content.digest)",
                );
                self.database.execute(unused.bind(tenant.as_str())).await?;
            }
            Ok(left.unsigned_abs())
        })
    }

    async fn find_place(
        &self,
        tenant: Tenant,
        place: &str,
    ) -> Result<Option<StoredPlace>, FilesError> {
        let found = "SELECT owner, version FROM core.file_place WHERE tenant = $1 AND place = $2";
        let found = of_place(found, (tenant, place));
        let found: Option<(Option<String>, i64)> =
            self.database.reader().fetch_optional(found).await?;
        Ok(found.map(|(owner, version)| StoredPlace { owner, version }))
    }
}

async fn make(
    session: &mut Session<'_>,
    place: (Tenant, &str),
    change: &FileChange,
) -> Result<(), FilesError> {
    let statement = match change {
        FileChange::Put(file) => of_place(
            "INSERT INTO core.file (tenant, place, path, digest, bytes, modified) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (tenant, place, path) DO UPDATE SET digest = excluded.digest, bytes = excluded.bytes, \
             modified = excluded.modified",
            place,
        )
        .bind(&file.path)
        .bind(file.digest.to_string())
        .bind(as_i64(file.bytes))
        .bind(file.modified),
        FileChange::Remove(path) => of_place(
            "DELETE FROM core.file WHERE tenant = $1 AND place = $2 AND path = $3",
            place,
        )
        .bind(path),
        FileChange::RemoveOlder(path, time) => of_place(
            "DELETE FROM core.file WHERE tenant = $1 AND place = $2 AND path = $3 AND modified <= $4",
            place,
        )
        .bind(path)
        .bind(*time),
    };
    session.execute(statement).await?;
    Ok(())
}

fn file((_, path, digest, bytes, modified): Row) -> Option<StoredFile> {
    Some(StoredFile {
        path: path?,
        digest: ContentDigest::parse(&digest?)?,
        bytes: bytes?.unsigned_abs(),
        modified: modified?,
    })
}

/// Makes a statement whose first two arguments name a place.
fn of_place(text: &'static str, (tenant, place): (Tenant, &str)) -> Statement {
    Statement::new(text).bind(tenant.as_str()).bind(place)
}
