//! Results in Node.js.

use super::*;

const CLASSES: &str = r#"
const Show = Symbol.for('Jupyter.display');
const show = (bundle) => ({ [Show]: () => bundle, [Symbol.for('nodejs.util.inspect.custom')]: () => 'shown' });
const png = Uint8Array.from([0x89, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 3, 0, 0, 0, 5]);
undefined
"#;

#[test]
fn values_of_node_are_shown_in_the_types_that_they_have() {
    everywhere(async |host| {
        let session = host.session("node").await;
        host.cell(&session, CLASSES).await.shows(&[], 0);
        for (source, value, expected) in [
            ("1 + 1", Some("2"), &["expression text/plain=\"2\""][..]),
            ("undefined", None, &[]),
            ("null", Some("null"), &["expression text/plain=\"null\""]),
            ("display()", None, &[]),
            (
                "display(1, 'two'); 3",
                Some("3"),
                &[
                    "display text/plain=\"1\"",
                    "display text/plain=\"'two'\"",
                    "expression text/plain=\"3\"",
                ],
            ),
            (
                "show({ 'text/html': '<b>', 'application/json': { a: [1] }, 'image/png': png, 'a/b': 'AAEC' })",
                Some("shown"),
                &[
                    "expression a/b=3 bytes application/json=\"{\\\"a\\\":[1]}\" image/png=24 bytes text/html=\"<b>\" \
                    text/plain=\"shown\" {\"image/png\":{\"width\":3,\"height\":5}}",
                ],
            ),
            (
                "show({ 'text/plain': 'own', 'application/javascript': 'alert(1)', 'text': 'no' })",
                Some("shown"),
                &["expression text/plain=\"own\""],
            ),
            (
                "display(show(Promise.resolve({ 'text/latex': '$1$' }))); 'value'",
                Some("'value'"),
                &[
                    "display text/latex=\"$1$\" text/plain=\"shown\"",
                    "expression text/plain=\"'value'\"",
                ],
            ),
            (
                "await 1; display(2); show(Promise.resolve({ 'text/latex': '$3$' }))",
                Some("shown"),
                &[
                    "display text/plain=\"2\"",
                    "expression text/latex=\"$3$\" text/plain=\"shown\"",
                ],
            ),
            (
                "const JSON = 1, display = 2; display",
                Some("2"),
                &["expression text/plain=\"2\""],
            ),
        ] {
            let ran = host.cell(&session, source).await;
            ran.gives(CellOutcome::Succeeded, "", value);
            ran.shows(expected, 0);
        }
    });
}

#[test]
fn a_representation_of_node_that_fails_is_named_in_the_text() {
    everywhere(async |host| {
        let session = host.session("node").await;
        host.cell(&session, CLASSES).await.shows(&[], 0);
        for (source, text, dropped) in [
            (
                "({ [Show]() { throw new TypeError('bad') }, a: 1 })",
                "{ a: 1, [Symbol(Jupyter.display)]: [Function: [Jupyter.display]] }\n\
                 <Jupyter.display failed: TypeError: bad>",
                0,
            ),
            (
                "({ [Symbol.for('nodejs.util.inspect.custom')]() { throw 7 } })",
                "<util.inspect failed: 7>",
                0,
            ),
            (
                "show(Promise.reject(new Error('later')))",
                "shown\n<Jupyter.display failed: Error: later>",
                0,
            ),
            (
                "show({ 'image/png': 'no base64!' })",
                "shown\n<image/png failed: Error: image/png is neither bytes nor Base64>",
                0,
            ),
            (
                "show({ 'image/png': new Uint8Array(50000000) })",
                "shown\n<image/png of 50000000 bytes left out>",
                1,
            ),
            (
                "show({ 'text/html': 'x'.repeat(1 << 20) + 'y' })",
                "shown\n<text/html of 1048577 bytes left out>",
                0,
            ),
            (
                "({ [Show]() { for (;;); }, [Symbol.for('nodejs.util.inspect.custom')]: () => 'stuck' })",
                "stuck\n<Jupyter.display took longer than 5 s>",
                0,
            ),
            (
                "show(new Promise(() => {}))",
                "shown\n<Jupyter.display took longer than 5 s>",
                0,
            ),
        ] {
            let ran = host.cell(&session, source).await;
            assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded, "{source}");
            assert_eq!(ran.text("text/plain"), text, "{source}");
            assert_eq!(ran.ended.dropped_results, dropped, "{source}");
        }
    });
}

#[test]
fn an_error_of_node_keeps_earlier_results_and_a_late_one_harms_nothing() {
    everywhere(async |host| {
        let session = host.session("node").await;
        let source =
            "console.log('out')\ndisplay('shown')\nfunction f(n) {\n  return n.foo.bar;\n}\nf({})";
        let ran = host.cell(&session, source).await;
        ran.gives(CellOutcome::Raised, "out\n", None);
        assert_eq!(line(&ran.results[0]), "display text/plain=\"'shown'\"");
        let error = ran.error.unwrap();
        let places = error
            .frames
            .iter()
            .map(|it| (it.line, it.source_line.as_str()));
        assert_eq!(error.r#type, "TypeError");
        assert_eq!(
            places.collect::<Vec<_>>(),
            [(6, "f({})"), (4, "return n.foo.bar;")]
        );

        host.cell(
            &session,
            "const late = setInterval(() => display('late '.repeat(20000)), 1); undefined",
        )
        .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        for _ in 0..3 {
            let ran = host.cell(&session, "'this cell'").await;
            ran.gives(CellOutcome::Succeeded, "", Some("'this cell'"));
        }
        host.cell(&session, "clearInterval(late)").await;
        let ran = host.cell(&session, "'last'").await;
        ran.shows(&["expression text/plain=\"'last'\""], 0);
    });
}
