//! The parsing of model text, compared with the raw event reader of quick-xml on the same bytes.
//!
//! The floor does less: it finds tags and ends of tags, but neither decides which of them belong to
//! a call nor types a value.

mod corpus;

use anyhow::ensure;
use call_catalogue::Catalogue;
use call_text::{FinishReason, Parser, Policy};
use quick_xml::events::Event;
use quick_xml::reader::Reader;

use crate::harness::{Effort, seconds_of};
use crate::series::{Series, Unit};
use crate::table::Figure;

use corpus::Corpus;

/// The bytes that one round reads.
const ROUND_BYTES: usize = 4 << 20;

/// The size of the pieces in which a model's answer arrives.
const CHUNK_BYTES: usize = 100;

const MEGABYTE: f64 = 1e6;

pub(super) fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let catalogue = corpus::catalogue()?;
    let mut figures = Vec::new();
    for corpus in corpus::all() {
        check(&corpus, &catalogue)?;
        figures.push(whole_messages(&corpus, &catalogue, effort));
    }
    for corpus in corpus::all() {
        figures.push(chunks(&corpus, &catalogue, effort));
    }
    Ok(figures)
}

/// Makes sure that the measured messages are read as calls, and not refused.
fn check(corpus: &Corpus, catalogue: &Catalogue) -> anyhow::Result<()> {
    for message in &corpus.messages {
        let parsed = call_text::parse(message, catalogue, &Policy::default());
        let ready = parsed.ready_calls().count();
        let (name, calls) = (corpus.name, corpus.calls);
        ensure!(
            ready == calls,
            "{name}: {ready} of {calls} calls are ready: {:?}",
            parsed.diagnostics
        );
    }
    Ok(())
}

fn whole_messages(corpus: &Corpus, catalogue: &Catalogue, effort: &Effort) -> Figure {
    let bytes: usize = corpus.messages.iter().map(String::len).sum();
    let repeats = (ROUND_BYTES / bytes).max(1);
    let megabytes = (repeats * bytes) as f64 / MEGABYTE;
    let policy = Policy::default();
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let mut round = |keep: bool| {
        let read = seconds_of(|| {
            for _ in 0..repeats {
                for message in &corpus.messages {
                    std::hint::black_box(call_text::parse(message, catalogue, &policy));
                }
            }
        });
        let scanned = seconds_of(|| {
            for _ in 0..repeats {
                for message in &corpus.messages {
                    std::hint::black_box(scan(message));
                }
            }
        });
        if keep {
            ours.push(megabytes / read);
            floor.push(megabytes / scanned);
        }
    };
    round(false);
    (0..effort.times(30)).for_each(|_| round(true));
    let measured = Series::new(Unit::MegabytesPerSecond, ours);
    let figure = Figure::new(format!("parse, {}", corpus.name), measured).goal(corpus.goal);
    match readable(corpus) {
        true => figure.floor(
            "quick-xml events",
            Series::new(Unit::MegabytesPerSecond, floor),
        ),
        false => figure,
    }
}

/// Measures every piece by itself, as it is the slowest that a reader notices.
fn chunks(corpus: &Corpus, catalogue: &Catalogue, effort: &Effort) -> Figure {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for repeat in 0..=effort.times(20) {
        for message in &corpus.messages {
            let mut parser = Parser::new(catalogue.clone(), Policy::default());
            let pieces = pieces(message);
            for piece in &pieces {
                let seconds = seconds_of(|| parser.push(piece));
                // The first repetition only warms up.
                if repeat > 0 {
                    ours.push(seconds);
                }
            }
            std::hint::black_box(parser.finish(FinishReason::Stop));
            floor.push(seconds_of(|| scan(message)) / pieces.len() as f64);
        }
    }
    let what = format!("piece of {CHUNK_BYTES} bytes, {}", corpus.name);
    let figure = Figure::new(what, Series::seconds(ours)).goal_of_tail(20e-6);
    match readable(corpus) {
        true => figure.floor("quick-xml, share of the whole", Series::seconds(floor)),
        false => figure,
    }
}

/// Reads a text as a sequence of raw XML events. Returns their number, or `None` where the reader
/// gives up.
fn scan(text: &str) -> Option<usize> {
    let mut reader = Reader::from_str(text);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    let mut events = 0;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => return Some(events),
            Ok(event) => {
                std::hint::black_box(event);
                events += 1;
            }
            Err(_) => return None,
        }
    }
}

/// Returns whether the reader reaches the end of every message.
fn readable(corpus: &Corpus) -> bool {
    corpus
        .messages
        .iter()
        .all(|message| scan(message).is_some())
}

/// Cuts a text into pieces of [`CHUNK_BYTES`], or a little less where a character would be cut.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut cut = rest.len().min(CHUNK_BYTES);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let (piece, after) = rest.split_at(cut);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_every_corpus_is_ready_to_run() {
        let catalogue = corpus::catalogue().expect("the tools are well formed");
        for corpus in corpus::all() {
            check(&corpus, &catalogue).expect("the messages are well formed");
        }
    }

    #[test]
    fn pieces_are_the_whole_text_and_cut_no_character() {
        let text = "末".repeat(100);
        let pieces = pieces(&text);
        assert_eq!(pieces.concat(), text);
        assert!(pieces.iter().all(|piece| piece.len() <= CHUNK_BYTES));
    }
}
