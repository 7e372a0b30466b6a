//! Puts delivered files below a held directory.
//!
//! Every step opens one name beneath a descriptor that is already open and follows no link, so a
//! script that rearranges its directories at the same time can at worst make a delivery fail.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};

use sandbox_protocol::{
    channel,
    plan::{Area, DeliveredFile, Delivery},
    report::{At, Failure, Layer, Step},
};

/// The most levels of directories in a delivered path.
const MAX_DEPTH: usize = 32;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The directories that files are delivered to.
#[derive(Debug)]
pub struct Areas {
    /// The working directory.
    pub work: OwnedFd,
    /// The input directory.
    pub input: OwnedFd,
}

/// Reads one delivery from the stream and places its files. Returns it with the positions of the files that could not be
/// placed, where it may fail. `None`: the stream has ended before one.
///
/// # Errors
/// Fails when the stream is broken or a file cannot be made; the rest of the delivery is then lost.
pub fn deliver(stream: &mut impl Read, areas: &Areas) -> Step<Option<(Delivery, Vec<u32>)>> {
    let delivery: Option<Delivery> =
        channel::read_frame(stream).at(Layer::Files, "reading a delivery")?;
    let Some(delivery) = delivery else {
        return Ok(None);
    };
    for path in &delivery.removals {
        // A script that has put something else there keeps it.
        let _ = remove(areas.work.as_fd(), path);
    }
    for path in &delivery.directories {
        make_directory(areas.work.as_fd(), path)?;
    }
    let mut refused = Vec::new();
    for (index, file) in (0..).zip(&delivery.files) {
        let area = match file.area {
            Area::Work => &areas.work,
            Area::Input => &areas.input,
        };
        let mut content = stream.take(file.size);
        match place(area.as_fd(), file, &mut content) {
            Err(_) if delivery.may_fail => {
                let rest = io::copy(&mut content, &mut io::sink());
                rest.at(Layer::Files, "receiving a file")?;
                refused.push(index);
            }
            placed => placed?,
        }
    }
    Ok(Some((delivery, refused)))
}

/// Removes a file.
fn remove(area: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let (parents, name) = parts(path).ok_or(io::ErrorKind::InvalidInput)?;
    let mut directory = rustix::io::fcntl_dupfd_cloexec(area, 0)?;
    for parent in parents {
        directory = open(&directory, parent)?;
    }
    Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?)
}

fn open(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(directory, name, flags, Mode::empty(), BENEATH)
}

fn make_directory(area: BorrowedFd<'_>, path: &str) -> Step {
    let (mut names, last) = parts_of(path)?;
    names.push(last);
    enter(area, names, path).map(drop)
}

/// Opens the directory of a path, and makes those that are missing.
fn enter(area: BorrowedFd<'_>, names: Vec<&str>, path: &str) -> Step<OwnedFd> {
    let at = |doing: &str| format!("{doing} `{}`", path.escape_default());
    let mut directory =
        rustix::io::fcntl_dupfd_cloexec(area, 0).at(Layer::Files, at("preparing"))?;
    for name in names {
        match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).at(Layer::Files, at("making the directory of")),
        }
        let opened = open(&directory, name);
        directory = opened.at(Layer::Files, at("opening the directory of"))?;
    }
    Ok(directory)
}

fn place(area: BorrowedFd<'_>, file: &DeliveredFile, content: &mut impl Read) -> Step {
    let at = |doing: &str| format!("{doing} `{}`", file.path.escape_default());
    let (parents, name) = parts_of(&file.path)?;
    let directory = enter(area, parents, &file.path)?;
    // An existing file is replaced and never written through: it may be a link.
    match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        // So is a directory that is empty.
        Err(rustix::io::Errno::ISDIR) => {
            let removed = rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR);
            removed.at(Layer::Files, at("replacing"))?;
        }
        Err(error) => return Err(error).at(Layer::Files, at("replacing")),
    }
    let mode = Mode::from_raw_mode(if file.executable { 0o755 } else { 0o644 });
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let created = rustix::fs::openat2(&directory, name, flags, mode, BENEATH);
    let created = created.at(Layer::Files, at("creating"))?;
    let written = io::copy(content, &mut File::from(created));
    if written.is_err() {
        // No part of a file stays.
        let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
    }
    let written = written.at(Layer::Files, at("writing"))?;
    match written == file.size {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof).at(Layer::Files, at("receiving")),
    }
}

fn parts_of(path: &str) -> Step<(Vec<&str>, &str)> {
    let doing = || format!("refusing the path `{}`", path.escape_default());
    parts(path).ok_or_else(|| Failure::new(Layer::Files, doing(), 0))
}

/// The directories and the name of a path; `None` if it could lead elsewhere.
fn parts(path: &str) -> Option<(Vec<&str>, &str)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    let sound = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains('\0');
    if parts.len() > MAX_DEPTH || !parts.iter().all(sound) {
        return None;
    }
    let name = parts.pop()?;
    Some((parts, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(root: &std::path::Path) -> Areas {
        for name in ["work", "input"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let open = |name: &str| OwnedFd::from(File::open(root.join(name)).unwrap());
        Areas {
            work: open("work"),
            input: open("input"),
        }
    }

    fn delivery(path: &str, content: &[u8]) -> Vec<u8> {
        let file = DeliveredFile {
            area: Area::Work,
            path: path.to_owned(),
            size: content.len() as u64,
            executable: false,
        };
        let mut bytes = channel::frame(&Delivery {
            files: vec![file],
            ..Delivery::default()
        })
        .unwrap();
        bytes.extend(content);
        bytes
    }

    #[test]
    fn a_file_arrives_with_its_directories() {
        let root = tempfile::tempdir().unwrap();
        let areas = areas(root.path());
        let placed = deliver(&mut delivery("a/b/c.txt", b"text").as_slice(), &areas);
        assert_eq!(placed.unwrap().unwrap().0.files.len(), 1);
        assert_eq!(
            std::fs::read(root.path().join("work/a/b/c.txt")).unwrap(),
            b"text"
        );
        assert_eq!(deliver(&mut [].as_slice(), &areas), Ok(None));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let areas = areas(root.path());
        for path in [
            "",
            ".",
            "..",
            "/x",
            "a/../../x",
            "a//b",
            "a/",
            "../x",
            "a\0b",
        ] {
            let failure = deliver(&mut delivery(path, b"x").as_slice(), &areas).unwrap_err();
            assert_eq!(failure.layer, Layer::Files, "{path:?}");
        }
    }

    #[test]
    fn links_are_replaced_and_never_followed() {
        let root = tempfile::tempdir().unwrap();
        let areas = areas(root.path());
        let canary = root.path().join("canary");
        std::fs::write(&canary, "alive").unwrap();
        std::os::unix::fs::symlink(&canary, root.path().join("work/file")).unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("work/up")).unwrap();
        assert!(deliver(&mut delivery("file", b"new").as_slice(), &areas).is_ok());
        assert!(deliver(&mut delivery("up/canary", b"new").as_slice(), &areas).is_err());
        assert_eq!(std::fs::read(&canary).unwrap(), b"alive");
    }

    #[test]
    fn an_empty_directory_is_replaced_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let areas = areas(root.path());
        std::fs::create_dir_all(root.path().join("work/full/of")).unwrap();
        std::fs::create_dir(root.path().join("work/empty")).unwrap();
        assert!(deliver(&mut delivery("full", b"x").as_slice(), &areas).is_err());
        deliver(&mut delivery("empty", b"x").as_slice(), &areas).unwrap();
        let read = std::fs::read(root.path().join("work/empty"));
        assert_eq!(read.unwrap(), b"x");
        assert!(root.path().join("work/full/of").is_dir());
    }

    #[test]
    fn a_short_delivery_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let areas = areas(root.path());
        let mut bytes = delivery("file", b"content");
        bytes.pop();
        assert!(deliver(&mut bytes.as_slice(), &areas).is_err());
    }
}
