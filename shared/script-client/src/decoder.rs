//! Reads text that comes in pieces, cut anywhere.

/// Decodes UTF-8 over the borders of pieces. Bytes that are no UTF-8 are replaced.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a character whose end has not come: up to 3 bytes.
    begun: Vec<u8>,
}

impl Decoder {
    /// Returns the text up to the last complete character.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let complete = complete(&all);
        self.begun = all.split_off(complete);
        String::from_utf8(all)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Returns the replacement of a character whose end did not arrive.
    pub(crate) fn finish(&mut self) -> &'static str {
        match std::mem::take(&mut self.begun).is_empty() {
            true => "",
            false => "\u{fffd}",
        }
    }
}

/// Returns where a character begins that the end of the bytes may have cut; their length if none.
fn complete(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3)..bytes.len();
    for begin in tail.rev() {
        if bytes[begin] & 0b1100_0000 == 0b1000_0000 {
            continue;
        }
        let cut = std::str::from_utf8(&bytes[begin..]);
        return match cut.is_err_and(|error| error.error_len().is_none()) {
            true => begin,
            false => bytes.len(),
        };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_wherever_it_is_cut() {
        let text = "aé石🦀z";
        for cut in 0..=text.len() {
            let mut decoder = Decoder::default();
            let (begin, end) = text.as_bytes().split_at(cut);
            let read = decoder.decode(begin) + &decoder.decode(end) + decoder.finish();
            assert_eq!(read, text, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_at_once_and_a_cut_end_at_last() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"a\xffb\x80"), "a\u{fffd}b\u{fffd}");
        assert_eq!(decoder.decode(b"c\xe7\x9f"), "c");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }
}
