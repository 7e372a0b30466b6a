//! Results of code that means no good.

use super::*;

/// Code that writes a frame to the driver's channel.
const FRAME: &str = "
import os, struct, json
def frame(body):
    body = body.encode()
    data = memoryview(struct.pack('<I', len(body)) + body)
    while data: data = data[os.write(3, data):]
def forge(**changes):
    frame(json.dumps({'result': {'cell': cell, 'origin': 'display', 'data': {'text/plain': 'forged'}, **changes}}))
";

/// A value of Node.js that shows itself as a text of some length, which `util.inspect` would cut.
const LARGE_IN_NODE: &str = "
const large = (size) => ({ [Symbol.for('Jupyter.display')]: () => ({ 'text/latex': 'x'.repeat(size) }) });
";

#[test]
fn a_representation_that_fails_is_named_in_the_text() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        let classes = r#"
class Raises:
    def __repr__(self): raise ValueError("bad")
class Mute(Exception):
    def __str__(self): raise self
class Parts:
    def __repr__(self): return "Parts()"
    def _repr_html_(self): raise ValueError("bad")
    def _repr_markdown_(self): raise Mute
    def _repr_latex_(self): raise SystemExit(3)
    def _repr_json_(self): return {1, 2}
    def _repr_png_(self): return "no base64!"
class Bundle:
    def __repr__(self): return "Bundle()"
    def _repr_mimebundle_(self, **kwargs): return 7
class Huge:
    def __repr__(self): return "x" * 50_000_000
class HugeParts:
    def __repr__(self): return "HugeParts()"
    def _repr_html_(self): return "x" * 50_000_000
    def _repr_latex_(self): return "x" * 50_000_000
    def _repr_markdown_(self): return "x" * 5_000_000
    def _repr_svg_(self): return "x" * 5_000_000
class Page:
    def __repr__(self): return "Page()"
    def _repr_html_(self): return "x" * (1 << 20) + "y"
class Recursive:
    def __repr__(self): return repr(self)
"#;
        host.cell(&session, classes).await.shows(&[], 0);
        let (html, latex) = (
            "<text/html of 50000000 bytes left out>",
            "<text/latex of 50000000 bytes left out>",
        );
        for (source, types_of, text, dropped) in [
            ("Raises()", 1, "<repr failed: ValueError: bad>".to_owned(), 0),
            (
                "Parts()",
                1,
                "Parts()\n<_repr_html_ failed: ValueError: bad>\n<_repr_markdown_ failed: Mute>\n\
                 <image/png failed: Error: Only base64 data is allowed>\n<_repr_latex_ failed: SystemExit: 3>\n\
                 <application/json failed: TypeError: Object of type set is not JSON serializable>"
                    .to_owned(),
                0,
            ),
            (
                "Bundle()",
                1,
                "Bundle()\n<_repr_mimebundle_ failed: AttributeError: 'int' object has no attribute 'items'>".to_owned(),
                0,
            ),
            ("Huge()", 1, "<text/plain of 50000002 bytes left out>".replace('2', "0"), 1),
            ("Page()", 1, "Page()\n<text/html of 1048577 bytes left out>".to_owned(), 0),
            (
                "HugeParts()",
                2,
                format!("HugeParts()\n{html}\n{latex}\n<text/markdown of 5000000 bytes left out>"),
                3,
            ),
        ] {
            let ran = host.cell(&session, source).await;
            assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded, "{source}");
            assert_eq!(ran.text("text/plain"), text, "{source}");
            assert_eq!(types(&ran.results[0]).1.len(), types_of, "{source}");
            assert_eq!(ran.ended.dropped_results, dropped, "{source}");
        }
        let ran = host.cell(&session, "Recursive()").await;
        assert!(
            ran.text("text/plain")
                .starts_with("<repr failed: RecursionError: ")
        );
        let ran = host.cell(&session, "Raises()").await;
        assert_eq!(ran.value.as_deref(), Some("<repr failed: ValueError: bad>"));
        assert_eq!(
            host.cell(&session, "Huge()").await.value.unwrap().len(),
            256 << 10
        );
    });
}

#[test]
fn a_representation_that_takes_too_long_is_ended_and_the_alarm_of_the_user_rings() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        let classes = "
import signal, time
rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
class Slow:
    def __repr__(self): return 'Slow()'
    def _repr_html_(self):
        while True:
            try: time.sleep(60)
            except Exception: pass
class Stuck:
    def __repr__(self):
        while True: pass
begun = time.monotonic(); signal.setitimer(signal.ITIMER_REAL, 2)
display(Slow())
";
        let ran = host.cell(&session, classes).await;
        ran.shows(
            &["display text/plain=\"Slow()\\n<_repr_html_ took longer than 5 s>\""],
            0,
        );
        let ran = host
            .cell(
                &session,
                "time.sleep(0.1); len(rung), 5 <= rung[0] - begun < 7",
            )
            .await;
        assert_eq!(ran.value.as_deref(), Some("(1, True)"));
        let ran = host.cell(&session, "Stuck()").await;
        ran.gives(
            CellOutcome::Succeeded,
            "",
            Some("<repr took longer than 5 s>"),
        );
        ran.shows(
            &["expression text/plain=\"<repr took longer than 5 s>\""],
            0,
        );

        // An interrupt of the caller ends the cell, not the representation only.
        let running = host
            .begin(&session, "print('in', end=''); display(Stuck())")
            .await;
        let interrupt = async || assert!(host.interrupt(&session, 20.0).await.interrupted);
        let ran = follow_with(running, interrupt).await;
        ran.gives(CellOutcome::Interrupted, "in", None);
        host.cell(&session, "1")
            .await
            .gives(CellOutcome::Succeeded, "", Some("1"));
    });
}

#[test]
fn an_interrupt_in_the_middle_of_a_large_result_leaves_the_session_alive() {
    as_every_user(async || {
        let host = Host::full().await;
        for (language, loop_) in [
            (
                "python3",
                "text = 'x' * 1_000_000\nprint('in')\nwhile True: display(text, text)".to_owned(),
            ),
            (
                "node",
                format!("{LARGE_IN_NODE}console.log('in'); for (;;) display(large(1000000))"),
            ),
        ] {
            let mut session = host.session(language).await;
            let mut survived = 0;
            for _ in 0..5 {
                let running = host.begin(&session, &loop_).await;
                let interrupt = async || assert!(host.interrupt(&session, 20.0).await.interrupted);
                let ran = follow_with(running, interrupt).await;
                if ran.ended.outcome() == CellOutcome::SessionEnded {
                    // An interrupt without a listener ends Node.js; its profile documents that.
                    assert_eq!(language, "node");
                    session = host.session(language).await;
                    continue;
                }
                assert_eq!(ran.ended.outcome(), CellOutcome::Interrupted, "{language}");
                let ran = host.cell(&session, "1 + 1").await;
                ran.gives(CellOutcome::Succeeded, "", Some("2"));
                ran.shows(&["expression text/plain=\"2\""], 0);
                survived += 1;
            }
            assert!(survived > 0, "{language}");
        }
    });
}

#[test]
fn very_many_results_are_bounded_and_counted() {
    as_every_user(async || {
        let host = Host::full().await;
        for (language, source) in [
            ("python3", "for n in range(1000): display(n)"),
            ("node", "for (let n = 0; n < 1000; n++) display(n)"),
        ] {
            let session = host.session(language).await;
            let ran = host.cell(&session, source).await;
            assert_eq!((ran.results.len(), ran.ended.dropped_results), (32, 968));
            assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded);
            let source = "for n in range(6): display('x' * 7_000_000)";
            let in_node =
                format!("{LARGE_IN_NODE}for (let n = 0; n < 6; n++) display(large(7000002))");
            let source = if language == "node" { &in_node } else { source };
            let ran = host.cell(&session, source).await;
            assert_eq!((ran.results.len(), ran.ended.dropped_results), (4, 2));
            for result in &ran.results {
                assert_eq!(host.content(&result.data[0]).len(), 7_000_002);
            }
        }
    });
}

#[test]
fn e91_forged_results_are_dropped_and_counted() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        host.cell(&session, FRAME).await.shows(&[], 0);
        for (number, forgery) in [
            "frame('{}')",
            "frame('[]')",
            "frame('7')",
            "frame('{\"done\": {}}')",
            "frame('[' * 1000 + ']' * 1000)",
            "forge(cell=99)",
            "forge(origin='other')",
            "forge(origin=7)",
            "forge(data=None)",
            "forge(data=[1])",
            "forge(data={})",
            "forge(data={'text/plain': 7})",
            "forge(data={'image/png': '!'})",
            "forge(data={'application/json': '{'})",
            "forge(data={'application/json': '[' * 1000})",
            "forge(data={'text': 'x'})",
            "forge(data={'application/javascript': 'alert(1)'})",
            "forge(metadata={})",
            "frame('<{\"result\"')",
            "frame('>{}')",
        ]
        .into_iter()
        .enumerate()
        {
            let cell = number + 2;
            let source = format!("cell = {cell}\n{forgery}\nprint('out')\n'value'");
            let ran = host.cell(&session, &source).await;
            ran.gives(CellOutcome::Succeeded, "out\n", Some("'value'"));
            assert_eq!(ran.ended.dropped_results, 1, "{forgery}");
            assert_eq!(ran.results.len(), 1, "{forgery}: {:?}", ran.results);
        }
        let source = "cell = 22; forge(); forge(metadata='[1]'); forge(data={'text/plain': 'x', 'text': 'y'})";
        let expected = [
            "display text/plain=\"forged\"",
            "display text/plain=\"forged\"",
            "display text/plain=\"x\"",
        ];
        host.cell(&session, source).await.shows(&expected, 0);
        let many = "cell = 23\nfor _ in range(1000): forge(); frame('{}')";
        let ran = host.cell(&session, many).await;
        assert_eq!((ran.results.len(), ran.ended.dropped_results), (32, 1968));
        let wide = "cell = 24; forge(data={f'a/{n}': '' for n in range(100_000)})";
        let ran = host.cell(&session, wide).await;
        assert_eq!(ran.results[0].data.len(), 16);
    });
}

#[test]
fn e91_a_flood_of_messages_is_interrupted() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        host.cell(&session, FRAME).await.shows(&[], 0);
        let flood = RunCellRequest {
            wall_time: seconds(300.0),
            ..cell(
                &session,
                "body = '[' + ' ' * 4_000_000 + ']'\nwhile True: frame(body)",
            )
        };
        let ran = follow(host.try_begin(flood).await.unwrap()).await;
        assert_eq!(ran.ended.interruption(), CellInterruption::Output);
        assert!(ran.ended.dropped_results > 100);
    });
}
