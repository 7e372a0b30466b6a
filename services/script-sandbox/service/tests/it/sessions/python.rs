//! The differences of sessions in Python.

use super::*;
use crate::execute::{PRINTS, sudden_ends};

#[test]
fn cells_of_python_may_await() {
    everywhere(async |host| {
        use CellOutcome::{Raised, Succeeded};
        let session = host.session("python3").await;
        for (source, outcome, printed, value) in [
            (
                "import asyncio\nasync def double(n):\n    await asyncio.sleep(0.001)\n    return n * 2",
                Succeeded,
                "",
                None,
            ),
            ("await double(21)", Succeeded, "", Some("42")),
            ("x = await double(4)\nx", Succeeded, "", Some("8")),
            ("print(await double(1)); _", Succeeded, "2\n", Some("8")),
            (
                "async def each():\n    yield 1\n    yield 2\nasync for n in each(): print(n)",
                Succeeded,
                "1\n2\n",
                None,
            ),
            ("[n async for n in each()]", Succeeded, "", Some("[1, 2]")),
            (
                "async with asyncio.Lock() as held: print(held)",
                Succeeded,
                "None\n",
                None,
            ),
            (
                "task = asyncio.create_task(double(50)); await asyncio.sleep(0)",
                Succeeded,
                "",
                None,
            ),
            ("await task", Succeeded, "", Some("100")),
            ("asyncio.run(double(3))", Succeeded, "", Some("6")),
            ("await double(None)", Raised, "", None),
            (
                "await asyncio.sleep(0); raise SystemExit(3)",
                Raised,
                "",
                None,
            ),
            ("await double(x)", Succeeded, "", Some("16")),
        ] {
            let ran = host.cell(&session, source).await;
            ran.gives(outcome, printed, value);
            let ours = ran.error.map(|error| error.frames[0].file.clone());
            assert!(
                ours.is_none_or(|file| file.starts_with("<cell ")),
                "{source}"
            );
        }
    });
}

#[test]
fn an_interrupted_await_leaves_its_session_alive() {
    everywhere(async |host| {
        let session = host.session("python3").await;
        host.cell(&session, "import asyncio; x = 7").await;
        for waiting in [
            "print('in', end=''); await asyncio.sleep(300)",
            "print('in', end='')\nwhile True: await asyncio.sleep(0)",
            "await asyncio.sleep(0); print('in', end='')\nwhile True: pass",
        ] {
            let running = host.begin(&session, waiting).await;
            let interrupt = async || assert!(host.interrupt(&session, 20.0).await.interrupted);
            let ran = follow_with(running, interrupt).await;
            ran.gives(CellOutcome::Interrupted, "in", None);
            let error = ran.error.unwrap();
            assert_eq!(error.r#type, "KeyboardInterrupt", "{waiting}");
            let of_cell = |file: &str| file.starts_with("<cell ");
            let mut frames = error.frames.iter();
            assert!(
                frames.any(|frame| of_cell(&frame.file)),
                "{waiting}: {error:?}"
            );
            host.cell(&session, "await asyncio.sleep(0, x)")
                .await
                .gives(CellOutcome::Succeeded, "", Some("7"));
        }
    });
}

#[test]
fn lines_that_only_ipython_reads_are_answered_with_a_hint() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python3").await;
        let hint = "invalid syntax: a session reads Python, not IPython; ";
        let commands = format!("{hint}subprocess.run(..., shell=True) runs a command");
        let magics = format!("{hint}there are no magics such as %pip, %timeit and %%bash");
        let help = format!("{hint}help(name) describes a name");
        for (source, message) in [
            ("!pip install numpy", commands.as_str()),
            ("x = 1\n!ls -l", &commands),
            ("files = !ls", &commands),
            ("if True:\n    !ls", &commands),
            ("%timeit sum(range(9))", &magics),
            ("%%bash\necho", &magics),
            ("x = 1\n%matplotlib inline\nx", &magics),
            ("spent = %time 3", &magics),
            ("print?", &help),
            ("?print", &help),
            ("print(1) ! 2", "invalid syntax"),
            ("x = (1 %)", "invalid syntax"),
            ("def f(:", "invalid syntax"),
        ] {
            let error = host.cell(&session, source).await.error.unwrap();
            assert_eq!(
                (error.r#type.as_str(), error.message.as_str()),
                ("SyntaxError", message),
                "{source}"
            );
            assert!(error.traceback_text.contains(message), "{source}");
        }
    });
}

#[test]
fn prints_of_a_cell_arrive_however_it_ends() {
    everywhere(async |host| {
        for (end, limits, _) in sudden_ends() {
            let wish = CreateSessionRequest {
                limits: Some(limits),
                ..wish("python3")
            };
            let session = host.session_with(wish).await;
            let ran = host.cell(&session, &format!("{PRINTS}{end}")).await;
            assert_eq!(ran.stdout, "a line\nhalf a line of a child\n", "{end}");
        }
    });
}
