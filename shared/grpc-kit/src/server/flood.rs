//! Control frames that cost the server more than the client.
//!
//! A PING or SETTINGS frame makes the server answer, and HTTP/2 itself bounds neither. Frame heads
//! are followed as they are read; every control frame costs a credit, every message gives some
//! back, and so does every second.

use std::time::Instant;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const PUSH_PROMISE: u8 = 0x5;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
const ACK: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;

/// Credits that a message in either direction gives back: clients that estimate bandwidth send a
/// PING or two with it.
const PER_MESSAGE: u32 = 4;

/// Follows the bytes that a client sends.
#[derive(Debug)]
pub(super) struct FloodGuard {
    state: State,
    credits: u32,
    capacity: u32,
    refilled: Instant,
    sent: u64,
}

#[derive(Debug)]
enum State {
    Preface {
        matched: usize,
    },
    Head {
        bytes: [u8; HEAD],
        filled: usize,
    },
    Payload {
        remaining: usize,
    },
    /// Not HTTP/2.
    Other,
}

/// The client sends more control frames than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood;

impl FloodGuard {
    pub(super) fn new(capacity: u32, now: Instant) -> Self {
        Self {
            state: State::Preface { matched: 0 },
            credits: capacity,
            capacity,
            refilled: now,
            sent: 0,
        }
    }

    /// Reads the next bytes; `sent` is the number of messages sent on the connection so far.
    pub(super) fn observe(
        &mut self,
        mut bytes: &[u8],
        sent: u64,
        now: Instant,
    ) -> Result<(), Flood> {
        self.refill(sent, now);
        while !bytes.is_empty() {
            match &mut self.state {
                State::Other => return Ok(()),
                State::Preface { matched } => {
                    if bytes[0] != PREFACE[*matched] {
                        self.state = State::Other;
                        return Ok(());
                    }
                    *matched += 1;
                    bytes = &bytes[1..];
                    if *matched == PREFACE.len() {
                        self.state = State::Head {
                            bytes: [0; HEAD],
                            filled: 0,
                        };
                    }
                }
                State::Payload { remaining } => {
                    let skipped = (*remaining).min(bytes.len());
                    *remaining -= skipped;
                    bytes = &bytes[skipped..];
                    if *remaining == 0 {
                        self.state = State::Head {
                            bytes: [0; HEAD],
                            filled: 0,
                        };
                    }
                }
                State::Head {
                    bytes: head,
                    filled,
                } => {
                    let taken = (HEAD - *filled).min(bytes.len());
                    head[*filled..*filled + taken].copy_from_slice(&bytes[..taken]);
                    *filled += taken;
                    bytes = &bytes[taken..];
                    if *filled == HEAD {
                        let [high, middle, low, kind, flags, ..] = *head;
                        let length = u32::from_be_bytes([0, high, middle, low]);
                        self.state = if length == 0 {
                            State::Head {
                                bytes: [0; HEAD],
                                filled: 0,
                            }
                        } else {
                            State::Payload {
                                remaining: length as usize,
                            }
                        };
                        self.count(kind, flags)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: u8, flags: u8) -> Result<(), Flood> {
        match kind {
            DATA | HEADERS => {
                self.credits = self.credits.saturating_add(PER_MESSAGE).min(self.capacity);
                Ok(())
            }
            // The HTTP/2 library bounds these itself.
            RST_STREAM | PUSH_PROMISE | WINDOW_UPDATE | CONTINUATION => Ok(()),
            SETTINGS | PING if flags & ACK != 0 => Ok(()),
            _ => {
                self.credits = self.credits.checked_sub(1).ok_or(Flood)?;
                Ok(())
            }
        }
    }

    fn refill(&mut self, sent: u64, now: Instant) {
        let messages = u32::try_from(sent.saturating_sub(self.sent)).unwrap_or(u32::MAX);
        self.sent = sent;
        let seconds = now.saturating_duration_since(self.refilled).as_secs();
        if seconds > 0 {
            self.refilled = now;
        }
        let back = messages
            .saturating_mul(PER_MESSAGE)
            .saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX));
        self.credits = self.credits.saturating_add(back).min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 0];
        bytes.extend(vec![0xff; usize::from(length)]);
        bytes
    }

    fn guard() -> (FloodGuard, Instant) {
        let now = Instant::now();
        let mut guard = FloodGuard::new(8, now);
        guard.observe(PREFACE, 0, now).unwrap();
        (guard, now)
    }

    #[test]
    fn control_frames_beyond_the_credit_are_a_flood_however_they_are_cut() {
        for kind in [PING, SETTINGS, 0x2, 0x42] {
            let bytes: Vec<u8> = (0..9).flat_map(|_| frame(kind, 0, 8)).collect();
            for size in [1, 5, 9, 17, bytes.len()] {
                let (mut guard, now) = guard();
                let flood = bytes
                    .chunks(size)
                    .find_map(|cut| guard.observe(cut, 0, now).err());
                assert_eq!(flood, Some(Flood), "kind {kind} cut by {size}");
            }
        }
    }

    #[test]
    fn acknowledgements_and_messages_are_no_flood() {
        for bytes in [
            frame(PING, ACK, 8),
            frame(DATA, 0, 3),
            frame(WINDOW_UPDATE, 0, 4),
        ] {
            let (mut guard, now) = guard();
            for _ in 0..100 {
                assert_eq!(guard.observe(&bytes, 0, now), Ok(()));
            }
        }
    }

    #[test]
    fn time_and_messages_give_credit_back() {
        let (mut guard, now) = guard();
        for second in 0..100 {
            let later = now + Duration::from_secs(second);
            assert_eq!(guard.observe(&frame(PING, 0, 8), 0, later), Ok(()));
        }
        let now = now + Duration::from_secs(100);
        for sent in 0..100 {
            for _ in 0..3 {
                assert_eq!(guard.observe(&frame(PING, 0, 8), sent, now), Ok(()));
            }
        }
    }

    #[test]
    fn what_is_not_http2_is_not_counted() {
        let now = Instant::now();
        let mut guard = FloodGuard::new(1, now);
        assert_eq!(guard.observe(b"GET / HTTP/1.1\r\n\r\n", 0, now), Ok(()));
        assert_eq!(guard.observe(&frame(PING, 0, 8).repeat(9), 0, now), Ok(()));
    }
}
