//! The parser of a message, whole or in pieces.
//!
//! One scanner does both: a whole message is a stream of one piece. The parser walks the text,
//! releases text that cannot become a call, and hands the insides of blocks to the scanner of their
//! dialect; regions without calls (code, quotes, comments, thoughts) are walked here.

mod adjacent;
mod assembler;
mod block;
mod block_end;
mod code;
mod mark_search;
mod regions;
mod remarks;
mod text_scanner;
mod thoughts;
mod trained;

use std::cell::Cell;

use call_catalogue::{Catalogue, Diagnostic, Rule, Severity, Span};

use self::assembler::Assembler;
use self::text_scanner::TextScanner;
use crate::dialect::context::Context;
use crate::scan::Feed;
use crate::{Event, FinishReason, Parsed, Policy, SegmentKind};

/// Parses a whole message whose finish reason is unknown.
pub fn parse(text: &str, catalogue: &Catalogue, policy: &Policy) -> Parsed {
    parse_finished(text, catalogue, policy, FinishReason::Unknown)
}

/// Parses a whole message that ended for a known reason: after [`FinishReason::Stop`] a missing
/// last wrapper tag may be supplied (A10).
pub fn parse_finished(
    text: &str,
    catalogue: &Catalogue,
    policy: &Policy,
    reason: FinishReason,
) -> Parsed {
    let most = policy.limits.message_bytes;
    let read = text.floor_char_boundary(most);
    let context = Context {
        catalogue,
        policy,
        finish: reason,
        quiet: true,
    };
    let mut state = State::new(policy);
    state.assembler.be_quiet();
    state.finish(&text[..read], text.len() - read, &context);
    state.assembler.into_parsed(&text[..read])
}

/// An incremental parse of one message.
#[derive(Debug)]
pub struct Parser {
    catalogue: Catalogue,
    policy: Policy,
    text: String,
    /// The start of a character whose end has not arrived.
    partial: Vec<u8>,
    /// Bytes beyond the message limit.
    overflow: usize,
    replaced: bool,
    state: State,
}

/// The progress of reading a message, and the result so far.
#[derive(Debug)]
struct State {
    steps: Cell<u64>,
    scanner: TextScanner,
    assembler: Assembler,
}

impl State {
    fn new(policy: &Policy) -> Self {
        Self {
            steps: Cell::new(0),
            scanner: TextScanner::default(),
            assembler: Assembler::new(policy.limits.diagnostics),
        }
    }

    fn advance(&mut self, text: &str, eof: bool, context: &Context<'_>) {
        let feed = Feed {
            text,
            eof,
            steps: &self.steps,
            nonce: context.policy.nonce.as_deref(),
        };
        self.scanner.advance(&feed, context, &mut self.assembler);
    }

    /// Reads to the end of the message; `overflow` bytes of it were not read.
    fn finish(&mut self, text: &str, overflow: usize, context: &Context<'_>) {
        self.advance(text, true, context);
        self.scanner.finish(text, context, &mut self.assembler);
        if overflow > 0 {
            let span = Span::new(text.len(), text.len() + overflow);
            let message = format!(
                "the message is longer than {} bytes; the rest was not read",
                context.policy.limits.message_bytes
            );
            self.assembler.segment(SegmentKind::Overflow, span);
            let code = "limit_exceeded";
            self.assembler
                .diagnose(Rule::V13, Severity::Error, code, span, message, "");
        }
    }
}

impl Parser {
    /// Starts a message.
    pub fn new(catalogue: Catalogue, policy: Policy) -> Self {
        Self {
            state: State::new(&policy),
            catalogue,
            policy,
            text: String::new(),
            partial: Vec::new(),
            overflow: 0,
            replaced: false,
        }
    }

    /// Reads the next piece of the message and returns the events that it made certain.
    pub fn push(&mut self, chunk: &str) -> Vec<Event> {
        if !self.partial.is_empty() {
            return self.push_bytes(chunk.as_bytes());
        }
        self.take(chunk);
        self.advance(false, FinishReason::Unknown)
    }

    /// Reads the next piece as bytes, cut anywhere. Bytes that are not UTF-8 are replaced by
    /// U+FFFD; places refer to the replaced text.
    pub fn push_bytes(&mut self, chunk: &[u8]) -> Vec<Event> {
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(chunk);
        let mut rest = bytes.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.take(text);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.take(std::str::from_utf8(valid).unwrap_or_default());
                    let Some(width) = error.error_len() else {
                        self.partial = after.to_vec();
                        break;
                    };
                    self.replace();
                    rest = &after[width..];
                }
            }
        }
        self.advance(false, FinishReason::Unknown)
    }

    /// Ends the message: decides on open blocks and returns the whole outcome.
    pub fn finish(mut self, reason: FinishReason) -> (Vec<Event>, Parsed) {
        if !self.partial.is_empty() {
            self.partial.clear();
            self.replace();
        }
        let context = Context {
            catalogue: &self.catalogue,
            policy: &self.policy,
            finish: reason,
            quiet: false,
        };
        self.state.finish(&self.text, self.overflow, &context);
        let events = self.state.assembler.drain();
        (events, self.state.assembler.into_parsed(&self.text))
    }

    /// Ends the message and returns the number of bytes examined, for tests of linearity.
    pub fn finish_counting(mut self, reason: FinishReason) -> u64 {
        self.advance(true, reason);
        self.state.steps.get()
    }

    /// Bytes looked at so far, for tests of linearity.
    pub fn steps(&self) -> u64 {
        self.state.steps.get()
    }

    /// The remarks made so far.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        self.state.assembler.diagnostics()
    }

    fn replace(&mut self) {
        if !self.replaced {
            self.replaced = true;
            let span = Span::new(self.text.len(), self.text.len() + 3);
            let message = "bytes that are not UTF-8 were replaced".to_owned();
            self.state.assembler.diagnose(
                Rule::V11,
                Severity::Warning,
                "invalid_utf8",
                span,
                message,
                "",
            );
        }
        self.take("\u{fffd}");
    }

    fn take(&mut self, chunk: &str) {
        let room = self
            .policy
            .limits
            .message_bytes
            .saturating_sub(self.text.len());
        if self.overflow > 0 || chunk.len() > room {
            let mut cut = if self.overflow > 0 { 0 } else { room };
            while !chunk.is_char_boundary(cut) {
                cut -= 1;
            }
            self.text.push_str(&chunk[..cut]);
            self.overflow += chunk.len() - cut;
        } else {
            self.text.push_str(chunk);
        }
    }

    fn advance(&mut self, eof: bool, finish: FinishReason) -> Vec<Event> {
        let context = Context {
            catalogue: &self.catalogue,
            policy: &self.policy,
            finish,
            quiet: false,
        };
        self.state.advance(&self.text, eof, &context);
        self.state.assembler.drain()
    }
}

#[cfg(test)]
mod tests;
