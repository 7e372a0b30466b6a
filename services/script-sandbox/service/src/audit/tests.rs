use std::sync::{Arc, Mutex};

use sandbox_engine::domain::{limits::Limits, script::ScriptSpec};
use tracing_subscriber::{Layer, filter::filter_fn, layer::SubscriberExt};

use super::*;

/// The lines that a body leaves in the audit log.
fn lines(body: impl FnOnce()) -> Vec<String> {
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let written = Written::default();
    let writer = written.clone();
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .with_filter(filter_fn(|about| about.target() == telemetry::AUDIT_TARGET));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, body);
    let bytes = written.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn record() -> Record {
    let source = Program::Source("1".to_owned());
    let spec = ScriptSpec::of("python3".to_owned(), source, Limits::DEFAULT);
    let script = Script::new(spec, Vec::new()).unwrap();
    let mut record = Record::of_script(SCRIPT, &script);
    record.effect_id = "ada\"\u{7}\nforged".to_owned();
    record
}

#[test]
fn a_run_that_is_thrown_away_leaves_its_record() {
    let written = lines(|| {
        let mut record = record();
        record.admitted("python3");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _record = record;
            panic!("a task of ours");
        }));
        assert!(panicked.is_err());
    });
    assert_eq!(written.len(), 2, "{written:?}");
    assert!(written[0].contains(r#"event="started""#), "{written:?}");
    assert!(
        written[1].contains(r#"event="ended" verdict="lost""#),
        "{written:?}"
    );
}

#[test]
fn a_request_that_is_given_up_leaves_its_record() {
    let written = lines(|| drop(record()));
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(
        written[0].contains(r#"event="refused" verdict="abandoned""#),
        "{written:?}"
    );
}

#[test]
fn a_record_is_one_line_without_what_moves_a_terminal() {
    let written = lines(|| drop(record()));
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(!written[0].contains(char::is_control), "{written:?}");
    assert!(written[0].contains("tavern::audit") && written[0].contains("source_sha256"));
}

#[test]
fn a_record_is_made_once_and_a_replay_leaves_none() {
    let written = lines(|| {
        let mut record = record();
        let refusal = record.refused(Refusal::Busy { waiting: 1 });
        assert!(matches!(refusal, Refusal::Busy { .. }));
    });
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(
        written[0].contains(r#"verdict="overloaded""#),
        "{written:?}"
    );
    assert!(lines(|| record().replayed()).is_empty());
    let never_sound = || drop(record().refused(Refusal::Invalid(Vec::new())));
    assert!(lines(never_sound).is_empty());
}
