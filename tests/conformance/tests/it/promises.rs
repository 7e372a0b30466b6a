//! The guarantees for every text: no byte is lost, chunks make no difference, no incomplete call
//! runs.

use call_catalogue::Catalogue;
use call_text::{Event, FinishReason, Parsed, Parser, Policy, SegmentKind, parse_finished};
use conformance::{Case, cases, catalogue};
use proptest::prelude::*;

/// Parses in pieces; returns the events with neighbouring deltas joined, and the outcome.
fn in_pieces(
    pieces: &[&[u8]],
    catalogue: &Catalogue,
    policy: &Policy,
    finish: FinishReason,
) -> (Vec<Event>, Parsed) {
    let mut parser = Parser::new(catalogue.clone(), policy.clone());
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(parser.push_bytes(piece));
    }
    let (rest, parsed) = parser.finish(finish);
    events.extend(rest);
    (joined(events), parsed)
}

fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    for event in events {
        // A stream may have opened the block that a closing mark turns into a thought.
        if matches!(event, Event::Thought { takes_back, .. } if takes_back) {
            out.retain(|event| !is_of_open_block(event));
        }
        match (out.last_mut(), &event) {
            (
                Some(Event::Text {
                    span,
                    text,
                    trailing,
                }),
                Event::Text {
                    span: next,
                    text: more,
                    trailing: also,
                },
            ) if trailing == also => {
                assert_eq!(span.end, next.start);
                span.end = next.end;
                text.push_str(more);
            }
            (
                Some(Event::Thought { span, text, .. }),
                Event::Thought {
                    span: next,
                    text: more,
                    takes_back: false,
                },
            ) => {
                span.end = next.end;
                text.push_str(more);
            }
            (
                Some(Event::ArgumentDelta {
                    block,
                    call,
                    argument,
                    text,
                    ..
                }),
                Event::ArgumentDelta {
                    block: other,
                    call: second,
                    argument: third,
                    text: more,
                    ..
                },
            ) if block == other && call == second && argument == third => text.push_str(more),
            _ => out.push(event),
        }
    }
    out
}

fn is_of_open_block(event: &Event) -> bool {
    matches!(
        event,
        Event::BlockOpened { .. } | Event::CallOpened { .. } | Event::ArgumentDelta { .. }
    )
}

fn every_byte_is_in_one_segment(text: &str, parsed: &Parsed) {
    let mut at = 0;
    for segment in &parsed.segments {
        assert_eq!(
            segment.span.start, at,
            "a gap or an overlap in {text:?}: {:?}",
            parsed.segments
        );
        assert!(text.is_char_boundary(segment.span.start) || segment.kind == SegmentKind::Overflow);
        at = segment.span.end;
    }
    assert_eq!(at, text.len(), "{text:?}");
}

fn check(case: &Case, catalogue: &Catalogue, pieces: &[&[u8]], whole: &(Vec<Event>, Parsed)) {
    let expected = &case.expected;
    let cut = in_pieces(pieces, catalogue, &expected.policy, expected.finish);
    let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
    assert_eq!(cut.1, whole.1, "{} in pieces of {lengths:?}", case.name);
    assert_eq!(cut.0, whole.0, "{} in pieces of {lengths:?}", case.name);
}

#[test]
fn every_split_in_two_gives_the_same_events() {
    let catalogue = catalogue().unwrap();
    for case in cases().unwrap() {
        let bytes = case.input.as_bytes();
        let whole = in_pieces(
            &[bytes],
            &catalogue,
            &case.expected.policy,
            case.expected.finish,
        );
        every_byte_is_in_one_segment(&case.input, &whole.1);
        for cut in 0..=bytes.len() {
            check(&case, &catalogue, &[&bytes[..cut], &bytes[cut..]], &whole);
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        check(&case, &catalogue, &single, &whole);
    }
}

#[test]
fn released_text_holds_no_marker_of_a_block_that_runs() {
    let catalogue = catalogue().unwrap();
    for case in cases().unwrap() {
        let bytes = case.input.as_bytes();
        let pieces: Vec<&[u8]> = bytes.chunks(3).collect();
        let (events, parsed) = in_pieces(
            &pieces,
            &catalogue,
            &case.expected.policy,
            case.expected.finish,
        );
        for event in &events {
            let Event::Text { span, .. } = event else {
                continue;
            };
            let overlaps = parsed
                .blocks
                .iter()
                .any(|block| span.start < block.span.end && block.span.start < span.end);
            assert!(!overlaps, "{}: {event:?}", case.name);
        }
    }
}

#[test]
fn argument_deltas_join_to_a_prefix_of_the_source_text() {
    let catalogue = catalogue().unwrap();
    for case in cases().unwrap() {
        let bytes = case.input.as_bytes();
        let pieces: Vec<&[u8]> = bytes.chunks(2).collect();
        let (events, parsed) = in_pieces(
            &pieces,
            &catalogue,
            &case.expected.policy,
            case.expected.finish,
        );
        // Blocks that were taken back are no longer in the list.
        let taken_back = |event: &Event| {
            matches!(
                event,
                Event::Thought {
                    takes_back: true,
                    ..
                }
            )
        };
        let kept = events.iter().rposition(taken_back).unwrap_or_default();
        for event in &events[kept..] {
            let Event::ArgumentDelta {
                name, text, block, ..
            } = event
            else {
                continue;
            };
            let block = &parsed.blocks[*block];
            let source = &case.input[block.span.start..block.span.end];
            assert!(
                source.contains(text.as_str()),
                "{}: {name} {text:?}",
                case.name
            );
        }
    }
}

#[test]
fn truncation_at_every_byte_runs_nothing_that_was_not_complete() {
    let catalogue = catalogue().unwrap();
    for case in cases().unwrap() {
        let whole = parse_finished(
            &case.input,
            &catalogue,
            &case.expected.policy,
            FinishReason::Length,
        );
        for cut in (0..case.input.len()).filter(|cut| case.input.is_char_boundary(*cut)) {
            let text = &case.input[..cut];
            let parsed = parse_finished(
                text,
                &catalogue,
                &case.expected.policy,
                FinishReason::Length,
            );
            every_byte_is_in_one_segment(text, &parsed);
            for call in parsed.ready_calls() {
                let same = whole
                    .calls
                    .iter()
                    .any(|other| other.span == call.span && other.arguments == call.arguments);
                let block_end = parsed.blocks[call.block].span.end;
                // A block that was complete stays unchanged; the rest of the message can at most
                // turn a fence round it into text.
                let complete = same || whole.calls.is_empty() || closes(&case.input[..block_end]);
                assert!(
                    complete,
                    "{} cut at {cut} runs {}",
                    case.name,
                    call.canonical()
                );
            }
        }
    }
}

/// Whether a text ends with the end marker of a block.
fn closes(text: &str) -> bool {
    let text = text.trim_end().to_lowercase();
    [
        "</action>",
        "]|>",
        "]>>>",
        "]>>",
        "</tool_call>",
        "</invoke>",
        "</function>",
        "</function_calls>",
        "＞",
        "</ action >",
        "<｜tool▁calls▁end｜>",
        "section_end|>",
        "<|call|>",
    ]
    .iter()
    .any(|end| text.ends_with(end))
        // If the mark at the end also ends the answer, servers cut it off.
        || text.ends_with('}') && (text.contains("<|message|>") || text.contains("[args]"))
}

/// Pieces of which hostile texts are made.
const PIECES: &[&str] = &[
    "<ACTION>",
    "</ACTION>",
    "<action ",
    "<note>",
    "</note>",
    "<text>",
    "</text>",
    "<write>",
    "</write>",
    "<path>",
    "</path>",
    "<content>",
    "</content>",
    "<![CDATA[",
    "]]>",
    "]]",
    "<!--",
    "-->",
    "<|[REQUEST_TOOL]|>",
    "<|[END_TOOL]|>",
    "command:「始」note「末」",
    "command1:",
    "text:「始」",
    "「末」",
    "「始」",
    "»»»",
    "«««",
    "text:»»»",
    "\n",
    "\r\n",
    " ",
    ",",
    "# c\n",
    "```",
    "```xml\n",
    "`",
    "``",
    "~~~",
    "> ",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_call name=\"note\">",
    "<param name=\"text\">",
    "</param>",
    "<function=note>",
    "<parameter=text>",
    "</parameter>",
    "</function>",
    "{\"name\":\"note\",\"arguments\":{\"text\":\"a\"}}",
    "{",
    "\"",
    "\\",
    "<<<[TOOL_REQUEST]>>>",
    "<<<[END_TOOL_REQUEST]>>>",
    "tool_name:「始」note「末」",
    "「始ESCAPE」",
    "「末ESCAPE」",
    "＜ACTION＞",
    "＜/ACTION＞",
    "＜note＞",
    "&lt;",
    "&",
    "<",
    ">",
    "/",
    "a",
    "text",
    "Observation:",
    "\u{feff}",
    "\u{200b}",
    "é",
    "<item>",
    "</item>",
    "=",
    ":",
    "<ping/>",
    "text: b\n",
    "<tool_call>",
    "</tool_call>",
    "note\n",
    "<arg_key>text</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>functions.note:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|start|>assistant",
    "<|channel|>commentary to=functions.note <|constrain|>json",
    "<|channel|>commentary",
    "<|message|>",
    "<|call|>",
    "<|end|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "{\"text\": \"a\"}",
    "{\"name\": \"note\", \"arguments\": {\"text\": \"a\"}}",
    "\n",
    "```json\n",
    "```tool_code\n",
    "\n```\n",
    "[note(text=\"a\")]",
    "functools[",
    "\nAction: note\nAction Input: ",
    "Action",
    "<|python_tag|>",
    "[TOOL_CALL]",
    "<minimax:tool_call>",
    "<｜DSML｜invoke name=\"note\">",
];

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_text_in_any_pieces_gives_the_same(text in soup(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let catalogue = catalogue().unwrap();
        let bytes = text.as_bytes();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        ends.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for end in ends {
            pieces.push(&bytes[from..end]);
            from = end;
        }
        pieces.push(&bytes[from..]);
        for finish in [FinishReason::Stop, FinishReason::Length] {
            let whole = in_pieces(&[bytes], &catalogue, &Policy::default(), finish);
            every_byte_is_in_one_segment(&text, &whole.1);
            let cut = in_pieces(&pieces, &catalogue, &Policy::default(), finish);
            prop_assert_eq!(&cut, &whole, "{:?}", text);
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let catalogue = catalogue().unwrap();
        let (_, parsed) = in_pieces(&[&bytes], &catalogue, &Policy::default(), FinishReason::Stop);
        every_byte_is_in_one_segment(&String::from_utf8_lossy(&bytes), &parsed);
    }
}
