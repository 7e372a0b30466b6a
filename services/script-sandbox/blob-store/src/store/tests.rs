use std::{fs, path::Path, time::SystemTime};

use core_types::Tenant;

use super::*;

mod at_server;

fn settings(directory: &Path) -> BlobSettings {
    BlobSettings {
        directory: directory.to_owned(),
        total: 64 << 10,
        per_caller: 32 << 10,
        largest: 16 << 10,
        ..BlobSettings::default()
    }
}

/// Opens a directory, which has copies in the tests of `at_server`.
fn open(directory: &Path) -> BlobStore {
    let server = postgres_kit::files::of_test();
    BlobStore::open_bounded(&settings(directory), Arc::new(Unbounded), server).unwrap()
}

fn caller() -> Caller {
    Caller::named(Tenant::DEFAULT, "alice")
}

fn put(blobs: &BlobStore, caller: &Caller, content: &[u8]) -> BlobDigest {
    let mut incoming = blobs.take(caller).unwrap();
    for piece in content.chunks(1000) {
        incoming.write(piece).unwrap();
    }
    incoming.finish(None).unwrap().digest
}

fn content(blobs: &BlobStore, caller: &Caller, digest: BlobDigest) -> Result<Vec<u8>, BlobError> {
    let held = blobs.hold(caller, digest)?;
    let mut bytes = vec![0; held.size() as usize];
    held.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Every file below a directory except the lock.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false if entry.file_name() == "lock" => {}
                false => found.push(entry.path()),
            }
        }
    }
    found
}

#[test]
fn what_goes_in_comes_out_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let large: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
    let digests = [&b""[..], b"text", &large].map(|each| put(&blobs, &caller(), each));
    assert_eq!(digests[1], BlobDigest::of(b"text"));
    drop(blobs);
    let blobs = open(directory.path());
    for (digest, expected) in digests.into_iter().zip([&b""[..], b"text", &large]) {
        assert_eq!(content(&blobs, &caller(), digest).unwrap(), expected);
        let known = blobs.stat(&caller(), digest).unwrap();
        assert_eq!(known.size, expected.len() as u64);
    }
}

#[test]
fn a_digest_means_nothing_to_another_caller() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let digest = put(&blobs, &caller(), b"mine");
    let other = Caller::named(Tenant::DEFAULT, "bob");
    assert_eq!(blobs.stat(&other, digest), None);
    assert!(matches!(
        content(&blobs, &other, digest),
        Err(BlobError::NotFound(_))
    ));
}

#[test]
fn equal_bytes_of_two_tenants_are_two_blobs_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let acme = Caller::named(Tenant::new("acme").unwrap(), "alice");
    let blobs = open(directory.path());
    let digest = put(&blobs, &caller(), b"equal");
    assert_eq!(blobs.stat(&acme, digest), None);
    let mut incoming = blobs.take(&acme).unwrap();
    incoming.write(b"equal").unwrap();
    assert!(!incoming.finish(Some(digest)).unwrap().existed);
    drop(blobs);
    // The directories of the default tenant are those of the versions before there were others.
    let digest_of_name = BlobDigest::of(b"alice").to_string();
    let kept = format!("{}/{digest}-5", &digest_of_name[..40]);
    assert!(directory.path().join(&kept).is_file());
    assert!(directory.path().join(format!("acme.{kept}")).is_file());
    fs::remove_file(directory.path().join(kept)).unwrap();
    let blobs = open(directory.path());
    assert_eq!(blobs.stat(&caller(), digest), None);
    assert_eq!(content(&blobs, &acme, digest).unwrap(), b"equal");
}

#[test]
fn an_upload_that_breaks_off_or_is_another_content_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let mut incoming = blobs.take(&caller()).unwrap();
    incoming.write(&[1; 5000]).unwrap();
    assert_eq!(files(directory.path()).len(), 1);
    drop(incoming);
    let mut incoming = blobs.take(&caller()).unwrap();
    incoming.write(b"this").unwrap();
    let wrong = incoming.finish(Some(BlobDigest::of(b"that")));
    assert!(
        matches!(wrong, Err(BlobError::OtherContent { observed }) if observed == BlobDigest::of(b"this"))
    );
    let mut incoming = blobs.take(&caller()).unwrap();
    let large = incoming.write(&vec![0; (16 << 10) + 1]);
    assert!(matches!(
        large,
        Err(BlobError::TooLarge {
            maximum: 16384,
            observed: 16385
        })
    ));
    drop(incoming);
    assert!(files(directory.path()).is_empty());
    // The room is free again.
    let first = put(&blobs, &caller(), &[2; 16 << 10]);
    put(&blobs, &caller(), &[3; 16 << 10]);
    assert!(blobs.stat(&caller(), first).is_some());
}

#[test]
fn a_crash_leaves_no_half_blob() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let digest = put(&blobs, &caller(), &[7; 9000]);
    let kept = put(&blobs, &caller(), b"kept");
    drop(blobs);
    // The leftovers of a process that was killed, and of a machine that lost its power.
    fs::write(directory.path().join("incoming/5"), "half").unwrap();
    let cut = files(directory.path())
        .into_iter()
        .find(|path| path.to_string_lossy().contains(&digest.to_string()))
        .unwrap();
    fs::File::options()
        .write(true)
        .open(&cut)
        .unwrap()
        .set_len(100)
        .unwrap();
    fs::write(cut.with_file_name("stranger"), "x").unwrap();
    let blobs = open(directory.path());
    assert_eq!(blobs.stat(&caller(), digest), None);
    assert_eq!(content(&blobs, &caller(), kept).unwrap(), b"kept");
    assert_eq!(files(directory.path()).len(), 1);
}

#[test]
fn a_damaged_blob_is_never_given_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let digest = put(&blobs, &caller(), b"good");
    fs::write(&files(directory.path())[0], "evil").unwrap();
    assert!(matches!(
        blobs.hold(&caller(), digest),
        Err(BlobError::Corrupt(_))
    ));
    assert!(matches!(
        blobs.hold(&caller(), digest),
        Err(BlobError::NotFound(_))
    ));
    assert_eq!(put(&blobs, &caller(), b"good"), digest);
    assert_eq!(content(&blobs, &caller(), digest).unwrap(), b"good");
}

#[test]
fn what_is_held_stays_while_others_go_for_room() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let held = blobs
        .hold(&caller(), put(&blobs, &caller(), &[0; 16 << 10]))
        .unwrap();
    let other = put(&blobs, &caller(), &[1; 16 << 10]);
    put(&blobs, &caller(), &[2; 8 << 10]);
    assert_eq!(blobs.stat(&caller(), other), None);
    assert!(blobs.stat(&caller(), held.digest()).is_some());
    drop(held);
    assert_eq!(files(directory.path()).len(), 2);
}

#[test]
fn uses_are_remembered_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let digests = [1_u8, 2, 3, 4].map(|byte| put(&blobs, &caller(), &[byte; 8 << 10]));
    assert!(blobs.stat(&caller(), digests[0]).is_some());
    drop(blobs);
    let blobs = open(directory.path());
    put(&blobs, &caller(), &[5; 8 << 10]);
    assert_eq!(blobs.stat(&caller(), digests[1]), None);
    assert!(blobs.stat(&caller(), digests[0]).is_some());
}

#[test]
fn what_has_aged_is_removed_from_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let digest = put(&blobs, &caller(), b"old");
    drop(blobs);
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    let file = fs::File::open(&files(directory.path())[0]).unwrap();
    file.set_modified(long_ago).unwrap();
    let blobs = open(directory.path());
    assert_eq!(blobs.stat(&caller(), digest), None);
    assert!(files(directory.path()).is_empty());
}

#[test]
fn one_process_uses_a_directory_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let second = BlobStore::open(&settings(directory.path()));
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    drop(first);
    open(directory.path());
}

#[test]
fn temporary_blobs_end_with_their_store() {
    let blobs = BlobStore::open(&BlobSettings::default()).unwrap();
    put(&blobs, &caller(), b"short");
    let path = blobs.inner.directory.path().to_owned();
    assert!(path.is_dir());
    // A second store neither takes the first for abandoned nor shares its blobs.
    let other = BlobStore::open(&BlobSettings::default()).unwrap();
    assert_eq!(other.stat(&caller(), BlobDigest::of(b"short")), None);
    assert!(path.is_dir());
    drop(blobs);
    assert!(!path.exists());
}

#[test]
fn many_writers_of_the_same_content_make_one_blob() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let blobs = blobs.clone();
            std::thread::spawn(move || put(&blobs, &caller(), &[9; 3000]))
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.join().unwrap(), BlobDigest::of(&[9; 3000]));
    }
    assert_eq!(files(directory.path()).len(), 1);
}

#[test]
fn the_blobs_of_a_tenant_are_removed_step_by_step_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = open(directory.path());
    let acme = Tenant::new("acme").unwrap();
    // A tenant whose name is the beginning of another's.
    let others = [Tenant::DEFAULT, Tenant::new("acme-2").unwrap()];
    let named = |tenant| [Caller::named(tenant, "alice"), Caller::named(tenant, "")];
    for caller in [acme, others[0], others[1]].into_iter().flat_map(named) {
        put(&blobs, &caller, b"a");
        put(&blobs, &caller, b"b");
    }
    let held = blobs.hold(&named(acme)[0], BlobDigest::of(b"a")).unwrap();
    assert_eq!(blobs.remove_of(acme, 2).unwrap(), 2);
    // A blob in use stays, and is counted.
    assert_eq!(blobs.remove_of(acme, 2).unwrap(), 1);
    assert_eq!(blobs.remove_of(acme, 2).unwrap(), 1);
    drop(held);
    assert_eq!(blobs.remove_of(acme, 2).unwrap(), 0);
    assert_eq!(files(directory.path()).len(), 8);
    let mut bytes = blobs.bytes_by_tenant();
    bytes.sort();
    bytes.reverse();
    assert_eq!(bytes, others.map(|tenant| (tenant, 4 * 4096)));
    for caller in others.into_iter().flat_map(named) {
        assert!(blobs.stat(&caller, BlobDigest::of(b"a")).is_some());
    }
    drop(blobs);
    assert_eq!(open(directory.path()).bytes_by_tenant().len(), 2);
}
