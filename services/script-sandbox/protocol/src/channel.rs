//! The socket between the service and the supervisor: the plan goes in, reports come out.
//!
//! A plan is a frame: its length as four bytes, least first, then JSON. The script's descriptors
//! travel with the first bytes of that frame. The same framing carries deliveries of files.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::plan::MAX_PLAN_BYTES;

/// The script's own descriptors, and the descriptor of its init.
pub struct ScriptDescriptors<Fd> {
    /// The script's descriptors, in the order of their numbers: its standard streams,
    /// [`crate::plan::RESULT_FD`], [`crate::plan::PROGRESS_FD`], [`crate::plan::JOB_FD`]. The last
    /// is unused when the interpreter starts after its files.
    pub script: [Fd; 6],
    /// Read by the init: deliveries of files.
    pub files: Fd,
}

const DESCRIPTORS: usize = 7;

/// The bytes of a frame around a JSON text.
///
/// # Errors
/// Fails when the value has no JSON form or is too long.
pub fn frame(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(value)?;
    if json.len() > MAX_PLAN_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the frame is too long",
        ));
    }
    let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
    bytes.extend(json);
    Ok(bytes)
}

/// Sends the length of a frame together with the descriptors. The rest of the frame is to follow.
///
/// # Errors
/// Fails when the socket fails.
pub fn send_head(
    socket: BorrowedFd<'_>,
    head: &[u8],
    descriptors: &ScriptDescriptors<impl AsFd>,
) -> io::Result<()> {
    let script = descriptors.script.each_ref();
    let [stdin, stdout, stderr, result, progress, job] = script.map(AsFd::as_fd);
    let files = descriptors.files.as_fd();
    let all = [stdin, stdout, stderr, result, progress, job, files];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    send(socket, head, &all, &mut space)
}

/// Receives a plan and the descriptors that come with it.
///
/// # Errors
/// Fails when the socket ends early, the descriptors are missing, or the plan cannot be read.
pub fn receive<T: DeserializeOwned>(
    socket: &UnixStream,
) -> io::Result<(T, ScriptDescriptors<OwnedFd>)> {
    let mut head = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let received = take(socket, &mut head, &mut space, RecvFlags::WAITALL)?;
    let Ok([stdin, stdout, stderr, result, progress, job, files]) =
        <[OwnedFd; DESCRIPTORS]>::try_from(received)
    else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the plan has no descriptors",
        ));
    };
    let script = [stdin, stdout, stderr, result, progress, job];
    let plan = read_body(&mut &*socket, head)?;
    Ok((plan, ScriptDescriptors { script, files }))
}

/// Sends one descriptor by itself.
///
/// # Errors
/// Fails when the socket fails.
pub fn send_descriptor(socket: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    send(socket.as_fd(), &[0], &[descriptor], &mut space)
}

/// Receives a descriptor that was sent by itself. Never blocks: the caller knows that the other
/// side has sent it, or never will.
///
/// # Errors
/// Fails when none has arrived.
pub fn take_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut taken = take(socket, &mut [0], &mut space, RecvFlags::DONTWAIT)?;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no descriptor was sent");
    taken.pop().ok_or_else(missing)
}

/// Sends bytes together with descriptors.
fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    space: &mut [MaybeUninit<u8>],
) -> io::Result<()> {
    let mut control = SendAncillaryBuffer::new(space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other(
            "the descriptors do not fit into a message",
        ));
    }
    let bytes_sent = rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    match bytes_sent == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives exactly so many bytes, and the descriptors that come with them.
fn take(
    socket: &UnixStream,
    bytes: &mut [u8],
    space: &mut [MaybeUninit<u8>],
    flags: RecvFlags,
) -> io::Result<Vec<OwnedFd>> {
    let mut control = RecvAncillaryBuffer::new(space);
    let length = bytes.len();
    let received = rustix::net::recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | flags,
    )?;
    let mut all = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            all.extend(descriptors);
        }
    }
    match received.bytes == length {
        true => Ok(all),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads one frame; `None` if the writer has closed its end before one began.
///
/// # Errors
/// Fails when the stream ends within a frame or the frame cannot be read.
pub fn read_frame<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    let first = loop {
        match stream.read(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[first..])?;
    read_body(stream, head).map(Some)
}

fn read_body<T: DeserializeOwned>(stream: &mut impl Read, head: [u8; 4]) -> io::Result<T> {
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_PLAN_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the frame is too long",
        ));
    }
    let mut body = Vec::with_capacity(length);
    stream.take(length as u64).read_to_end(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Writes one report as one line.
///
/// # Errors
/// Fails when the stream fails.
pub fn write_report(stream: &mut impl Write, report: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    stream.write_all(&line)
}
