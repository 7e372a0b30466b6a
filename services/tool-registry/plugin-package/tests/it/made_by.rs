//! Archives as common programs make them, read equal to the directory.

use std::{fs, path::Path, process::Command};

use cap_std::{ambient_authority, fs::Dir};
use plugin_package::{PluginFiles, check, read_archive, read_directory};

use crate::build::{Archive, Item, extra};

/// The files of the plugin that every archive here holds.
const FILES: [(&str, &str); 6] = [
    ("plugin.yaml", "name: demo\ntools:\n  entry: tools\n"),
    (
        "tools/run.tool.json",
        "{\"id\": \"demo:run\", \"implementation\": {\"type\": \"script\", \"command\": \"python scripts/run.py\"},\n \
         \"parameters\": {\"type\": \"object\"}}\n",
    ),
    ("scripts/run.py", "print('{}')\n"),
    ("web/app.js", "text text text text text text text\n"),
    ("web/img/empty.svg", ""),
    ("文件/一 é.md", "one\n"),
];

/// Archives of these files and of one that is passed over, as `zip` of Info-ZIP 3.0 and the modules `zipfile` and
/// `shutil` of Python 3.11 write them: to a file and to a pipe, with sizes of 64 bits, of the directory itself and of
/// its content.
const RECORDED: [(&str, &[u8]); 10] = [
    ("info-zip", include_bytes!("fixtures/info-zip.zip")),
    (
        "info-zip-directory",
        include_bytes!("fixtures/info-zip-directory.zip"),
    ),
    (
        "info-zip-stored",
        include_bytes!("fixtures/info-zip-stored.zip"),
    ),
    (
        "info-zip-stream",
        include_bytes!("fixtures/info-zip-stream.zip"),
    ),
    ("info-zip-64", include_bytes!("fixtures/info-zip-64.zip")),
    ("python", include_bytes!("fixtures/python.zip")),
    (
        "python-stream",
        include_bytes!("fixtures/python-stream.zip"),
    ),
    ("python-64", include_bytes!("fixtures/python-64.zip")),
    (
        "python-stream-64",
        include_bytes!("fixtures/python-stream-64.zip"),
    ),
    (
        "python-shutil",
        include_bytes!("fixtures/python-shutil.zip"),
    ),
];

fn written() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in FILES {
        let path = directory.path().join("p").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(directory.path().join("p/.hidden"), "x").unwrap();
    directory
}

fn read(directory: &Path) -> PluginFiles {
    let dir = Dir::open_ambient_dir(directory, ambient_authority()).unwrap();
    read_directory(&dir).unwrap()
}

#[test]
fn archives_of_common_programs_are_equal_to_the_directory() {
    let directory = written();
    let expected = read(&directory.path().join("p"));
    assert_eq!(expected.all().len(), FILES.len());
    for (label, bytes) in RECORDED {
        let files = read_archive(bytes).unwrap_or_else(|wrong| unreachable!("{label}: {wrong:?}"));
        assert_eq!(files.digest(), expected.digest(), "{label}");
        assert_eq!(files.assets().len(), 2, "{label}");
    }
    let checked = check(&expected);
    assert!(checked.violations.is_empty(), "{:?}", checked.violations);
    let plugin = checked.plugin.unwrap();
    assert_eq!(plugin.tools[0].id.as_str(), "demo:run");
    assert_eq!(plugin.definition_files["demo:run"], "tools/run.tool.json");
    assert_eq!(plugin.digest, expected.digest());
}

#[test]
fn an_archive_with_the_fields_of_7_zip_is_equal_to_the_directory() {
    let directory = written();
    let expected = read(&directory.path().join("p"));
    // The times of NTFS, the attribute "archive", and a mode behind the mark that one follows.
    let times = extra(
        0x000a,
        &[[0; 4].as_slice(), &[1, 0, 24, 0], &[7; 24]].concat(),
    );
    let files = FILES.map(|(path, content)| {
        let item = Item::deflated(format!("p/{path}"), content.as_bytes());
        let item = item.central(|header| header.extra = times.clone());
        item.with(|item| item.attributes = 0x8020).mode(0o100_644)
    });
    let directories = ["p/", "p/web/", "p/文件/"].map(|path| {
        let item = Item::stored(path, b"").central(|header| header.extra = times.clone());
        item.with(|item| item.attributes = 0x8010).mode(0o040_755)
    });
    let archive = Archive::of(directories.into_iter().chain(files));
    assert_eq!(read_archive(&archive.bytes()).unwrap(), expected);
}

#[test]
fn an_archive_of_a_finder_is_read_without_its_second_tree() {
    let archive = Archive::of([
        Item::stored("demo/", b""),
        Item::stored("demo/plugin.yaml", b"name: demo\n"),
        Item::stored("demo/.DS_Store", b"x"),
        Item::stored("__MACOSX/", b""),
        Item::stored("__MACOSX/demo/._plugin.yaml", b"x"),
    ]);
    let files = read_archive(&archive.bytes()).unwrap();
    assert_eq!(files.all().len(), 1);
}

#[test]
fn files_that_python_makes_beside_scripts_are_no_files_of_the_plugin() {
    let archive = Archive::of([
        Item::stored("demo/plugin.yaml", b"name: demo\n"),
        Item::stored("demo/lib/a.py", b"x = 1"),
        Item::stored("demo/lib/__pycache__/", b""),
        Item::stored("demo/lib/__pycache__/a.cpython-313.pyc", b"x"),
        Item::stored("demo/lib/__pycache__/a.txt", b"x"),
        Item::stored("demo/lib/a.pyc", b"x"),
    ]);
    let files = read_archive(&archive.bytes()).unwrap();
    let paths: Vec<&str> = files.all().iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["lib/a.py", "plugin.yaml"]);
}

#[test]
fn an_archive_that_python_makes_now_is_equal_to_the_directory() {
    const SCRIPT: &str =
        "import shutil, sys; shutil.make_archive(sys.argv[1] + '/made', 'zip', sys.argv[1], 'p')";
    let directory = written();
    let expected = read(&directory.path().join("p"));
    let given = std::env::var_os("TAVERN_TEST_PYTHON");
    let mut python = Command::new(given.unwrap_or_else(|| "python3".into()));
    let made = python.args(["-c", SCRIPT]).arg(directory.path()).status();
    assert!(made.unwrap().success());
    let bytes = fs::read(directory.path().join("made.zip")).unwrap();
    assert_eq!(read_archive(&bytes).unwrap(), expected);
}
