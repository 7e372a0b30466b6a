use proptest::prelude::*;

use super::*;

fn frame(json: &str) -> Vec<u8> {
    let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes
}

fn done(cell: u64, text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(
        "{{\"done\": {{\"cell\": {cell}, \"outcome\": \"ok\", \"value\": {{\"text\": {text}}}}}}}"
    )
}

/// Reads everything; an error comes last.
fn read(frames: &mut Frames) -> (Vec<FromDriver>, Option<Broken>) {
    let mut found = Vec::new();
    loop {
        match frames.take() {
            Ok(Some(message)) => found.push(message),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

#[test]
fn messages_are_read() {
    let mut frames = Frames::default();
    frames.push(&frame("{\"ready\": {}}"));
    frames.push(&frame(&done(3, "7")));
    let (found, error) = read(&mut frames);
    assert_eq!(error, None);
    assert_eq!(found[0], FromDriver::Ready {});
    let FromDriver::Done(done) = &found[1] else {
        panic!("{found:?}");
    };
    assert_eq!((done.cell, done.outcome), (3, DriverOutcome::Ok));
    assert_eq!(done.value.as_ref().unwrap().text, "7");
}

#[test]
fn text_that_is_not_json_is_an_error() {
    for wrong in ["", "{", "{\"ready\": {}} {}", "\"\u{1}\"", "!"] {
        let mut frames = Frames::default();
        frames.push(&frame(wrong));
        assert_eq!(read(&mut frames).1, Some(Broken::Malformed), "{wrong}");
    }
    let deep = "[".repeat(100_000);
    let mut frames = Frames::default();
    frames.push(&frame(&deep));
    assert_eq!(read(&mut frames).1, Some(Broken::Malformed));
}

#[test]
fn json_that_is_no_message_is_a_lost_result() {
    for wrong in [
        "[]",
        "{}",
        "7",
        "{\"done\": {}}",
        "{\"lost\": null}",
        "{\"result\": {\"cell\": 1, \"origin\": \"display\", \"data\": [1]}}",
        "{\"result\": {\"cell\": 1, \"origin\": \"other\", \"data\": {}}}",
        "{\"result\": {\"cell\": 1, \"origin\": \"display\", \"data\": {\"text/plain\": 7}}}",
    ] {
        let mut frames = Frames::default();
        frames.push(&frame(wrong));
        frames.push(&frame(&done(3, "7")));
        let (found, error) = read(&mut frames);
        assert_eq!(error, None, "{wrong}");
        assert_eq!(found[0], FromDriver::Lost, "{wrong}");
        assert_eq!(found.len(), 2, "{wrong}");
    }
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let mut frames = Frames::default();
    frames.push(&frame(&deep));
    assert_eq!(read(&mut frames), (vec![FromDriver::Lost], None));
}

#[test]
fn a_message_in_pieces_is_joined_and_a_torn_one_is_lost() {
    const LOST: Option<u64> = None;
    let whole = done(3, "7");
    let (one, rest) = whole.split_at(9);
    let (two, three) = rest.split_at(9);
    let pieces = [format!("<{one}"), format!("+{two}"), format!(">{three}")];
    let [first, second, last] = pieces.each_ref().map(String::as_str);
    let other = done(4, "8");
    for (given, expected) in [
        (&[first, second, last][..], &[Some(3)][..]),
        (&[first, second, &other], &[LOST, Some(4)]),
        (&[first, second, first, second, last], &[LOST, Some(3)]),
        (&[last, &other], &[LOST, Some(4)]),
        (&[second, second, &other], &[LOST, LOST, Some(4)]),
        (&["<[", ">]"], &[LOST]),
    ] {
        let mut frames = Frames::default();
        for each in given {
            frames.push(&frame(each));
        }
        let (found, error) = read(&mut frames);
        assert_eq!(error, None, "{given:?}");
        let cells = found.iter().map(|message| match message {
            FromDriver::Done(done) => Some(done.cell),
            _ => LOST,
        });
        assert_eq!(cells.collect::<Vec<_>>(), expected, "{given:?}");
    }
    let mut frames = Frames::default();
    frames.push(&frame("<{"));
    frames.push(&frame(">rubbish"));
    assert_eq!(read(&mut frames).1, Some(Broken::Malformed));
}

#[test]
fn a_message_with_too_many_pieces_is_lost_and_takes_no_room() {
    let mut frames = Frames::default();
    frames.push(&frame("<{"));
    let piece = format!("+{}", " ".repeat(1 << 20));
    for number in 1..20 {
        frames.push(&frame(&piece));
        let (found, error) = read(&mut frames);
        let lost = if number < 16 { 0 } else { 1 };
        assert_eq!((found.len(), error), (lost, None), "{number}");
        assert_eq!(frames.pieces.is_none(), number >= 16);
    }
    frames.push(&frame(">}"));
    frames.push(&frame(&done(3, "7")));
    let (found, _) = read(&mut frames);
    assert!(matches!(found[..], [FromDriver::Lost, FromDriver::Done(_)]));
}

#[test]
fn a_million_forged_types_become_sixteen() {
    let types: Vec<String> = (0..300_000).map(|it| format!("\"a/{it}\":\"\"")).collect();
    let json = format!(
        "{{\"result\": {{\"cell\": 1, \"origin\": \"figure\", \"data\": {{{}}}}}}}",
        types.join(",")
    );
    let mut frames = Frames::default();
    frames.push(&frame(&json));
    let Ok(Some(FromDriver::Result(shown))) = frames.take() else {
        panic!("it was not read");
    };
    assert_eq!(shown.data.parts.len(), 16);
}

#[test]
fn a_length_that_is_too_large_is_refused_before_anything_else_comes() {
    let mut frames = Frames::default();
    frames.push(&u32::MAX.to_le_bytes());
    let declared = u32::MAX as usize;
    assert_eq!(frames.take(), Err(Broken::TooLong { declared }));
}

/// An error as a cell would forge it.
fn forged_error(frames: &str) -> Done {
    let json = format!(
        "{{\"done\": {{\"cell\": 1, \"outcome\": \"error\", \"error\": {{\"omitted\": 7, \"frames\": [{frames}]}}}}}}"
    );
    assert!(json.len() <= MAX_FRAME_BYTES);
    let mut bytes = Frames::default();
    bytes.push(&frame(&json));
    match bytes.take() {
        Ok(Some(FromDriver::Done(done))) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn e91_a_million_forged_frames_become_a_hundred() {
    const MANY: u32 = 200_000;
    let frames: Vec<String> = (1..=MANY)
        .map(|line| format!("{{\"line\":{line}}}"))
        .collect();
    let done = forged_error(&frames.join(","));
    let error = done.error.as_ref().unwrap();
    assert!(error.frames.frames.capacity() < 1000);
    let error = done.bounded(11).error.unwrap();
    let lines: Vec<u32> = error.frames.frames.iter().map(|frame| frame.line).collect();
    let expected: Vec<u32> = (1..=50).chain(MANY - 49..=MANY).collect();
    assert_eq!(lines, expected);
    assert_eq!(error.omitted, 7 + MANY - 100);

    let smallest = vec!["{}"; MAX_FRAME_BYTES / 3 - 1000].join(",");
    let error = forged_error(&smallest).bounded(11).error.unwrap();
    assert_eq!(error.frames.frames.len(), MAX_TRACEBACK_FRAMES);
    assert!(error.omitted > 1_000_000);
}

#[test]
fn a_short_traceback_is_handed_on_whole() {
    let done = forged_error("{\"line\": 3}, {\"line\": 4}");
    let error = done.bounded(11).error.unwrap();
    assert_eq!((error.frames.frames.len(), error.omitted), (2, 7));
}

#[test]
fn what_is_handed_on_is_bounded_whatever_it_says() {
    let long = "f".repeat(MAX_ERROR_TEXT * 2);
    let frames = Traceback {
        frames: vec![
            Frame {
                file: long.clone(),
                function: long.clone(),
                source: long.clone(),
                ..Frame::default()
            };
            MAX_TRACEBACK_FRAMES
        ],
        omitted: 3,
    };
    let done = Done {
        cell: 1,
        outcome: DriverOutcome::Error,
        value: Some(Value {
            text: "é".repeat(100),
            truncated: u64::MAX,
        }),
        dropped: 0,
        error: Some(CellError {
            frames,
            omitted: u32::MAX,
            r#type: long.clone(),
            message: long.clone(),
            text: long,
        }),
    };
    let done = done.bounded(11);
    let (value, error) = (done.value.unwrap(), done.error.unwrap());
    assert_eq!((value.text.len(), value.truncated), (10, u64::MAX));
    let texts = [&error.r#type, &error.message, &error.text].map(String::len);
    assert_eq!(texts, [MAX_ERROR_TEXT, MAX_ERROR_TEXT, 11]);
    assert_eq!(error.omitted, u32::MAX);
    for frame in &error.frames.frames {
        for text in [&frame.file, &frame.function, &frame.source] {
            assert_eq!((text.len(), text.capacity()), (2000, 2000));
        }
    }
}

proptest! {
    #[test]
    fn hostile_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let mut frames = Frames::default();
        frames.push(&bytes);
        let (found, _) = read(&mut frames);
        for message in found {
            if let FromDriver::Done(done) = message {
                let _ = done.bounded(16);
            }
        }
    }

    #[test]
    fn messages_survive_every_cut(
        texts in proptest::collection::vec(any::<String>(), 1..8),
        sizes in proptest::collection::vec(1_usize..64, 1..32),
    ) {
        let bytes: Vec<u8> = texts
            .iter()
            .enumerate()
            .flat_map(|(cell, text)| frame(&done(cell as u64, text)))
            .collect();
        let mut frames = Frames::default();
        let (mut rest, mut found) = (bytes.as_slice(), Vec::new());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, more) = rest.split_at((*size).min(rest.len()));
            frames.push(part);
            rest = more;
            let (some, error) = read(&mut frames);
            prop_assert_eq!(error, None);
            found.extend(some);
        }
        let given: Vec<String> = found
            .into_iter()
            .map(|message| match message {
                FromDriver::Done(done) => done.value.unwrap_or_default().text,
                _ => String::new(),
            })
            .collect();
        prop_assert_eq!(given, texts);
    }

    #[test]
    fn a_damaged_message_harms_no_other(
        text in any::<String>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = frame(&done(1, &text));
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let mut frames = Frames::default();
        frames.push(&bytes);
        let _ = read(&mut frames);
    }
}
