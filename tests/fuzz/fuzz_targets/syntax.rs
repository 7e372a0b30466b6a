//! Any bytes, cut anywhere: no panic, no byte lost, the same outcome as in one piece.
#![no_main]

use call_text::{FinishReason, Parser, Policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (chunk, bytes) = input;
    let read = |size: usize| {
        let mut parser = Parser::new(fuzz::catalogue().clone(), Policy::default());
        for piece in bytes.chunks(size.max(1)) {
            parser.push_bytes(piece);
        }
        parser.finish(FinishReason::Stop).1
    };
    let whole = read(bytes.len());
    assert_eq!(whole, read(usize::from(chunk)));
    let mut at = 0;
    for segment in &whole.segments {
        assert_eq!(segment.span.start, at);
        at = segment.span.end;
    }
    assert_eq!(at, String::from_utf8_lossy(&bytes).len());
});
