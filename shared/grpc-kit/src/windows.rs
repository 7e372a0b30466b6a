//! The limit of unread bytes from a peer.

/// Bytes of all streams of a connection, of which each has a window of its own that bounds it, so that
/// waiting streams do not block the others. The HTTP library counts small frames that no reader has
/// read, 256 bytes less its content for each, and ends a connection with every call on it when that is
/// more than half of this: 40 streams of 64 KiB that are full of messages of one byte have room.
pub(crate) const CONNECTION: u32 = 128 << 20;
