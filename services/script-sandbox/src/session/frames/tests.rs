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

/// Reads everything; the error stands last.
fn read(frames: &mut Frames) -> (Vec<FromDriver>, Option<FrameError>) {
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
    assert_eq!((done.cell, done.outcome), (3, Told::Ok));
    assert_eq!(done.value.as_ref().unwrap().text, "7");
}

#[test]
fn what_is_no_message_is_an_error() {
    for wrong in [
        "",
        "{",
        "[]",
        "{\"done\": {}}",
        "{\"ready\": {}} {}",
        "\"\u{1}\"",
    ] {
        let mut frames = Frames::default();
        frames.push(&frame(wrong));
        assert_eq!(read(&mut frames).1, Some(FrameError::Malformed), "{wrong}");
    }
    let deep = "[".repeat(100_000);
    let mut frames = Frames::default();
    frames.push(&frame(&deep));
    assert_eq!(read(&mut frames).1, Some(FrameError::Malformed));
}

#[test]
fn a_length_that_is_too_large_is_refused_before_anything_else_comes() {
    let mut frames = Frames::default();
    frames.push(&u32::MAX.to_le_bytes());
    let declared = u32::MAX as usize;
    assert_eq!(frames.take(), Err(FrameError::TooLong { declared }));
}

#[test]
fn what_is_handed_on_is_bounded_whatever_it_says() {
    let frames = vec![
        Frame {
            file: "f".repeat(MAX_ERROR_TEXT * 2),
            ..Frame::default()
        };
        MAX_TRACEBACK_FRAMES * 2
    ];
    let done = Done {
        cell: 1,
        outcome: Told::Error,
        value: Some(Value {
            text: "é".repeat(100),
            truncated: u64::MAX,
        }),
        error: Some(CellError {
            frames,
            omitted: u32::MAX,
            ..CellError::default()
        }),
    };
    let done = done.bounded(11);
    let (value, error) = (done.value.unwrap(), done.error.unwrap());
    assert_eq!((value.text.len(), value.truncated), (10, u64::MAX));
    assert_eq!(error.frames.len(), MAX_TRACEBACK_FRAMES);
    assert_eq!(error.frames[0].file.len(), MAX_ERROR_TEXT);
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
                FromDriver::Ready {} => String::new(),
            })
            .collect();
        prop_assert_eq!(given, texts);
    }

    #[test]
    fn a_damaged_message_harms_nobody(
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
