//! Programs that attack files.

use std::{fs, path::Path};

use crate::{
    control::unconfined_python,
    oracle::Canaries,
    rounds::{as_every_user, everywhere},
    support::{Host, expect_class, expect_output, python, reduced_settings, request, stdout},
};

/// Paths that every host has, and no test has planted.
pub(super) const OF_THE_HOST: &str = "'/etc/shadow', '/proc/1/environ', '/proc/1/root/etc/shadow', \
     '/var/log', '/home', '/boot', '/etc/hostname', '/run', '/proc/kcore', '/sys/kernel', '/dev/sda', \
     '/dev/mem', '/dev/kmsg', '/dev/tty'";

#[test]
fn e27_what_belongs_to_the_host_cannot_be_read() {
    let source = "
import os
for path in ['CANARIES', 'CANARIES/tls.key', 'CANARIES/runs.db', HOST]:
    try:
        print(path, (os.listdir(path) if os.path.isdir(path) else open(path, 'rb').read(10)) or 'empty')
    except OSError: pass
";
    everywhere(async |host| {
        let source = source.replace("CANARIES", host.canaries.to_str().unwrap());
        let control = unconfined_python(&source.replace("HOST", ""));
        assert!(control.contains("tls.key"), "{control}");
        let inside = source.replace("HOST", OF_THE_HOST);
        expect_output(&host.python(&inside).await, "");
    });
}

/// A look for directories of other scripts.
pub(super) const OTHERS_DIRECTORIES: &str = "
import os
found = []
for path in ['..', '/tmp', '/work/..', '/proc/self/root', '/proc/self/cwd/..', '/proc/1/cwd', '/proc/1/fd']:
    try: found += [name for name in os.listdir(path) if 'tavern' in name]
    except OSError: pass
print(found)
";

#[test]
fn e28_other_scripts_directories_cannot_be_reached() {
    everywhere(async |host| {
        expect_output(&host.python(OTHERS_DIRECTORIES).await, "[]\n");
    });
}

/// Hard links to files of any user, and their modes.
pub(super) const SHARED_LINKS: &str = "
import os
for target in ['CANARIES/runs.db', '/usr/bin/env', '/etc/passwd', os.path.realpath(os.sys.executable)]:
    try: os.link(target, 'mine'); print('linked', target)
    except OSError: pass
    try: os.chmod(target, 0o777); print('changed', target)
    except OSError: pass
";

#[test]
fn e32_no_hard_link_to_what_is_shared() {
    everywhere(async |host| {
        let source = SHARED_LINKS.replace("CANARIES", host.canaries.to_str().unwrap());
        expect_output(&host.python(&source).await, "");
    });
}

/// Changes of files other than of their content.
pub(super) const MODES_AND_TIMES: &str = "
import os
for path in ['CANARIES', 'CANARIES/runs.db', 'CANARIES/program', '..', '/tmp']:
    for name, change in [('mode', lambda: os.chmod(path, 0o700)), ('times', lambda: os.utime(path, (1, 1))),
                         ('now', lambda: os.utime(path)), ('length', lambda: os.truncate(path, 1)),
                         ('owner', lambda: os.chown(path, -1, -1)), ('attribute', lambda: os.setxattr(path, 'user.x', b'1')),
                         ('name', lambda: os.rename(path, path + '-2')), ('place', lambda: os.unlink(path))]:
        try: change(); print(path, name)
        except OSError: pass
";

/// Landlock guards neither modes nor times, and where the service is not root and there are no
/// namespaces, the script's user owns the service's files.
#[test]
fn e36_modes_and_times_of_the_hosts_files_stay() {
    everywhere(async |host| {
        let source = MODES_AND_TIMES.replace("CANARIES", host.canaries.to_str().unwrap());
        let reported = stdout(&host.python(&source).await);
        // A script may change its own files, such as /tmp where there is a root of its own.
        let canary = host.canaries.to_str().unwrap();
        assert!(!reported.contains(canary), "{reported}");
    });
}

#[test]
fn e36_the_system_cannot_be_written() {
    let source = "
import os, sys, sysconfig
for place in ['CANARIES/open-to-all', DIRECTORIES]:
    try:
        open(os.path.join(place, 'planted'), 'w').close(); print('planted', place)
    except OSError: pass
for path in ['CANARIES/runs.db', FILES]:
    try: open(path, 'r+b'); print('opened', path)
    except OSError: pass
";
    let with = |canaries: &Path, directories: &str, files: &str| {
        let source = source.replace("CANARIES", canaries.to_str().unwrap());
        source
            .replace("DIRECTORIES", directories)
            .replace("FILES", files)
    };
    let others = Canaries::plant();
    let control = unconfined_python(&with(others.path(), "", ""));
    for what in ["planted", "opened"] {
        assert!(control.contains(what), "{control}");
    }
    everywhere(async |host| {
        let directories = "'/', '/usr', '/usr/bin', '/etc', '/input', '/proc', '/dev', \
             os.path.dirname(sys.executable), sysconfig.get_paths()['purelib']";
        let files = "'/etc/passwd', sys.executable, os.__file__";
        let inside = with(&host.canaries, directories, files)
            + "try: os.chmod('/', 0o777); print('changed')\nexcept OSError: pass\n";
        expect_output(&host.python(&inside).await, "");
    });
}

#[test]
fn e38_the_program_behind_proc_self_exe_cannot_be_written() {
    let source = "
for path in ['/proc/self/exe', '/proc/1/exe', '/proc/thread-self/exe']:
    for mode in ['r+b', 'ab', 'wb']:
        try: open(path, mode); print('opened', path, mode)
        except OSError: pass
";
    everywhere(async |host| {
        expect_output(&host.python(source).await, "");
    });
}

#[test]
fn e39_trees_that_resist_are_removed() {
    as_every_user(async || {
        let source = "
import os
for level in range(1500):
    os.mkdir('d'); os.chdir('d')
os.mkdir('locked')
try: os.chmod('locked', 0)
except OSError: pass
print('deep')
";
        expect_output(&Host::full().await.python(source).await, "deep\n");
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(
            scratch.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o711),
        )
        .unwrap();
        let host = Host::with(script_sandbox::SandboxSettings {
            scratch_directory: scratch.path().to_owned(),
            ..reduced_settings()
        })
        .await;
        // Where the quota is measured, depth alone does not count.
        expect_output(&host.python(source).await, "deep\n");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_tree_of_a_hundred_levels_is_measured_like_any_other() {
    let source = "
import os
for level in range(100):
    for branch in range(3): os.mkdir(f'{branch}')
    with open('file', 'wb') as file: file.write(b'x' * 4096)
    os.chdir('0')
print('deep')
";
    everywhere(async |host| {
        let response = host.python(source).await;
        expect_output(&response, "deep\n");
        let usage = response.usage.unwrap();
        assert!(
            (400_000..40_000_000).contains(&usage.max_disk_bytes),
            "{usage:?}"
        );
    });
}

/// Bits and attributes that give files a meaning beyond their content.
pub(super) const BITS_AND_ATTRIBUTES: &str = "
import os, shutil, subprocess
shutil.copyfile('/usr/bin/id', 'mine')
try: os.chmod('mine', 0o6755)
except OSError: print('True True', flush=True); os._exit(0)
print(subprocess.check_output(['./mine', '-u']).decode().strip() == str(os.getuid()), os.getuid() != 0)
try: os.setxattr('mine', 'user.x', b'1'); print('attribute')
except OSError: pass
try: os.chown('mine', 0, 0); print('owner')
except OSError: pass
";

#[test]
fn e40_set_user_id_bits_and_attributes_are_inert() {
    everywhere(async |host| {
        expect_output(&host.python(BITS_AND_ATTRIBUTES).await, "True True\n");
    });
}

/// Devices of the host and their times, and new ones.
pub(super) const DEVICES: &str = "
import os
for name in ['null', 'zero', 'full', 'random', 'urandom']:
    descriptor = os.open('/dev/' + name, os.O_RDWR)
    for place in ('/dev/' + name, descriptor):
        try: os.utime(place); print('times', name)
        except OSError: pass
for name in ['kvm', 'fuse', 'mem', 'vda', 'tty', 'kmsg', 'loop0', 'ptmx']:
    try: os.open('/dev/' + name, os.O_RDONLY); print(name)
    except OSError: pass
for kind in (0o020600, 0o060600):
    try: os.mknod('node', kind, os.makedev(1, 5)); print('made')
    except OSError: pass
";

#[test]
fn e46_only_five_devices_exist() {
    everywhere(async |host| {
        let source = "import os; print(sorted(name for name in os.listdir('/dev') if not os.path.islink('/dev/' + name)))";
        if host.kind != "reduced" {
            expect_output(
                &host.python(source).await,
                "['full', 'null', 'random', 'shm', 'urandom', 'zero']\n",
            );
        }
        {
            expect_output(&host.python(DEVICES).await, "");
        }
    });
}

/// Leaves a file wherever it may.
pub(super) const PLANTS_TRACES: &str = "
import os
for place in ['/tmp', '/var/tmp', '/dev/shm', '/run/lock', os.environ['HOME'], os.environ['TMPDIR'], '/work']:
    try: open(place + '/trace-47', 'w').close()
    except OSError: pass
";

/// Looks for these files.
pub(super) const LOOKS_FOR_TRACES: &str = "
import os
found = []
for place in ['/tmp', '/var/tmp', '/dev/shm', '/run/lock', os.environ['HOME'], os.environ['TMPDIR'], '/work']:
    try: found += [place for name in os.listdir(place) if name == 'trace-47']
    except OSError: pass
print(found)
";

#[test]
fn e47_nothing_is_left_for_the_next_script() {
    everywhere(async |host| {
        expect_class(&host.python(PLANTS_TRACES).await, &["exited 0"]);
        expect_output(&host.python(LOOKS_FOR_TRACES).await, "[]\n");
    });
}

#[test]
fn e48_poisoned_start_up_files_stay_inside() {
    everywhere(async |host| {
        let mut asked = python("print('ran')");
        let planted = host.canaries.join("open-to-all/poisoned");
        for name in [
            "sitecustomize.py",
            "usercustomize.py",
            "evil.pth",
            "package.json",
            ".bashrc",
        ] {
            asked.files.push(contracts::tavern::sandbox::v1::InputFile {
                path: name.to_owned(),
                content: format!("open('{}', 'w')", planted.display()).into_bytes(),
                executable: false,
                ..Default::default()
            });
        }
        asked
            .environment
            .insert("LD_PRELOAD".to_owned(), "/work/evil.so".to_owned());
        let response = host.run(asked).await;
        assert!(stdout(&response).contains("ran"));
        assert!(!planted.exists());
    });
}

#[test]
fn a_named_pipe_can_be_made_and_harms_no_other() {
    everywhere(async |host| {
        expect_output(
            &host.run(request("bash", "mkfifo pipe && echo made")).await,
            "made\n",
        );
    });
}
