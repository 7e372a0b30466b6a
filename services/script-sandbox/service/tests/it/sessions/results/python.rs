//! Results in Python without libraries.

use super::*;

const CLASSES: &str = r#"
class Page:
    def __repr__(self): return "Page()"
    def _repr_html_(self): return "<b>1</b>"
    def _repr_markdown_(self): return "**1**"
    def _repr_latex_(self): return "$1$"
    def _repr_svg_(self): return "<svg/>"
    def _repr_json_(self): return {"a": [1]}
    def _repr_javascript_(self): return "alert(1)"
class Dot:
    def __repr__(self): return "Dot()"
    def _repr_png_(self): return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x03\0\0\0\x05\x08\0\0\0\0"
    def _repr_jpeg_(self): return "/9j/wAARCAAFAAcA", {"width": 7, "dpi": 1}
class Whole:
    def __repr__(self): return "Whole()"
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": "<i>2</i>", "application/vnd.x+json": {"b": 2}, "application/x-raw": b"123"}, {"text/html": {"isolated": True}}
    def _repr_html_(self): return "not asked"
    def _repr_latex_(self): return "$2$"
class Short:
    def __repr__(self): return "Short()"
    def _repr_mimebundle_(self): return {"text/plain": "short", "TEXT/HTML": "x", "text": "no", "a/b; c=d": "no"}
class Own:
    def __repr__(self): return "Own()"
    def _ipython_display_(self): display("by itself")
"#;

#[test]
fn values_are_shown_in_the_types_that_they_have() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        host.cell(&session, CLASSES).await.shows(&[], 0);
        for (source, value, expected) in [
            ("1 + 1", Some("2"), &["expression text/plain=\"2\""][..]),
            ("1 + 1;", Some("2"), &[]),
            ("(1 +\n 1) ; # no result", Some("2"), &[]),
            ("';'", Some("';'"), &["expression text/plain=\"';'\""]),
            ("None", None, &[]),
            ("x = 1", None, &[]),
            ("display()", None, &[]),
            (
                "display(1, 'two')\n3",
                Some("3"),
                &[
                    "display text/plain=\"1\"",
                    "display text/plain=\"'two'\"",
                    "expression text/plain=\"3\"",
                ],
            ),
            (
                "Page()",
                Some("Page()"),
                &[
                    "expression application/json=\"{\\\"a\\\": [1]}\" image/svg+xml=\"<svg/>\" text/html=\"<b>1</b>\" \
                    text/latex=\"$1$\" text/markdown=\"**1**\" text/plain=\"Page()\"",
                ],
            ),
            (
                "Page",
                Some("<class '__main__.Page'>"),
                &["expression text/plain=\"<class '__main__.Page'>\""],
            ),
            (
                "Dot()",
                Some("Dot()"),
                &[
                    "expression image/jpeg=12 bytes image/png=29 bytes text/plain=\"Dot()\" \
                    {\"image/png\": {\"width\": 3, \"height\": 5}, \"image/jpeg\": {\"width\": 7, \"height\": 5, \"dpi\": 1}}",
                ],
            ),
            (
                "display(Whole()); _",
                Some("Dot()"),
                &[
                    "display application/vnd.x+json=\"{\\\"b\\\": 2}\" application/x-raw=3 bytes \
                     text/html=\"<i>2</i>\" text/latex=\"$2$\" text/plain=\"Whole()\" {\"text/html\": {\"isolated\": true}}",
                    "expression image/jpeg=12 bytes image/png=29 bytes text/plain=\"Dot()\" \
                     {\"image/png\": {\"width\": 3, \"height\": 5}, \"image/jpeg\": {\"width\": 7, \"height\": 5, \"dpi\": 1}}",
                ],
            ),
            (
                "Short()",
                Some("Short()"),
                &["expression text/html=\"x\" text/plain=\"short\""],
            ),
            (
                "Own()",
                Some("Own()"),
                &["display text/plain=\"'by itself'\""],
            ),
            (
                "display({'text/html': '<p>', 'text/plain': 'p'}, raw=True)",
                None,
                &["display text/html=\"<p>\" text/plain=\"p\""],
            ),
            (
                "display(Page(), include=['text/plain', 'text/latex'])",
                None,
                &["display text/latex=\"$1$\" text/plain=\"Page()\""],
            ),
        ] {
            let ran = host.cell(&session, source).await;
            ran.gives(CellOutcome::Succeeded, "", value);
            ran.shows(expected, 0);
        }
    });
}

#[test]
fn values_that_are_odd_are_shown_as_texts() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        let classes = "
import unittest.mock
class Exits:
    def __repr__(self): return 'Exits()'
    def __getattribute__(self, name): raise SystemExit(3)
class Elsewhere:
    def __repr__(self): return 'Elsewhere()'
    def _ipython_display_(self): raise ImportError('no widgets')
    def _repr_html_(self): return '<b>'
class Nested:
    def __repr__(self): display('inner'); return 'Nested()'
import signal
before = signal.signal(signal.SIGUSR1, lambda *_: display('handler'))
";
        host.cell(&session, classes).await.shows(&[], 0);
        for (source, expected) in [
            ("Exits()", &["expression text/plain=\"Exits()\""][..]),
            (
                "Elsewhere()",
                &[
                    "expression text/html=\"<b>\" text/plain=\"Elsewhere()\\n<_ipython_display_ failed: ImportError: no widgets>\"",
                ],
            ),
            (
                "Nested()",
                &[
                    "display text/plain=\"'inner'\"",
                    "expression text/plain=\"Nested()\"",
                ],
            ),
            (
                "signal.raise_signal(signal.SIGUSR1)\ndisplay('\\ud800')",
                &[
                    "display text/plain=\"'handler'\"",
                    "display text/plain=\"'\\\\ud800'\"",
                ],
            ),
            (
                "display({'text/html': '\\ud800'}, raw=True)",
                &["display text/html=\"\\\\ud800\""],
            ),
        ] {
            host.cell(&session, source).await.shows(expected, 0);
        }
        let ran = host.cell(&session, "unittest.mock.MagicMock()").await;
        assert_eq!(types(&ran.results[0]).1, ["text/plain"]);
    });
}

#[test]
fn results_come_while_the_cell_runs_in_order_with_its_output() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        let source = "
import time
for n in range(3):
    print('before', n); display(n)
time.sleep(300)
";
        let mut running = host.begin(&session, source).await;
        let mut seen = String::new();
        while !seen.contains("=\"2\"") {
            match running.message().await.unwrap().unwrap().event.unwrap() {
                Event::Output(chunk) => seen += &String::from_utf8(chunk.data).unwrap(),
                Event::Result(result) => seen += &format!("{}\n", line(&result)),
                _ => {}
            }
        }
        let expected = (0..3).map(|n| format!("before {n}\ndisplay text/plain=\"{n}\"\n"));
        assert_eq!(seen, expected.collect::<String>());
        assert!(host.interrupt(&session, 20.0).await.interrupted);
    });
}

#[test]
fn an_error_keeps_earlier_results_and_names_its_lines() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        let source =
            "print('out')\ndisplay('shown')\n\ndef divide(n):\n    return n / 0\n\ndivide(1)";
        let ran = host.cell(&session, source).await;
        ran.gives(CellOutcome::Raised, "out\n", None);
        assert_eq!(line(&ran.results[0]), "display text/plain=\"'shown'\"");
        let error = ran.error.unwrap();
        assert_eq!(
            (error.r#type.as_str(), error.message.as_str()),
            ("ZeroDivisionError", "division by zero")
        );
        let places = error
            .frames
            .iter()
            .map(|it| (it.line, it.source_line.as_str()));
        assert_eq!(
            places.collect::<Vec<_>>(),
            [(7, "divide(1)"), (5, "return n / 0")]
        );
    });
}

#[test]
fn large_representations_are_blobs_of_the_caller() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        let source = "
class Picture:
    def __repr__(self): return 'p'
    def _repr_png_(self): return bytes(range(256)) * 4096
    def _repr_html_(self): return 'é' * 20_000
    def _repr_latex_(self): return 'x' * (32 << 10)
Picture()
";
        let ran = host.cell(&session, source).await;
        ran.gives(CellOutcome::Succeeded, "", Some("p"));
        let parts = &ran.results[0].data;
        let sizes = parts
            .iter()
            .map(|it| (it.media_type.as_str(), host.content(it).len()));
        let expected = [
            ("image/png", 1 << 20),
            ("text/html", 40_000),
            ("text/latex", 32 << 10),
            ("text/plain", 1),
        ];
        assert_eq!(sizes.collect::<Vec<_>>(), expected);
        assert_eq!(host.content(&parts[0])[..4], [0, 1, 2, 3]);
    });
}

#[test]
fn threads_and_forks_show_in_their_turn_or_not_at_all() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        let source = "
import os, threading
go, done = threading.Event(), threading.Event()
def late():
    while not done.is_set():
        go.wait()
        display('late ' * 20_000)
thread = threading.Thread(target=late, daemon=True)
thread.start()
def inside(): display('in a thread')
other = threading.Thread(target=inside); other.start(); other.join()
";
        let ran = host.cell(&session, source).await;
        ran.shows(&["display text/plain=\"'in a thread'\""], 0);
        host.cell(&session, "go.set()").await;
        // Between the cells the thread continues to show.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..3 {
            let ran = host.cell(&session, "'this cell'").await;
            assert_eq!(ran.value.as_deref(), Some("'this cell'"));
            assert_eq!(
                ran.ended.outcome(),
                CellOutcome::Succeeded,
                "{:?}",
                ran.error
            );
        }
        host.cell(&session, "done.set(); thread.join()").await;
        let source = "
child = os.fork()
if child == 0:
    display('in a child')
    os._exit(0)
os.waitpid(child, 0)[1]
";
        let ran = host.cell(&session, source).await;
        ran.gives(CellOutcome::Succeeded, "'in a child'\n", Some("0"));
        ran.shows(&["expression text/plain=\"0\""], 0);
    });
}
