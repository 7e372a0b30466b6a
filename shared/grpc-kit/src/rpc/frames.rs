//! The lengths of gRPC messages as they pass.

/// A message longer than is allowed has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The length that its head declares.
    pub(crate) declared: usize,
    /// The bytes before it that belong to good messages.
    pub(crate) good: usize,
}

/// Follows the heads of the messages in a body: one byte of flags, four of length.
#[derive(Debug)]
pub(crate) struct Lengths {
    maximum: usize,
    head: [u8; 5],
    filled: usize,
    remaining: usize,
}

impl Lengths {
    pub(crate) fn new(maximum: usize) -> Self {
        Self {
            maximum,
            head: [0; 5],
            filled: 0,
            remaining: 0,
        }
    }

    /// Returns how many bytes of the message that has begun are still to come.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Reads the next bytes of the body and returns the number of messages that began in them.
    pub(crate) fn observe(&mut self, bytes: &[u8]) -> Result<u64, TooLong> {
        let total = bytes.len();
        let mut bytes = bytes;
        let mut begun = 0;
        let mut good = 0;
        while !bytes.is_empty() {
            if self.remaining > 0 {
                let skipped = self.remaining.min(bytes.len());
                self.remaining -= skipped;
                bytes = &bytes[skipped..];
                good = total - bytes.len();
                continue;
            }
            let taken = (self.head.len() - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == self.head.len() {
                let [_, length @ ..] = self.head;
                let declared = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if declared > self.maximum {
                    return Err(TooLong { declared, good });
                }
                self.filled = 0;
                self.remaining = declared;
                good = total - bytes.len();
                begun += 1;
            }
        }
        Ok(begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.extend(vec![7; length as usize]);
        bytes
    }

    #[test]
    fn lengths_are_found_however_the_bytes_are_cut() {
        let bytes: Vec<u8> = [3, 0, 10, 1].into_iter().flat_map(message).collect();
        for size in 1..=bytes.len() {
            let mut lengths = Lengths::new(10);
            let begun: u64 = bytes
                .chunks(size)
                .map(|chunk| lengths.observe(chunk).unwrap())
                .sum();
            assert_eq!(begun, 4, "cut by {size}");
            let mut lengths = Lengths::new(9);
            let first = bytes
                .chunks(size)
                .find_map(|chunk| lengths.observe(chunk).err());
            assert_eq!(first.map(|long| long.declared), Some(10), "cut by {size}");
        }
    }
    #[test]
    fn good_messages_before_a_long_one_are_distinguished() {
        let bytes: Vec<u8> = [3, 0, 10].into_iter().flat_map(message).collect();
        let long = Lengths::new(9).observe(&bytes).unwrap_err();
        assert_eq!(long.good, 8 + 5);
    }
}
