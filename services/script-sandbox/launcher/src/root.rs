//! Builds the script's own root: read-only, with little in it.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::sys;
use sandbox_protocol::{
    plan::{INPUT_DIRECTORY, INSIDE_ID, RootPlan, WORK_DIRECTORY},
    report::{At, Layer, Step},
};

/// The path of the host's root while the new one is built.
const HOST: &str = "/.host";

/// The path of the scratch file system while its directories are bound.
const SCRATCH: &str = "/.scratch";

/// Directories of the scratch file system, their paths in the root, and their modes.
const SCRATCH_DIRECTORIES: [(&str, &str, u32); 4] = [
    ("work", WORK_DIRECTORY, 0o755),
    ("tmp", "/tmp", 0o1777),
    ("shm", "/dev/shm", 0o1777),
    ("input", INPUT_DIRECTORY, 0o755),
];

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Leaves the host's root for a new one. The process must be alone in its mount namespace.
/// `owner`: whether the scratch directories must be handed to the script's user.
pub(crate) fn build(plan: &RootPlan, owner: bool) -> Step {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)
        .at(Layer::MountNamespace, "parting from the host's mounts")?;
    enter_new_root()?;
    for bind in &plan.binds {
        bind_read_only(bind, bind)?;
    }
    for (host, place) in &plan.moved {
        bind_read_only(host, place)?;
    }
    for (path, target) in &plan.links {
        make_parent(path)?;
        symlink(target, path).at(Layer::Root, naming("linking", path))?;
    }
    for (path, content) in &plan.files {
        make_parent(path)?;
        fs::write(path, content).at(Layer::Root, naming("writing", path))?;
    }
    devices(plan.proc)?;
    scratch(plan, owner)?;
    if plan.proc {
        proc()?;
    }
    rustix::mount::unmount(HOST, UnmountFlags::DETACH)
        .at(Layer::Root, "leaving the host's root")?;
    fs::remove_dir(HOST).at(Layer::Root, "removing the way back")?;
    sys::mount_attributes(c"/", READ_ONLY, false).at(Layer::Root, "making the root read-only")?;
    std::env::set_current_dir(WORK_DIRECTORY).at(Layer::Root, "entering the working directory")
}

/// Mounts an empty file system and makes it the root; the host's appears at [`HOST`].
fn enter_new_root() -> Step {
    // Any directory of the host will do: its content reappears when the root moves away.
    let mut places = ["/tmp", "/run", "/mnt", "/usr"].into_iter().map(Path::new);
    let place = places
        .find(|path| path.is_dir())
        .ok_or(io::ErrorKind::NotFound);
    let place = place.at(Layer::Root, "finding a directory to mount on")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = c"mode=755,size=1m,nr_inodes=1k";
    rustix::mount::mount("root", place, "tmpfs", flags, Some(options))
        .at(Layer::Root, "mounting an empty root")?;
    std::env::set_current_dir(place).at(Layer::Root, "entering the empty root")?;
    fs::create_dir(&HOST[1..]).at(Layer::Root, "preparing the way back")?;
    rustix::process::pivot_root(".", &HOST[1..]).at(Layer::Root, "changing the root")?;
    std::env::set_current_dir("/").at(Layer::Root, "entering the new root")
}

fn bind_read_only(host: &Path, path: &Path) -> Step {
    let source = on_host(host);
    let kind = fs::symlink_metadata(&source).at(Layer::Root, naming("finding", path))?;
    make_parent(path)?;
    if kind.is_dir() {
        fs::create_dir_all(path)
    } else {
        fs::write(path, "")
    }
    .at(Layer::Root, naming("making room for", path))?;
    rustix::mount::mount_bind_recursive(&source, path).at(Layer::Root, naming("binding", path))?;
    sys::mount_attributes(&c_path(path)?, READ_ONLY, true)
        .at(Layer::Root, naming("making read-only", path))
}

fn devices(proc: bool) -> Step {
    fs::create_dir("/dev").at(Layer::Root, "making /dev")?;
    for name in DEVICES {
        let target = Path::new("/dev").join(name);
        fs::write(&target, "").at(Layer::Root, naming("making room for", &target))?;
        rustix::mount::mount_bind(on_host(&target), &target)
            .at(Layer::Root, naming("binding", &target))?;
        // The node, with its times, is the host's and becomes read-only; the device can still be written to.
        let attributes =
            libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        sys::mount_attributes(&c_path(&target)?, attributes, false)
            .at(Layer::Root, naming("restricting", &target))?;
    }
    for (path, target) in DEVICE_LINKS.iter().filter(|_| proc) {
        symlink(target, path).at(Layer::Root, naming("linking", Path::new(path)))?;
    }
    Ok(())
}

/// One bounded file system behind all writable directories, so that one quota holds for them.
fn scratch(plan: &RootPlan, owner: bool) -> Step {
    let layer = Layer::DiskQuota;
    fs::create_dir(SCRATCH).at(layer, "preparing the scratch space")?;
    let (bytes, files) = (plan.scratch_bytes, plan.scratch_files);
    let options = format!("mode=755,size={bytes},nr_inodes={files}");
    let options = CString::new(options).at(layer, "stating the quota")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("scratch", SCRATCH, "tmpfs", flags, Some(options.as_c_str()))
        .at(layer, "mounting the scratch space")?;
    for (name, target, mode) in SCRATCH_DIRECTORIES {
        let directory = Path::new(SCRATCH).join(name);
        fs::create_dir(&directory).at(layer, naming("making", &directory))?;
        set_mode(&directory, mode).at(layer, naming("opening up", &directory))?;
        if owner {
            std::os::unix::fs::chown(&directory, Some(INSIDE_ID), Some(INSIDE_ID))
                .at(layer, naming("handing over", &directory))?;
        }
        fs::create_dir_all(target).at(layer, naming("making room for", Path::new(target)))?;
        rustix::mount::mount_bind(&directory, target)
            .at(layer, naming("binding", Path::new(target)))?;
    }
    rustix::mount::unmount(SCRATCH, UnmountFlags::DETACH).at(layer, "closing the scratch space")?;
    fs::remove_dir(SCRATCH).at(layer, "removing the scratch mount point")
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Mounts /proc, with the processes of the script's own pid namespace and no data of the machine.
fn proc() -> Step {
    fs::create_dir("/proc").at(Layer::Proc, "making /proc")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = c"subset=pid,hidepid=invisible";
    rustix::mount::mount("proc", "/proc", "proc", flags, Some(options))
        .at(Layer::Proc, "mounting /proc")
}

fn make_parent(path: &Path) -> Step {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).at(Layer::Root, naming("making", parent)),
        None => Ok(()),
    }
}

fn on_host(path: &Path) -> PathBuf {
    Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path))
}

fn c_path(path: &Path) -> Step<CString> {
    CString::new(path.as_os_str().as_bytes()).at(Layer::Root, naming("naming", path))
}

fn naming(doing: &str, path: &Path) -> String {
    format!("{doing} {}", path.display())
}
