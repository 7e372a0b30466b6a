//! Files that are written as an archive and read again.

use plugin_package::{PluginFiles, read_archive, write_archive};
use proptest::{collection::btree_map, prelude::*};
use tool_domain::package::PackageFile;

fn files(contents: impl IntoIterator<Item = (String, Vec<u8>)>) -> PluginFiles {
    let files = contents.into_iter();
    let files = files.map(|(path, content)| PackageFile { path, content });
    let manifest = PackageFile {
        path: "plugin.yaml".to_owned(),
        content: b"name: demo\n".to_vec(),
    };
    PluginFiles::new(files.chain([manifest]).collect()).unwrap()
}

fn check(files: &PluginFiles) {
    let packed = write_archive(files);
    let read = read_archive(&packed).unwrap();
    assert_eq!(read.digest(), files.digest());
    let same = |(a, b): (&&PackageFile, &&PackageFile)| a.path == b.path && a.content == b.content;
    assert!(read.all().iter().zip(files.all().iter()).all(same));
    assert_eq!(write_archive(&read), packed, "the archive has one form");
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        (0..200_000usize).prop_map(|size| vec![b'a'; size]),
        "[a-z ]{0,400}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Directories and files have names of their own, so that neither stands for the other.
    #[test]
    fn any_files_are_read_as_they_were_written(
        contents in btree_map("((web|dist|数据|d[a-c])/){0,4}[a-zé字][a-z0-9_é -]{0,20}f", content(), 0..12)
    ) {
        check(&files(contents));
    }
}

#[test]
fn the_most_files_and_bytes_are_read_as_they_were_written() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut noise = |bytes: usize| -> Vec<u8> {
        std::iter::repeat_with(|| random.u8(..))
            .take(bytes)
            .collect()
    };
    let script = |index: usize| format!("data/{index:0>95}");
    let asset = |index: usize| format!("web/{index:0>95}");
    let scripts: Vec<_> = (0..255)
        .map(|index| (script(index), noise(12_000)))
        .collect();
    let assets = (0..500).map(|index| (asset(index), vec![0; 33_000]));
    check(&files(scripts.into_iter().chain(assets)));
}
