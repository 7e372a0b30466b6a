//! Contents and places of a database.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use core_types::{ContentDigest, Tenant};
use server_files::{FileChange, FilesError, SERVER_MIGRATIONS, ServerFiles, StoredFile};

const TENANT: Tenant = Tenant::DEFAULT;

async fn files() -> Option<ServerFiles> {
    match postgres_kit::databases::at_server(&[SERVER_MIGRATIONS]).await? {
        sql_store::Database::Postgres(database) => Some(ServerFiles::new(database)),
        sql_store::Database::Sqlite(_) => None,
    }
}

fn store(files: &ServerFiles, tenant: Tenant, content: &[u8]) -> ContentDigest {
    let digest = ContentDigest::of(content);
    let bytes = content.len() as u64;
    files.store(tenant, digest, bytes, &mut &*content).unwrap();
    digest
}

fn read(files: &ServerFiles, tenant: Tenant, digest: ContentDigest) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let take = |piece: &[u8]| {
        content.extend_from_slice(piece);
        Ok(())
    };
    let found = files.read(tenant, digest, take).unwrap();
    found.then_some(content)
}

fn file(path: &str, digest: ContentDigest) -> FileChange {
    FileChange::Put(StoredFile {
        path: path.to_owned(),
        digest,
        bytes: 1,
        modified: 7,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_any_size_come_back_to_their_tenant_only() {
    let Some(files) = files().await else {
        return;
    };
    for bytes in [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20] {
        let content: Vec<u8> = (0..bytes).map(|byte: usize| byte as u8 ^ 0x5a).collect();
        let digest = store(&files, TENANT, &content);
        store(&files, TENANT, &content);
        assert!(read(&files, TENANT, digest) == Some(content), "{bytes}");
        assert_eq!(read(&files, Tenant::new("acme").unwrap(), digest), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_ends_too_early_is_not_stored() {
    let Some(files) = files().await else {
        return;
    };
    let digest = ContentDigest::of(b"whole");
    let cut_off = files.store(TENANT, digest, 5, &mut &b"who"[..]);
    assert!(matches!(cut_off, Err(FilesError::Copy(_))));
    assert_eq!(read(&files, TENANT, digest), None);
    assert_eq!(store(&files, TENANT, b"whole"), digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_place_are_made_together_and_only_on_top_of_its_version() {
    let Some(files) = files().await else {
        return;
    };
    let place = (TENANT, "a");
    assert_eq!(files.place(TENANT, "a").unwrap(), None);
    assert!(matches!(
        files.change(place, None, &[]),
        Err(FilesError::Changed)
    ));
    let opened = files.open(TENANT, "a", Some("ada")).unwrap();
    assert_eq!(opened.owner.as_deref(), Some("ada"));
    assert_eq!(files.open(TENANT, "a", Some("bob")).unwrap(), opened);
    let digest = store(&files, TENANT, b"1");
    let both = [file("x", digest), file("y", digest)];
    let version = files.change(place, Some(opened.version), &both).unwrap();
    // The content of the second file is missing, so that the first does not change either.
    let missing = [
        FileChange::Remove("x".into()),
        file("z", ContentDigest::of(b"missing")),
    ];
    let failed = files.change(place, Some(version), &missing);
    assert!(matches!(failed, Err(FilesError::Database(_))));
    let old = files.change(
        place,
        Some(opened.version),
        &[FileChange::Remove("x".into())],
    );
    assert!(matches!(old, Err(FilesError::Changed)));
    let (now, stored) = files.files(TENANT, "a").unwrap().unwrap();
    let paths: Vec<&str> = stored.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((now, paths), (version, vec!["x", "y"]));
    assert_eq!(
        files.files(Tenant::new("acme").unwrap(), "a").unwrap(),
        None
    );
    files.remove(TENANT, "a").unwrap();
    assert!(files.open(TENANT, "a", None).unwrap().version > version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_goes_with_the_last_place_of_its_tenant() {
    let Some(files) = files().await else {
        return;
    };
    let acme = Tenant::new("acme").unwrap();
    let digest = store(&files, acme, b"1");
    store(&files, TENANT, b"1");
    for (tenant, place) in [
        (acme, "w/1"),
        (acme, "w/2"),
        (acme, "other"),
        (TENANT, "w/1"),
    ] {
        files.open(tenant, place, None).unwrap();
        files
            .change((tenant, place), None, &[file("x", digest)])
            .unwrap();
    }
    assert_eq!(files.remove_of(acme, "w/", 1).unwrap(), 1);
    assert_eq!(files.remove_of(acme, "w/", 1).unwrap(), 0);
    assert_eq!(read(&files, acme, digest), Some(b"1".to_vec()));
    assert_eq!(files.remove_of(acme, "", 9).unwrap(), 0);
    assert_eq!(read(&files, acme, digest), None);
    assert_eq!(read(&files, TENANT, digest), Some(b"1".to_vec()));
    assert_eq!(files.places("w/").unwrap(), [(TENANT, "w/1".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_without_files_are_removed_once_they_are_old() {
    let Some(files) = files().await else {
        return;
    };
    let (used, unused) = (
        store(&files, TENANT, b"used"),
        store(&files, TENANT, b"unused"),
    );
    files.open(TENANT, "a", None).unwrap();
    files
        .change((TENANT, "a"), None, &[file("x", used)])
        .unwrap();
    files
        .remove_unused(std::time::Duration::from_secs(3600))
        .unwrap();
    assert_eq!(read(&files, TENANT, unused), Some(b"unused".to_vec()));
    files.remove_unused(std::time::Duration::ZERO).unwrap();
    assert_eq!(read(&files, TENANT, unused), None);
    assert_eq!(read(&files, TENANT, used), Some(b"used".to_vec()));
}
