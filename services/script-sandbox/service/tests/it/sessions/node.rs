//! The differences of sessions in Node.js.

use super::*;

#[test]
fn node_keeps_its_variables_and_shows_values() {
    everywhere(async |host| {
        use CellOutcome::{Raised, Succeeded};
        let session = host.session("node").await;
        host.cell(
            &session,
            "const fs = require('fs'); let x = 20; console.log('set')",
        )
        .await
        .gives(Succeeded, "set\n", None);
        host.cell(&session, "x += 1; ({ x, list: [1, 2] })")
            .await
            .gives(Succeeded, "", Some("{ x: 21, list: [ 1, 2 ] }"));
        host.cell(
            &session,
            "new Promise((done) => setTimeout(done, 5, x * 2))",
        )
        .await
        .gives(Succeeded, "", Some("42"));
        let failed = host
            .cell(&session, "function f(n) {\n  return n.foo.bar;\n}\nf({})")
            .await;
        failed.gives(Raised, "", None);
        let error = failed.error.unwrap();
        assert_eq!(error.r#type, "TypeError");
        let last = error.frames.last().unwrap();
        assert_eq!((last.cell, last.line, last.function.as_str()), (4, 2, "f"));
        assert_eq!(last.source_line, "return n.foo.bar;");
    });
}

#[test]
fn cells_of_node_may_await() {
    everywhere(async |host| {
        use CellOutcome::Succeeded;
        let session = host.session("node").await;
        for (source, printed, value) in [
            ("const { sep } = await import('path'); sep", "", Some("'/'")),
            ("sep // it stays", "", Some("'/'")),
            (
                "for (const n of [1, 2]) console.log(await n)",
                "1\n2\n",
                None,
            ),
            ("let y = 1; await y // and waits", "", Some("1")),
            ("async function g() { return await y } g()", "", Some("1")),
            ("await (async () => 42)()", "", Some("42")),
            ("const r = await 1; g().then((y) => y + r)", "", Some("2")),
        ] {
            let ran = host.cell(&session, source).await;
            ran.gives(Succeeded, printed, value);
        }
    });
}

#[test]
fn a_cell_of_node_can_be_mended_and_run_again() {
    everywhere(async |host| {
        use CellOutcome::{Raised, Succeeded};
        let session = host.session("node").await;
        for (source, outcome, printed, value) in [
            ("const a = null.x; a", Raised, "", None),
            ("const a = 1; a", Succeeded, "", Some("1")),
            (
                "let { b, c: [a, ...d] } = { b: 1, c: [2, 3] }; d",
                Succeeded,
                "",
                Some("[ 3 ]"),
            ),
            (
                "await 1; const a = 5; for (const b of [a]) { let a = 7 } a",
                Succeeded,
                "",
                Some("5"),
            ),
            // The driver and the printing functions continue with their own.
            (
                "const process = 'mine', require = 0, Buffer = 1, JSON = 2, Promise = 3; console.log(process)",
                Succeeded,
                "mine\n",
                None,
            ),
            ("`${process} ${b}`", Succeeded, "", Some("'mine 1'")),
            ("let z = 1; let z = 2; z", Raised, "", None),
        ] {
            let ran = host.cell(&session, source).await;
            ran.gives(outcome, printed, value);
        }
    });
}

#[test]
fn errors_of_node_have_their_lines_and_causes() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("node").await;
        for (source, kind, line, column) in [
            ("await 1;\nnull.x", "TypeError", 2, 0),
            ("1;\n  null.x", "TypeError", 2, 8),
            ("\nconst q = ;", "SyntaxError", 2, 11),
            ("const q = await 1; q + ;", "SyntaxError", 1, 24),
            ("x.y; await 1", "ReferenceError", 1, 0),
            ("1;\n await ;", "ReferenceError", 2, 2),
        ] {
            let error = host.cell(&session, source).await.error.unwrap();
            let last = error.frames.last().unwrap();
            assert_eq!(error.frames.len(), 1, "{source}");
            assert_eq!(
                (error.r#type.as_str(), last.line, last.column),
                (kind, line, column),
                "{source}"
            );
            let place = match column {
                0 => format!(">:{line}"),
                _ => format!(":{line}:{column}"),
            };
            let text = error.traceback_text;
            let is_reported = text.trim_end_matches(')').ends_with(&place);
            assert!(is_reported || kind == "SyntaxError", "{source}: {text}");
        }
        let source =
            "throw new Error('outer', { cause: new RangeError('inner', { cause: 'deep' }) })";
        let error = host.cell(&session, source).await.error.unwrap();
        let text = error.traceback_text;
        let causes = text.lines().filter(|line| line.contains("Caused by"));
        let expected = ["Caused by: RangeError: inner", "Caused by: 'deep'"];
        assert_eq!(causes.collect::<Vec<_>>(), expected, "{text}");
        let hidden = "throw new Error('shown', { cause: { get cause() { throw 1 } } })";
        let error = host.cell(&session, hidden).await.error.unwrap();
        assert_eq!((error.message.as_str(), error.frames.len()), ("shown", 1));
        let endless =
            "const a = new Error('a'), b = new Error('b', { cause: a }); a.cause = b; throw a";
        let error = host.cell(&session, endless).await.error.unwrap();
        assert_eq!(error.traceback_text.matches("Caused by").count(), 8);
    });
}

#[test]
fn an_interrupted_node_keeps_its_variables() {
    everywhere(async |host| {
        for stuck in [
            "console.log('in'); while (true) {}",
            "setTimeout(() => console.log('in'), 5); new Promise(() => {})",
        ] {
            let mut ended = 0;
            while !survives(&host, stuck).await {
                ended += 1;
                assert!(ended < 5, "{}: {stuck}", host.kind);
            }
        }
    });
}

/// Interrupts a cell of Node.js. False: the session has ended with it, as an interrupt without a
/// listener ends Node.js; its profile documents that.
async fn survives(host: &Host, stuck: &str) -> bool {
    let session = host.session("node").await;
    host.cell(&session, "let x = 21; undefined").await;
    let running = host.begin(&session, stuck).await;
    let interrupt = async || assert!(host.interrupt(&session, 20.0).await.interrupted);
    let ran = follow_with(running, interrupt).await;
    if ran.ended.outcome() == CellOutcome::SessionEnded {
        return false;
    }
    ran.gives(CellOutcome::Interrupted, "in\n", None);
    let kept = host.cell(&session, "x").await;
    kept.gives(CellOutcome::Succeeded, "", Some("21"));
    host.delete(&session).await;
    true
}

#[test]
fn node_prints_after_an_interrupt_in_the_middle_of_printing() {
    as_every_user(async || {
        let host = Host::full().await;
        let mut session = host.session("node").await;
        let mut printed = 0;
        for _ in 0..10 {
            let running = host
                .begin(&session, "for (;;) console.log('again and again')")
                .await;
            let interrupt = async || assert!(host.interrupt(&session, 20.0).await.interrupted);
            let ran = follow_with(running, interrupt).await;
            if ran.ended.outcome() == CellOutcome::SessionEnded {
                // An interrupt without a listener ends Node.js; its profile documents that.
                session = host.session("node").await;
                continue;
            }
            assert_eq!(ran.ended.outcome(), CellOutcome::Interrupted);
            host.cell(&session, "console.log('out'); console.error('and err')")
                .await
                .gives(CellOutcome::Succeeded, "out\n", None);
            printed += 1;
        }
        assert!(printed > 0);
    });
}
