//! Programs that attack a set, and programs of the list that have a set.

use std::{collections::BTreeMap, fs, path::Path};

use super::{levels, sets, with};
use crate::support::{Host, expect_output, python, request};

/// Every way to change a file, against each directory of the set that the script sees.
const CHANGES: &str = "
import errno, os, shutil
tree = os.environ['TAVERN_PACKAGES_PATH']
done = []
def attempt(name, action):
    try: action()
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP): done.append((name, error))
    else: done.append(name)
file = os.path.join(tree, 'six.py')
attempt('write', lambda: open(file, 'a'))
attempt('create', lambda: open(os.path.join(tree, 'evil.py'), 'w'))
attempt('remove', lambda: os.unlink(file))
attempt('rename', lambda: os.rename(file, file + '.old'))
attempt('move in', lambda: os.rename('main.py', os.path.join(tree, 'main.py')))
attempt('mode', lambda: os.chmod(file, 0o777))
attempt('owner', lambda: os.chown(file, os.getuid(), os.getgid()))
attempt('times', lambda: os.utime(file))
attempt('link', lambda: os.link(file, os.path.join(tree, 'twin.py')))
attempt('symlink', lambda: os.symlink('/etc/passwd', os.path.join(tree, 'passwd')))
attempt('truncate', lambda: os.truncate(file, 0))
attempt('directory', lambda: os.mkdir(os.path.join(tree, 'new')))
attempt('bytecode', lambda: open(os.path.join(tree, '__pycache__', 'six.cpython-311.pyc'), 'wb'))
attempt('attribute', lambda: os.setxattr(file, 'user.x', b'1'))
shutil.rmtree(tree, ignore_errors=True)
print(done, os.path.isfile(file))
";

/// Every file below a directory, with its size, mode, owner and time.
fn tree(directory: &Path) -> BTreeMap<String, String> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        let state = (about.len(), about.mode(), about.uid(), about.mtime_nsec());
        found.insert(path.display().to_string(), format!("{state:?}"));
        if about.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            open.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found
}

#[tokio::test]
async fn e36_no_script_changes_a_set() {
    let directory = fs::canonicalize(sets().join("small")).unwrap().join("tree");
    let before = tree(&directory);
    for settings in levels() {
        let host = Host::with(settings).await;
        let response = host.run(with("small", python(CHANGES))).await;
        expect_output(&response, "[] True\n");
        assert_eq!(tree(&directory), before);
    }
}

#[tokio::test]
async fn the_mount_of_a_set_is_read_only_without_devices_and_set_user_ids() {
    let host = super::host().await;
    let source = "
for line in open('/proc/self/mountinfo'):
    if ' /packages/' in line: print(line.split()[4], sorted({'ro', 'nosuid', 'nodev'} & set(line.split()[5].split(','))))
";
    let response = host.run(with("small", python(source))).await;
    expect_output(
        &response,
        "/packages/small/tree ['nodev', 'nosuid', 'ro']\n",
    );
}

/// Modules that would act when an interpreter starts, where a set could bring them.
#[tokio::test]
async fn a_set_is_a_path_and_no_site_directory() {
    let host = super::host().await;
    let source = "
import os, site, sys
tree = os.environ['TAVERN_PACKAGES_PATH']
print(tree in sys.path, tree in site.getsitepackages(), sys.path.count(tree))
";
    expect_output(
        &host.run(with("small", python(source))).await,
        "True False 1\n",
    );
}

/// Programs of the list of hostile ones that look for or make what a set could give them.
#[tokio::test]
async fn hostile_programs_end_alike_with_a_set() {
    use crate::abuse::programs;
    for settings in levels() {
        let host = Host::with(settings).await;
        for source in programs() {
            let without = host.run(with("", python(source))).await;
            let with_set = host.run(with("small", python(source))).await;
            let class = crate::support::class(&with_set);
            assert_eq!(class, crate::support::class(&without), "{source}");
        }
        let network = "
import urllib.request
try: urllib.request.urlopen('http://example.com/')
except OSError as error: print('refused')
";
        expect_output(&host.run(with("small", python(network))).await, "refused\n");
        let node = request(
            "node",
            "require('http').get('http://example.com/').on('error', () => console.log('refused'))",
        );
        expect_output(&host.run(with("web", node)).await, "refused\n");
    }
}
