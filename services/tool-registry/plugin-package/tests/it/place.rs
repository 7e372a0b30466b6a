//! Plugins at paths, and the files of a new one.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    process::{Command, Stdio},
};

use plugin_package::{MAX_PACKED_BYTES, read_path, template, write_archive, write_new_directory};

#[test]
fn a_new_plugin_is_read_equal_from_its_directory_and_its_archive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("demo");
    write_new_directory(&path, &template("demo").unwrap()).unwrap();
    let files = read_path(&path).unwrap().unwrap();
    let archive = directory.path().join("demo.zip");
    fs::write(&archive, write_archive(&files)).unwrap();
    assert_eq!(read_path(&archive).unwrap().unwrap(), files);

    let again = write_new_directory(&path, &template("demo").unwrap());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let absent = read_path(&directory.path().join("absent"));
    assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&archive, vec![0; MAX_PACKED_BYTES + 2]).unwrap();
    assert_eq!(
        read_path(&archive).unwrap().unwrap_err()[0].code,
        "too_large"
    );
}

#[test]
fn the_script_of_a_new_plugin_answers_as_its_readme_shows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("demo");
    write_new_directory(&path, &template("demo").unwrap()).unwrap();
    let given = std::env::var_os("TAVERN_TEST_PYTHON");
    let mut python = Command::new(given.unwrap_or_else(|| "python3".into()));
    let python = python.arg("scripts/greet.py").current_dir(&path);
    let python = python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"person\": \"Ada\"}\n").unwrap();
    drop(input);
    let answer = child.wait_with_output().unwrap();
    assert_eq!(answer.stdout, b"{\"greeting\": \"Hello, Ada!\"}");
}
