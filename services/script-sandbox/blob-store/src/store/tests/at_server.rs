//! The same with blobs at a server.

use postgres_kit::{
    at_server,
    files::{at_server, of_test},
};

use super::*;

at_server! {
    a_digest_means_nothing_to_another_caller
    an_upload_that_breaks_off_or_is_another_content_leaves_nothing
    many_writers_of_the_same_content_make_one_blob
    the_blobs_of_a_tenant_are_removed_step_by_step_and_no_others
    uses_are_remembered_over_a_restart
    what_goes_in_comes_out_also_after_a_restart
    what_is_held_stays_while_others_go_for_room
}

#[test]
fn a_blob_is_there_whatever_became_of_its_copy() {
    at_server(|| {
        let directory = tempfile::tempdir().unwrap();
        let blobs = open(directory.path());
        let digest = put(&blobs, &caller(), b"good");
        fs::write(&files_in(&directory)[0], "evil").unwrap();
        assert_eq!(content(&blobs, &caller(), digest).unwrap(), b"good");
        fs::remove_file(&files_in(&directory)[0]).unwrap();
        assert_eq!(content(&blobs, &caller(), digest).unwrap(), b"good");
        let other = tempfile::tempdir().unwrap();
        let blobs = open(other.path());
        assert!(files_in(&other).is_empty());
        assert_eq!(content(&blobs, &caller(), digest).unwrap(), b"good");
    });
}

#[test]
fn copies_of_blobs_that_are_gone_are_removed_at_the_start() {
    at_server(|| {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let blobs = open(directory.path());
        put(&blobs, &caller(), b"gone");
        drop(blobs);
        assert_eq!(
            open(other.path()).remove_of(Tenant::DEFAULT, 10).unwrap(),
            0
        );
        open(directory.path());
        assert!(files_in(&directory).is_empty());
    });
}

#[test]
fn blobs_move_to_a_server_and_back() {
    let (directory, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let blobs = open(directory.path());
    let digest = put(&blobs, &caller(), b"moved");
    drop(blobs);
    at_server(|| {
        let server = of_test().unwrap();
        for _ in 0..2 {
            assert_eq!(crate::copy_to(&server, directory.path()).unwrap(), 1);
            assert_eq!(crate::copy_from(&server, back.path()).unwrap(), 1);
        }
    });
    if postgres_kit::shared().is_none() {
        return;
    }
    let blobs = open(back.path());
    assert_eq!(content(&blobs, &caller(), digest).unwrap(), b"moved");
}

fn files_in(directory: &tempfile::TempDir) -> Vec<std::path::PathBuf> {
    super::files(directory.path())
}
